"""What a model costs, and a CNN that costs the same: parameters and forward FLOPs.

FLOPs are two per multiply-add, of one image forward, counted by torch's FlopCounterMode. That
counter sees nothing inside the fused CPU attention kernel, so attention is counted on its
mathematical path: 4 * N^2 * D a layer for scores and sum, beside the projections.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from timm.layers.helpers import make_divisible
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vision_attn.errors import UserError
from vision_attn.layers.state import in_eval
from vision_attn.models.cnn import stage_sizes
from vision_attn.names import Match
from vision_attn.ops.checks import check_choice

__all__ = ["TOLERANCE", "Cost", "Match", "activation_bytes", "cnn_cost", "cost", "match_cnn"]

TOLERANCE: dict[str, tuple[float, float]] = {
    "params": (0.02, float("inf")),
    "flops": (float("inf"), 0.05),
    "both": (0.02, 0.10),
}
"""Largest relative difference in (parameters, FLOPs) that counts as matched."""


@dataclass(frozen=True)
class Cost:
    """Parameters (trainable), and FLOPs of one forward pass of one image."""

    params: int
    flops: int

    def off(self, target: "Cost") -> tuple[float, float]:
        """Relative differences from `target` in parameters and in FLOPs."""
        return abs(self.params / target.params - 1), abs(self.flops / target.flops - 1)


def cost(model: nn.Module, in_chans: int, img_size: tuple[int, int]) -> Cost:
    """Measure a model on one blank image of shape (C, h, w)."""
    params = sum(p.numel() for p in model.parameters() if p.requires_grad)
    first = next(model.parameters())
    x = torch.zeros(1, in_chans, *img_size, device=first.device, dtype=first.dtype)
    counter = FlopCounterMode(display=False)
    # not under no_grad, where the counter fails on expanded queries, as of attention pooling
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), in_eval(model), counter:
        model(x)
    return Cost(params, counter.get_total_flops())


def activation_bytes(model: nn.Module, in_chans: int, img_size: tuple[int, int]) -> int:
    """Bytes that one image's forward pass keeps for the backward pass, parameters apart.

    Each storage counts once, however many operations keep it.
    """
    own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage
        return t

    first = next(model.parameters())
    x = torch.zeros(2, in_chans, *img_size, device=first.device, dtype=first.dtype)
    state = {k: v.clone() for k, v in model.state_dict().items()}  # batch norm counts images
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = model(x)
    total = sum(s.nbytes() for s in storages.values())
    del out
    model.load_state_dict(state)
    return total // len(x)


def cnn_cost(
    widths: tuple[int, ...],
    depth: int,
    in_chans: int,
    num_classes: int,
    img_size: tuple[int, int],
    attn_layer: str | None = None,
) -> Cost:
    """What `SmallCNN` costs, in closed form, so that thousands of widths can be tried."""
    params = flops = 0
    chans = in_chans
    for width, (h, w) in zip(widths, stage_sizes(img_size, len(widths)), strict=True):
        for _ in range(depth):
            params += 9 * chans * width + 2 * width
            flops += 2 * 9 * chans * width * h * w
            chans = width
        if attn_layer == "se":
            squeezed = make_divisible(width / 16, 8, round_limit=0.0)
            params += 2 * width * squeezed + squeezed + width
            flops += 2 * 2 * width * squeezed
    return Cost(params + (chans + 1) * num_classes, flops + 2 * chans * num_classes)


def match_cnn(
    target: Cost,
    match: Literal["params", "flops", "both"],
    *,
    in_chans: int,
    num_classes: int,
    img_size: tuple[int, int],
    depth: int = 2,
    attn_layer: str | None = None,
) -> tuple[int, ...]:
    """Widths of a `SmallCNN` that costs what `target` costs, within `TOLERANCE`.

    Three stages where they match, else four or five, whose small maps cost fewer FLOPs a parameter.
    They widen by a constant ratio, 2 where that matches, else the nearest that does; the base width
    is solved by bisection, and the widths are then rounded to the best neighbours.

    Raises:
        UserError: no widths come within the tolerance; the message says how near the best came.
    """
    check_choice(TOLERANCE, match=match)
    limits = TOLERANCE[match]
    price = partial(
        cnn_cost, depth=depth, in_chans=in_chans, num_classes=num_classes, img_size=img_size,
        attn_layer=attn_layer,
    )  # fmt: skip
    best: tuple[float, tuple[int, ...], Cost] | None = None
    ratios = sorted((1 + 0.05 * i for i in range(61)), key=lambda r: abs(r - 2))
    for stages, ratio in itertools.product((3, 4, 5), ratios):
        for widths in _around(target, match, ratio, stages, price):
            got = price(widths)
            miss = max(o / limit for o, limit in zip(got.off(target), limits, strict=True))
            if best is None or miss < best[0]:
                best = miss, widths, got
        if best is not None and best[0] <= 1:
            return best[1]
    assert best is not None
    raise UserError(
        f"no CNN of 3 to 5 stages comes within {_percent(limits)} of {target.params:,} parameters"
        f" and {target.flops:,} FLOPs; the nearest has widths {list(best[1])} with"
        f" {best[2].params:,} and {best[2].flops:,}; try another match or reference model"
    )


def _around(
    target: Cost,
    match: str,
    ratio: float,
    stages: int,
    price: Callable[[tuple[int, ...]], Cost],
) -> Iterator[tuple[int, ...]]:
    """Whole widths next to the real ones that meet the target at this ratio of stages."""
    axis = "flops" if match == "flops" else "params"

    def whole(base: float) -> tuple[int, ...]:
        return tuple(max(1, round(base * ratio**i)) for i in range(stages))

    low, high = 0.5, 4096.0
    for _ in range(40):
        middle = (low + high) / 2
        got = price(whole(middle))
        low, high = (middle, high) if getattr(got, axis) < getattr(target, axis) else (low, middle)
    near = {whole(low), whole(high)}
    for widths in sorted(near):
        for first in (-1, 0, 1):
            for last in (-2, -1, 0, 1, 2):
                moved = (widths[0] + first, *widths[1:-1], widths[-1] + last)
                if min(moved) >= 1:
                    yield moved


def _percent(limits: tuple[float, float]) -> str:
    parts = zip(("parameters", "FLOPs"), limits, strict=True)
    return " and ".join(f"{limit:.0%} in {what}" for what, limit in parts if limit < float("inf"))
