"""Claim: full attention costs N^2; windows (Liu et al. 2021) and neighbourhoods cost N."""

import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vision_attn.claims.common import (
    COLOURS,
    Claim,
    Settings,
    Summary,
    error_bars,
    figure,
    one_thread,
    span,
)
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.stats.intervals import slope

__all__ = ["PeakMemory", "measure_cost"]

DIM, HEADS = 64, 4
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "full, fused": lambda: MultiHeadSelfAttention(DIM, HEADS),
    "full, matrix": lambda: MultiHeadSelfAttention(DIM, HEADS, fused=False),
    "window 8 x 8": lambda: WindowAttention(DIM, HEADS, window_size=8, shift_size=4),
    "neighbourhood 7 x 7": lambda: NeighborhoodAttention(DIM, HEADS, kernel_size=7),
}
MIB = 2**20


class PeakMemory(TorchDispatchMode):
    """The largest number of bytes in tensors that were created inside and alive at one time.

    On any device. A view counts as nothing, and a kernel's own workspace is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        for t in args:
            if isinstance(t, Tensor):  # it comes from outside, unless it is counted already
                self._count(t.untyped_storage(), 0)
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, Tensor):
                self._count(t.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage, size: int | None = None) -> None:
        key, size = storage._cdata, storage.nbytes() if size is None else size
        if key in self._known:
            return
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def measure_cost(settings: Settings, device: torch.device) -> Claim:
    """Forward and backward of one layer on one image: milliseconds and peak memory over N.

    On a CPU it is processor time of one thread, which other work on the machine hardly changes.
    """
    with one_thread():
        raw = pd.DataFrame(_rows(settings, device))
    raw = raw.sort_values(["layer", "N"], kind="stable", ignore_index=True)
    table = Summary("forward and backward, one image, width 64", raw, ("layer", "N"),
                    ("milliseconds", "MiB"))  # fmt: skip
    answers, numbers = _words(raw, settings)
    where = "processor time, one thread" if device.type == "cpu" else f"on {device.type}"
    question = f"How do time and memory grow with the number of tokens N ({where})?"
    return Claim("cost", question, answers, numbers, {"cost": table}, _plot(table.table()))


def _rows(settings: Settings, device: torch.device) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    layers = {name: make().to(device) for name, make in LAYERS.items()}
    steps: dict[tuple[str, int], Callable[[], None]] = {}
    for name, layer in layers.items():
        for side in settings.sides:
            if name != "full, matrix" or side <= settings.matrix:
                steps[name, side] = _step(layer, side, device)
    memory = {}
    for case, step in steps.items():  # also the warm-up
        with PeakMemory() as memory_used:
            step()
        memory[case] = memory_used.peak / MIB
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    rows: list[dict[str, Any]] = []
    for turn in range(settings.turns):  # they take turns, so that a busy moment hits all
        for (name, side), step in steps.items():
            start = clock()
            step()
            if device.type != "cpu":
                getattr(torch, device.type).synchronize()
            rows.append(
                {
                    "layer": name,
                    "N": side * side,
                    "turn": turn,
                    "milliseconds": 1e3 * (clock() - start),
                    "MiB": memory[name, side],
                }
            )
    return rows


def _step(layer: nn.Module, side: int, device: torch.device) -> Callable[[], None]:
    x = torch.randn(1, side * side, DIM, device=device, requires_grad=True)
    grid = () if isinstance(layer, MultiHeadSelfAttention) else ((side, side),)

    def run() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x, *grid).sum().backward()

    return run


def _words(raw: pd.DataFrame, settings: Settings) -> tuple[list[str], dict[str, Any]]:
    """Exponents are fitted from the second size on, where the fixed cost of a call matters less."""
    answers, numbers = [], {}
    first = sorted(settings.sides)[1] ** 2
    for name, part in raw[raw["N"] >= first].groupby("layer", sort=False):
        if part["N"].nunique() < 2:
            continue
        time_power = slope(np.log(part["N"]), np.log(part["milliseconds"]))
        once = part.drop_duplicates("N")
        mem_power = slope(np.log(once["N"]), np.log(once["MiB"])) if len(once) > 2 else None
        numbers[f"{name}: exponent of N in time"] = time_power
        text = f"{name}: time goes as N^{span(time_power)}"
        if mem_power:
            numbers[f"{name}: exponent of N in memory"] = mem_power
            text += f", memory as N^{span(mem_power)}"
        last = part[part["N"] == part["N"].max()]
        answers.append(
            f"{text}, from N = {first:,} to {part['N'].max():,}, where it takes"
            f" {last['milliseconds'].median():.0f} ms and {last['MiB'].iloc[0]:.0f} MiB."
        )
    return answers, numbers


def _plot(table: pd.DataFrame) -> Any:
    fig, axes = figure(2)
    for a, name, title in zip(axes, ("milliseconds", "MiB"), ("time, ms", "peak memory, MiB"),
                              strict=True):  # fmt: skip
        a.set_xscale("log", base=2)
        a.set_yscale("log")
        for i, (layer, part) in enumerate(table.groupby("layer", sort=False)):
            error_bars(a, part, "N", name, COLOURS[i], str(layer), marker="os^D"[i], ms=4)
        counts = sorted(table["N"].unique())
        a.set_xticks(counts, [f"{n:,}" for n in counts])
        a.set_xlabel("tokens N")
        a.set_title(f"{title}, forward and backward", fontsize=10)
    axes[0].legend(frameon=False, fontsize=8)
    return fig
