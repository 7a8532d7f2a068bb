"""The difference of two models' accuracies, with intervals over draws, and over draws and images.

    python tests/benchmarks/images.py docs/results/cifar10_attention

The second interval resamples the test images too (`paired_bootstrap`), so that it speaks of other
images of the same kind, and not of these ones only.
"""

import argparse
from pathlib import Path

import numpy as np

from vision_attn.stats.intervals import interval
from vision_attn.stats.resample import paired_bootstrap
from vision_attn.study.results import read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--models", nargs=2, default=["pooled_none", "pooled_attention"])
    given = parser.parse_args()
    a, b = given.models
    correct = read(given.study).correct
    print(f"points of {a} above {b}")
    print("| images | draws | points | over draws | over draws and test images |")
    print("|---:|---:|---:|---:|---:|")
    for size in sorted({run[1] for run in correct}):
        runs = [run for run in correct if run[0] == a and run[1] == size]
        pairs = [(correct[run], correct[(b, *run[1:])]) for run in runs if (b, *run[1:]) in correct]
        if len(pairs) < 2:
            continue
        first, second = (np.stack(side) for side in zip(*pairs, strict=True))
        mean, low, high, *_ = interval(first.mean(1) - second.mean(1))
        _, least, most = paired_bootstrap(first, second)
        spans = (f"{100 * x:.1f} to {100 * y:.1f}" for x, y in ((low, high), (least, most)))
        print(f"| {size:,} | {len(pairs)} | {100 * mean:.1f} | {' | '.join(spans)} |")


if __name__ == "__main__":
    main()
