"""Overfitting in both senses, from the stored runs of a study with equal updates.

    python tests/benchmarks/losses.py docs/results/cifar10_cpu
    python tests/benchmarks/losses.py docs/results/cifar10_fitted

By accuracy: points that the second model is behind the first, and the ratio of their errors. By
loss: its test loss above that of the first, test minus train loss likewise, and how far the
validation loss of each has risen from its lowest row of the log. Mean and 95 % t interval over
draws, paired; then, where there are two sizes, the change from one to another, over the draws of
both: a difference, or a factor for the ratio.
"""

import argparse
import json
import math
from pathlib import Path

import pandas as pd

from vision_attn.stats.intervals import interval

COLUMNS = ("points", "error ratio", "test loss", "loss gap", "rise", "rise of first", "of second")


def runs_of(study: Path, models: tuple[str, str]) -> pd.DataFrame:
    """One row a run of two models, with the rise of its validation loss."""
    rows = []
    for file in sorted(study.glob("cells/*/result.json")):
        run = json.loads(file.read_text(encoding="utf-8"))
        control = run["config"].get("control", "none")
        label = file.parent.name.split("-n")[0]
        if label not in models or control != "none" or "steps" not in run.get("protocols", "steps"):
            continue
        losses = pd.read_csv(file.with_name("metrics.csv"))["val_loss"].dropna()
        run |= {"model": label, "rise": losses.iloc[-1] - losses.min()}
        rows.append(run)
    runs = pd.DataFrame(rows)
    runs["error"] = 1 - runs["test_acc"]
    runs["loss_gap"] = runs["test_loss"] - runs["train_loss"]
    most = runs.groupby("size")["steps"].transform("max")  # others are of equal passes
    return runs[runs["steps"] == most].set_index(["size", "draw", "seed", "model"])


def pairs_of(runs: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """One row a (size, draw): the second model against the first."""
    a, b = (runs.xs(model, level="model") for model in (first, second))
    table = {
        "points": 100 * (a["test_acc"] - b["test_acc"]),
        "error ratio": (b["error"] / a["error"]).map(math.log),
        "test loss": b["test_loss"] - a["test_loss"],
        "loss gap": b["loss_gap"] - a["loss_gap"],
        "rise": b["rise"] - a["rise"],
        "rise of first": a["rise"],
        "of second": b["rise"],
    }
    return pd.DataFrame(table).dropna().groupby(["size", "draw"]).mean()


def shown(values: "pd.Series[float]", column: str) -> str:
    """`2.29 (2.10 to 2.48)`; the ratio is geometric."""
    ends = interval(values)[:3]
    mean, low, high = (math.exp(v) for v in ends) if column == "error ratio" else ends
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--models", nargs=2, default=("cnn", "vit"), metavar=("FIRST", "SECOND"))
    parser.add_argument("--change", nargs=2, type=int, metavar=("FROM", "TO"))
    args = parser.parse_args()
    pairs = pairs_of(runs_of(args.study, tuple(args.models)), *args.models)
    sizes = pairs.index.unique("size").sort_values()
    print("images |", " | ".join(COLUMNS), "\n---:", "| ---:" * len(COLUMNS))
    for size in sizes:
        rows = pairs.loc[size]
        print(f"{size:,} |", " | ".join(shown(rows[column], column) for column in COLUMNS))
    small, large = args.change or (sizes[0], sizes[-1])
    if small == large:
        return
    change = (pairs.loc[large] - pairs.loc[small]).dropna()  # draws that both have
    print(f"{small:,} to {large:,} |", " | ".join(shown(change[c], c) for c in COLUMNS))


if __name__ == "__main__":
    main()
