"""Set prediction: the matching, the losses, metrics, training, the command line."""

import itertools
import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import DataLoader

from vision_attn.cli import main
from vision_attn.errors import UserError
from vision_attn.training.detr import Detector
from vision_attn.training.set_loss import Targets, Weights, found, match, set_loss

# Lightning's advice on worker counts and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

TINY: dict[str, Any] = {"embed_dim": 12, "depth": 2, "dec_depth": 3, "num_heads": 3}


def answers(b: int, nq: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(b, nq, classes + 1, generator=g, dtype=torch.float64)
    return 2 * logits, 0.1 + 0.8 * torch.rand(b, nq, 4, generator=g, dtype=torch.float64)


def truth(counts: list[int], classes: int, seed: int = 1) -> Targets:
    g = torch.Generator().manual_seed(seed)
    return [
        {
            "boxes": 0.1 + 0.8 * torch.rand(n, 4, generator=g, dtype=torch.float64),
            "labels": torch.randint(0, classes, (n,), generator=g),
        }
        for n in counts
    ]


def giou(a: list[float], b: list[float]) -> float:
    """Rezatofighi et al. 2019, from corners, in plain numbers."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = a, b

    def overlap(c: float, d: float, e: float, f: float) -> float:
        return max(0.0, min(c + d / 2, e + f / 2) - max(c - d / 2, e - f / 2))

    def hull(c: float, d: float, e: float, f: float) -> float:
        return max(c + d / 2, e + f / 2) - min(c - d / 2, e - f / 2)

    both = overlap(ax, aw, bx, bw) * overlap(ay, ah, by, bh)
    either = aw * ah + bw * bh - both
    around = hull(ax, aw, bx, bw) * hull(ay, ah, by, bh)
    return both / either - (around - either) / around


def pair_cost(logits: Tensor, box: Tensor, label: int, true: Tensor, w: Weights) -> float:
    e = [math.exp(v) for v in logits.tolist()]
    l1 = sum(abs(a - b) for a, b in zip(box.tolist(), true.tolist(), strict=True))
    shape = giou(box.tolist(), true.tolist())
    return -w.label * e[label] / sum(e) + w.l1 * l1 - w.giou * shape


@pytest.mark.parametrize(
    "weights", [None, Weights(3.0, 0.5, 0.0), Weights(0.0, 0.0, 1.0), Weights(1.0, 0.0, 0.0)]
)
def test_matching_is_the_best_of_all_assignments(weights: Weights | None) -> None:
    counts = [3, 0, 5, 1, 2]
    logits, boxes = answers(len(counts), 5, 4)
    targets = truth(counts, 4)
    w = weights or Weights()
    pairs = match(logits, boxes, targets, weights)
    for i, (queries, objects) in enumerate(pairs):
        labels, true = targets[i]["labels"].tolist(), targets[i]["boxes"]
        cost = [
            [pair_cost(logits[i, q], boxes[i, q], c, true[t], w) for t, c in enumerate(labels)]
            for q in range(5)
        ]
        assert sorted(objects.tolist()) == list(range(counts[i]))
        assert len(set(queries.tolist())) == counts[i]
        got = sum(cost[q][t] for q, t in zip(queries.tolist(), objects.tolist(), strict=True))
        best = min(
            sum(cost[q][t] for t, q in enumerate(chosen))
            for chosen in itertools.permutations(range(5), counts[i])
        )
        assert_close(got, best, rtol=1e-5, atol=1e-6)


def test_losses_by_hand() -> None:
    """Two queries, one object. Query 1 holds it; query 0 must say 'nothing' (class 2)."""
    logits = torch.tensor([[[0.0, 0.0, 0.0], [0.0, math.log(2.0), 0.0]]])
    boxes = torch.tensor([[[0.2, 0.2, 0.2, 0.2], [0.5, 0.5, 0.4, 0.4]]])
    targets = [{"boxes": torch.tensor([[0.6, 0.5, 0.4, 0.4]]), "labels": torch.tensor([1])}]
    got = set_loss(logits, boxes, targets)
    # probabilities: nothing 1/3 of query 0, class 1 of query 1 is 2/4; weights 0.1 and 1
    label = (0.1 * math.log(3) + math.log(2)) / 1.1
    # the boxes overlap in 0.3 x 0.4, together fill 0.5 x 0.4, and so does their hull
    assert_close([float(v) for v in got[1:]], [label, 0.1, 1 - 0.12 / 0.20], rtol=0, atol=1e-6)
    assert_close(float(got.total), label + 5 * 0.1 + 2 * 0.4, rtol=0, atol=1e-6)
    other = set_loss(logits, boxes, targets, Weights(2.0, 3.0, 7.0, 1.0))
    even = (math.log(3) + math.log(2)) / 2
    assert_close(float(other.total), 2 * even + 3 * 0.1 + 7 * 0.4, rtol=0, atol=1e-5)


def test_generalised_iou_of_boxes_apart() -> None:
    """Where boxes do not touch, IoU is 0 and has no gradient; GIoU pulls them together."""
    logits = torch.zeros(1, 1, 2)
    boxes = torch.tensor([[[0.1, 0.5, 0.2, 0.2]]], requires_grad=True)
    targets = [{"boxes": torch.tensor([[0.9, 0.5, 0.2, 0.2]]), "labels": torch.tensor([0])}]
    loss = set_loss(logits, boxes, targets).giou
    # 0.04 + 0.04 of a hull of 1.0 x 0.2
    assert_close(float(loss.detach()), 1 + (0.2 - 0.08) / 0.2, rtol=0, atol=1e-5)
    loss.backward()
    assert boxes.grad is not None
    assert boxes.grad[0, 0, 0] < 0


def test_the_loss_of_a_batch_is_over_all_of_its_objects() -> None:
    """L1 and GIoU are sums over the number of objects of the batch, not means of images' means."""
    counts = [3, 0, 1]
    logits, boxes = answers(3, 5, 4)
    targets = truth(counts, 4)
    got = set_loss(logits, boxes, targets)
    pairs = match(logits, boxes, targets)
    l1 = shape = label = total = 0.0
    for i, (queries, objects) in enumerate(pairs):
        held = dict(zip(queries.tolist(), objects.tolist(), strict=True))
        for q in range(5):
            e = [math.exp(v) for v in logits[i, q].tolist()]
            c = int(targets[i]["labels"][held[q]]) if q in held else 4
            label -= (1.0 if q in held else 0.1) * math.log(e[c] / sum(e))
            total += 1.0 if q in held else 0.1
            if q in held:
                a, b = boxes[i, q].tolist(), targets[i]["boxes"][held[q]].tolist()
                l1 += sum(abs(u - v) for u, v in zip(a, b, strict=True)) / 4
                shape += (1 - giou(a, b)) / 4
    assert_close([float(v) for v in got[1:]], [label / total, l1, shape], rtol=1e-6, atol=1e-6)


def test_order_of_objects_and_of_queries_does_not_matter() -> None:
    logits, boxes = answers(3, 6, 4)
    logits.requires_grad_()
    boxes.requires_grad_()
    targets = truth([4, 2, 6], 4)
    want = set_loss(logits, boxes, targets)
    grads = torch.autograd.grad(want.total, (logits, boxes))
    shuffled = [{k: v.flip(0) for k, v in t.items()} for t in targets]
    assert_close(set_loss(logits, boxes, shuffled), want)
    order = torch.tensor([3, 5, 0, 1, 4, 2])
    moved = set_loss(logits[:, order], boxes[:, order], targets)
    assert_close(moved, want)
    assert_close(torch.autograd.grad(moved.total, (logits, boxes)), grads)


def test_images_without_objects_teach_nothing_only() -> None:
    logits, boxes = answers(2, 3, 4)
    boxes.requires_grad_()
    got = set_loss(logits, boxes, truth([0, 0], 4))
    want = -logits.log_softmax(-1)[..., -1].mean()
    assert_close((got.total, got.label), (want, want))
    (g,) = torch.autograd.grad(got.total, boxes)
    assert_close(g, torch.zeros_like(g))


def test_what_cannot_be_matched_is_refused() -> None:
    logits, boxes = answers(2, 3, 4)
    with pytest.raises(UserError, match=r"num_queries is 3.* has 5 objects; give 5 or more"):
        match(logits, boxes, truth([1, 5], 4))
    logits[1, 2] = float("nan")
    with pytest.raises(UserError, match="diverged"):
        match(logits, boxes, truth([1, 1], 4))


def test_found_counts_what_is_likelier_than_nothing() -> None:
    logits = torch.tensor([[[2.0, 0.0, 1.0], [0.0, 1.0, 2.0], [0.0, 3.0, 1.0]]])
    boxes = torch.arange(12.0).reshape(1, 3, 4)
    (got,) = found(logits, boxes)
    assert got["labels"].tolist() == [0, 1]
    assert_close(got["boxes"], boxes[0, [0, 2]])
    assert_close(got["scores"], logits[0].softmax(-1)[[0, 2], [0, 1]])
    (got,) = found(logits, boxes, every=True)
    assert got["labels"].tolist() == [0, 1, 1]


def quiet(**more: Any) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, **more,
    )  # fmt: skip


class Fixed(torch.nn.Module):
    """Answers the same set, whatever the image."""

    def __init__(self, logits: Tensor, boxes: Tensor) -> None:
        super().__init__()
        self.logits, self.boxes = torch.nn.Parameter(logits), torch.nn.Parameter(boxes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits, self.boxes


def test_metrics_by_hand() -> None:
    """Image 0 is answered right. Image 1 has one box wrong and one object more than is there."""
    a, b = [0.2, 0.2, 0.2, 0.2], [0.7, 0.7, 0.2, 0.2]
    sure = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    logits = torch.stack((sure, torch.tensor([[8.0, 0.0, 0.0], [0.0, 9.0, 0.0]])))
    boxes = torch.tensor([[a, b], [b, a]])
    targets = [{"boxes": torch.tensor([a]), "labels": torch.tensor([0])} for _ in range(2)]
    module = Detector(img_size=(4, 4), patch_size=2, num_classes=2, num_queries=2, **TINY)
    module.model = Fixed(logits, boxes)  # type: ignore[assignment]
    loader: Any = DataLoader([(torch.zeros(2, 1, 4, 4), targets)], batch_size=None)  # type: ignore[arg-type, list-item]
    (got,) = quiet().test(module, loader, verbose=False)
    assert_close(got["test_count"], 0.5)
    # class 0, two objects: the surest answer is right, the next is not, so precision is 1 up to
    # recall 1/2 and 0 beyond: 51 of COCO's 101 points. Class 1 has no object and does not count.
    assert_close(got["test_map50"], 51 / 101, rtol=0, atol=1e-4)
    assert_close(got["test_map"], 51 / 101, rtol=0, atol=1e-4)


def squares(n: int = 16) -> tuple[Tensor, Targets]:
    """Images of 8 x 8 with a bright 2 x 2 square in the left half, in the right, both or none."""
    g = torch.Generator().manual_seed(4)
    x, targets = torch.zeros(n, 1, 8, 8), []
    for i in range(n):
        boxes = []
        for side in (0, 4):
            if torch.rand((), generator=g) < 0.6:
                a, b = torch.randint(0, 3, (2,), generator=g).tolist()
                x[i, 0, 2 * a : 2 * a + 2, side + b : side + b + 2] = 1
                boxes.append([(side + b + 1) / 8, (2 * a + 1) / 8, 0.25, 0.25])
        there = torch.tensor(boxes).reshape(-1, 4)
        targets.append({"boxes": there, "labels": (there[:, 0] > 0.5).long()})
    return x, targets


def test_training_learns_and_survives_a_checkpoint(tmp_path: Path) -> None:
    L.seed_everything(0, verbose=False)
    size = {"embed_dim": 16, "depth": 1, "dec_depth": 2, "num_heads": 2, "num_queries": 3}
    module = Detector(img_size=(8, 8), patch_size=2, num_classes=2, lr=1e-2, nothing=0.5, **size)
    batch = squares()
    loader: Any = DataLoader([batch], batch_size=None)  # type: ignore[arg-type, list-item]
    trainer = quiet(max_steps=220, max_epochs=-1)
    before = set_loss(*module(batch[0]), batch[1]).total.detach()
    trainer.fit(module, loader)
    (result,) = trainer.test(module, loader, verbose=False)
    assert result["test_loss"] < 0.15 * float(before)
    assert result["test_map50"] > 0.7
    assert result["test_count"] > 0.7
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = Detector.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert again.weights == module.weights
    assert_close(again.eval()(batch[0]), module.eval()(batch[0]), rtol=0, atol=0)


def test_every_decoder_layer_is_trained() -> None:
    module = Detector(img_size=(8, 8), patch_size=2, num_classes=2, num_queries=3, **TINY)
    x, targets = squares(5)
    loss = module.training_step((x, targets), 0)
    layers = zip(*module.model.decode(module.model.encode(x)), strict=True)
    want = [float(set_loss(a, b, targets).total.detach()) for a, b in layers]
    assert len(want) == 3
    assert_close(float(loss.detach()), sum(want))
    loss.backward()
    for name, p in module.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name


CONFIG = str(Path(__file__).parents[1] / "configs" / "detr.yaml")
SMALL = ["--data.train_scenes", "16", "--data.eval_scenes", "8", "--data.batch_size", "8"]
QUICK = [*SMALL, "--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false"]


def test_the_configuration_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["fit", "--config", CONFIG, *QUICK, "--data.canvas", "[16, 20]"]
    assert main(line) == 0
    assert "val_map50" in capsys.readouterr().out
    assert main([*line, "--model.num_queries", "1"]) == 2
    assert "num_queries is 1" in capsys.readouterr().err
