"""Neighbourhood attention, 7 x 7, against full attention under the same mask.

    python tests/benchmarks/local.py

Forward and backward of the whole layer, width 64, 4 heads, batch 4, float32. The candidates take
turns in one process, and each figure is the median of its turns, in seconds of processor time
(all threads together) and of wall time. Wanted: full / local >= 5 at 64 x 64 pixels, and
local at 128 x 128 under 5 times local at 64 x 64.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch

from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.ops.neighborhood import neighborhood_mask

DIM, HEADS, BATCH, KERNEL = 64, 4, 4, 7


def step(layer: torch.nn.Module, side: int, *args: object, **options: object) -> Callable[[], None]:
    """Forward and backward on a grid of side x side tokens."""
    x = torch.randn(BATCH, side * side, DIM, requires_grad=True)

    def run() -> None:
        layer.zero_grad()
        x.grad = None
        layer(x, *args, **options).sum().backward()

    return run


def measure(
    tasks: dict[str, Callable[[], None]], turns: dict[str, int]
) -> dict[str, tuple[float, float]]:
    """Median (processor, wall) seconds of each task, the tasks taking turns."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for turn in range(max(turns.values()) + 1):
        for name, task in tasks.items():
            if turn > turns[name]:
                continue
            cpu, wall = time.process_time(), time.perf_counter()
            task()
            if turn:  # the first turn warms up
                seen[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return {
        name: (statistics.median(t[0] for t in all_), statistics.median(t[1] for t in all_))
        for name, all_ in seen.items()
    }


def main() -> None:
    """Print the table and the two ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--full-turns", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    local = NeighborhoodAttention(DIM, HEADS, kernel_size=KERNEL)
    biased = NeighborhoodAttention(DIM, HEADS, kernel_size=KERNEL, rel_bias=True)
    window = WindowAttention(DIM, HEADS, window_size=8, shift_size=4)
    full = MultiHeadSelfAttention(DIM, HEADS)
    mask = neighborhood_mask((64, 64), (KERNEL, KERNEL))
    tasks = {
        "full, masked, 64 x 64": step(full, 64, mask=mask),
        "neighbourhood 64 x 64": step(local, 64, (64, 64)),
        "neighbourhood 128 x 128": step(local, 128, (128, 128)),
        "with bias 64 x 64": step(biased, 64, (64, 64)),
        "window 8 x 8, shifted, 64 x 64": step(window, 64, (64, 64)),
    }
    turns = dict.fromkeys(tasks, args.turns) | {"full, masked, 64 x 64": args.full_turns}
    found = measure(tasks, turns)
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {platform.machine()}")
    print(f"{'':32}{'processor s':>12}{'wall s':>10}{'turns':>7}")
    for name, (cpu, wall) in found.items():
        print(f"{name:32}{cpu:12.3f}{wall:10.3f}{turns[name]:7}")
    for text, a, b in (
        ("full / neighbourhood", "full, masked, 64 x 64", "neighbourhood 64 x 64"),
        ("128 x 128 / 64 x 64", "neighbourhood 128 x 128", "neighbourhood 64 x 64"),
    ):
        cpu, wall = (found[a][i] / found[b][i] for i in (0, 1))
        print(f"{text:32}{cpu:12.2f}{wall:10.2f}")


if __name__ == "__main__":
    main()
