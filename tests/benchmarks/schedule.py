"""How long a study of many cells takes on many workers, from measured times of cells.

    python tests/benchmarks/schedule.py docs/results/cifar10_cpu [--cells 10000] [--start 20]

Cells are drawn with replacement from the seconds of results.csv and given, in their order, to the
worker that is free first, as the study does. A worker first takes `--start` seconds to import
torch. One worker in a hundred dies in its first cell, which is run again.
"""

import argparse
import heapq
from pathlib import Path

import numpy as np
import pandas as pd


def makespan(seconds: np.ndarray, workers: int, start: float, dead: int) -> float:
    """Seconds until the last cell ends; each of the first `dead` workers loses its first cell."""
    free = [start] * workers
    cells = list(seconds[:dead]) + list(seconds)
    for second in cells:
        heapq.heappush(free, heapq.heappop(free) + float(second))
    return max(free)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--start", type=float, default=20.0)
    given = parser.parse_args()
    measured = pd.read_csv(given.study / "results.csv")["seconds"].dropna().to_numpy()
    seconds = np.random.default_rng(0).choice(measured, given.cells)
    print(f"{given.cells:,} cells, {seconds.sum() / 3600:,.0f} worker-hours")
    print("| workers | hours | speed-up | share of the ideal |")
    print("|---:|---:|---:|---:|")
    for workers in (2, 16, 64, 256, 1024):
        hours = makespan(seconds, workers, given.start, workers // 100) / 3600
        gain = seconds.sum() / 3600 / hours
        print(f"| {workers:,} | {hours:.2f} | {gain:,.1f} | {gain / workers:.1%} |")


if __name__ == "__main__":
    main()
