"""Hungarian matching of a set of answers to the truth, and the loss on its pairs.

Carion et al. 2020, with the generalised IoU of Rezatofighi et al. 2019.
"""

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torchvision.ops import box_convert, generalized_box_iou_loss

from vision_attn.errors import UserError

__all__ = ["LossWeights", "SetLoss", "Targets", "detections", "match", "set_loss"]

Targets = list[dict[str, Tensor]]
"""An image's objects: labels int64 (T,), boxes (T, 4): centre x, centre y, width, height."""


class LossWeights(NamedTuple):
    """Weights of class, L1 distance of boxes and generalised IoU; and of 'nothing' as a class."""

    label: float = 1.0
    l1: float = 5.0
    giou: float = 2.0
    nothing: float = 0.1


class SetLoss(NamedTuple):
    """The weighted sum, and its three parts without their weights."""

    total: Tensor
    label: Tensor
    l1: Tensor
    giou: Tensor


@torch.no_grad()
def match(
    logits: Tensor, boxes: Tensor, targets: Targets, weights: LossWeights | None = None
) -> list[tuple[Tensor, Tensor]]:
    """The one-to-one assignment of queries to objects with the lowest cost, for each image.

    A pair costs `-label * p(class) + l1 * |box - box'|_1 - giou * GIoU(box, box')`.

    Args:
        logits: (B, Nq, classes+1), 'nothing' last.
        boxes: (B, Nq, 4), centre x, centre y, width, height.
        targets: B dicts; T may differ from image to image, and may be 0.
        weights: None is `LossWeights()`.

    Returns:
        For each image the numbers of queries, rising, and those of their objects: (T,) twice.

    Raises:
        UserError: more objects than queries, or answers that are not finite.
    """
    w = weights or LossWeights()
    counts = [len(t["labels"]) for t in targets]
    most = max(counts, default=0)
    if most > logits.shape[1]:
        raise UserError(
            f"num_queries is {logits.shape[1]}, but an image has {most} objects;"
            f" give {most} or more"
        )
    labels = pad_sequence([t["labels"] for t in targets], batch_first=True)
    truth = pad_sequence([t["boxes"] for t in targets], batch_first=True).to(boxes.dtype)
    shape = (*boxes.shape[:2], most, 4)
    mine, theirs = boxes[:, :, None].expand(shape), truth[:, None].expand(shape)
    p = logits.softmax(-1).gather(2, labels[:, None].expand(shape[:3]))
    cost = w.l1 * (mine - theirs).abs().sum(-1) - w.label * p + w.giou * _giou_loss(mine, theirs)
    if not cost.isfinite().all():
        raise UserError("the answers are not finite: training has diverged; try a lower lr")
    pairs = []
    for table, count in zip(cost.float().cpu().numpy(), counts, strict=True):
        rows, cols = (torch.from_numpy(i) for i in linear_sum_assignment(table[:, :count]))
        pairs.append((rows.to(boxes.device), cols.to(boxes.device)))
    return pairs


def set_loss(
    logits: Tensor, boxes: Tensor, targets: Targets, weights: LossWeights | None = None
) -> SetLoss:
    """The loss of one decoder layer's answers, after `match`; shapes as there.

    Class: cross-entropy of every query, its object's class or 'nothing', weighted mean with weight
    `nothing` for the latter. Boxes: L1 and `1 - GIoU` of the pairs, summed, over the number of
    objects in the batch. Neither the order of the queries nor that of the objects matters.
    """
    w = weights or LossWeights()
    pairs = match(logits, boxes, targets, w)
    image = torch.cat([torch.full_like(q, i) for i, (q, _) in enumerate(pairs)])
    query = torch.cat([q for q, _ in pairs])
    wanted = torch.full(logits.shape[:2], logits.shape[2] - 1, device=logits.device)
    assigned = list(zip(targets, (objects for _, objects in pairs), strict=True))
    wanted[image, query] = torch.cat([t["labels"][o] for t, o in assigned])
    share = logits.new_ones(logits.shape[2])
    share[-1] = w.nothing
    label = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), share)
    mine = boxes[image, query]
    theirs = torch.cat([t["boxes"][o] for t, o in assigned]).to(boxes.dtype)
    count = max(len(query), 1)
    l1 = (mine - theirs).abs().sum() / count
    giou = _giou_loss(mine, theirs).sum() / count
    return SetLoss(w.label * label + w.l1 * l1 + w.giou * giou, label, l1, giou)


def detections(logits: Tensor, boxes: Tensor, *, every: bool = False) -> Targets:
    """The objects that the answers name: for each image boxes (n, 4), scores (n,), labels (n,).

    A query counts if its most probable class is not 'nothing'. With `every` all queries count, each
    with its most probable object: average precision ranks them by score.
    """
    p = logits.softmax(-1)
    score, label = p[..., :-1].max(-1)
    keep = torch.ones_like(label, dtype=torch.bool) if every else score > p[..., -1]
    return [
        {"boxes": b[k], "scores": s[k], "labels": i[k]}
        for b, s, i, k in zip(boxes, score, label, keep, strict=True)
    ]


def _giou_loss(a: Tensor, b: Tensor) -> Tensor:
    """`1 - GIoU` (Rezatofighi et al. 2019) of boxes by centre and size: (..., 4) twice -> (...)."""
    a, b = (box_convert(box, "cxcywh", "xyxy") for box in (a, b))
    return cast("Tensor", generalized_box_iou_loss(a, b))
