"""Maps of one query of one layer at 4,096 tokens, against a plain forward pass.

    python tests/benchmarks/maps.py

A classifier on 64 x 64 pixels, each a token. Time: the candidates take turns in one process, and
each figure is the median of its turns, in seconds of processor time (all threads together) and of
wall time. Memory: each candidate in a process of its own, the most that one pass held beyond what
the process held before it (Linux only). Wanted: both under 1.2 times the plain pass.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from vision_attn.explain import attention_maps
from vision_attn.models.local_vit import LocalVisionTransformer
from vision_attn.models.vit import VisionTransformer

KINDS = {
    "full": lambda: VisionTransformer(64, 1, 3, 10, embed_dim=96, depth=4, num_heads=3),
    "radius 3": lambda: LocalVisionTransformer(
        64, 1, 3, 10, embed_dim=96, depth=4, num_heads=3, radius=3
    ),
}


def task(kind: str, maps: bool, batch: int) -> Callable[[], None]:
    """A forward pass without gradients, with the maps of one query or without."""
    torch.manual_seed(0)
    model = KINDS[kind]().eval()
    x = torch.randn(batch, 3, 64, 64)

    @torch.no_grad()
    def run() -> None:
        if maps:
            attention_maps(model, x, layers=[2], queries=[(30, 31)])
        else:
            model(x)

    return run


def held(run: Callable[[], None]) -> float:
    """The most that a first run holds, MB, from Linux's own counters."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    """Print the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--memory", choices=KINDS, help="used by the benchmark itself")
    parser.add_argument("--maps", action="store_true", help="used by the benchmark itself")
    args = parser.parse_args()
    if args.memory:
        print(held(task(args.memory, args.maps, args.batch)))
        return
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {platform.machine()}")
    print(f"{'':24}{'processor s':>12}{'wall s':>10}{'MB':>8}")
    for kind in KINDS:
        tasks = {maps: task(kind, maps, args.batch) for maps in (False, True)}
        seen: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for turn in range(args.turns + 1):
            for maps, run in tasks.items():
                cpu, wall = time.process_time(), time.perf_counter()
                run()
                if turn:  # the first turn warms up
                    seen[maps].append((time.process_time() - cpu, time.perf_counter() - wall))
        found: dict[bool, list[float]] = {}
        for maps in (False, True):
            command = [sys.executable, __file__, "--memory", kind, "--batch", str(args.batch)]
            command += ["--maps"] * maps
            most = float(subprocess.check_output(command))
            cpu, wall = (statistics.median(t[i] for t in seen[maps]) for i in (0, 1))
            found[maps] = [cpu, wall, most]
            name = f"{kind}, {'maps of one query' if maps else 'plain'}"
            print(f"{name:24}{cpu:12.4f}{wall:10.4f}{found[maps][2]:8.1f}")
        cpu, wall, most = (b / a for a, b in zip(found[False], found[True], strict=True))
        print(f"{'  ratio, wanted < 1.2':24}{cpu:12.3f}{wall:10.3f}{most:8.3f}")


if __name__ == "__main__":
    main()
