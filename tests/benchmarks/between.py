"""What changes from some runs to others of the same draws: more updates, or another control.

    python tests/benchmarks/between.py docs/results/cifar10_cpu docs/results/cifar10_fitted
    python tests/benchmarks/between.py docs/results/cifar10_local docs/results/cifar10_local \
        --controls none permuted

Of each model, and of the first minus the second: the runs of the second directory minus those of
the first, paired by draw, mean with 95 % t interval; points of test accuracy, nats of test loss.
With `--change FROM TO` also that at a size minus that at another.
"""

import argparse
from pathlib import Path

import pandas as pd

from vision_attn.stats.intervals import interval
from vision_attn.study.results import read_results, select


def table(study: Path, control: str, measure: str) -> pd.DataFrame:
    """A column a model and a row a (size, draw), of the runs with equal updates."""
    runs = select(read_results(study), "steps", control)
    return runs.pivot_table(index=["size", "draw"], columns="model", values=measure)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("studies", type=Path, nargs=2)
    parser.add_argument("--controls", nargs=2, default=("none", "none"))
    parser.add_argument("--models", nargs="+", default=("cnn", "vit"))
    parser.add_argument("--change", nargs=2, type=int, default=(), metavar=("FROM", "TO"))
    args = parser.parse_args()
    print("| images | of | points | test loss |\n| ---: | --- | ---: | ---: |")
    cells: dict[tuple[str, str], list[str]] = {}
    for measure, scale, form in (("test_acc", 100, ".1f"), ("test_loss", 1, ".2f")):
        before, after = (
            table(study, control, measure)[list(args.models)]
            for study, control in zip(args.studies, args.controls, strict=True)
        )
        moved = scale * (after - before)
        first, second = args.models[:2]
        moved[f"{first} - {second}"] = moved[first] - moved[second]
        for name in moved:
            by_size = moved[name].dropna().unstack("size")
            parts = {f"{size:,}": by_size[size] for size in by_size}
            if args.change:
                small, large = args.change
                parts[f"{small:,} to {large:,}"] = by_size[large] - by_size[small]
            for size, values in parts.items():
                mean, low, high, _ = interval(values.dropna())
                text = f"{mean:{form}} ({low:{form}} to {high:{form}})"
                cells.setdefault((size, str(name)), []).append(text)
    order = list(dict.fromkeys(size for size, _ in cells))
    for (size, name), texts in sorted(cells.items(), key=lambda c: (order.index(c[0][0]), c[0][1])):
        print(f"| {size} | {name} | {' | '.join(texts)} |")


if __name__ == "__main__":
    main()
