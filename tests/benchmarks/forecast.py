"""Forecasts of larger sizes from the smaller ones, before or beside what was measured there.

    python tests/benchmarks/forecast.py docs/results/relational/p* --upto 1600 --at 6400 96000

For each share p and draw the test error of each model is a power of the number of images: a
straight line through the sizes up to `--upto` on log-log axes. Prints the forecast of the attention
model minus each other one at larger sizes, in points with 95 % t intervals over draws, and beside
it what was measured, where it was.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from vision_attn.report.phase import Phase, phase
from vision_attn.stats.intervals import interval


def errors(runs: pd.DataFrame, model: str, upto: int, at: list[int]) -> pd.DataFrame:
    """Forecast of the error of each draw at some sizes: a row a draw, a column a size."""
    rows = {}
    for draw, group in runs[(runs["model"] == model) & (runs["size"] <= upto)].groupby("draw"):
        logs = np.log(group["size"].to_numpy(float)), np.log(1 - group["test_acc"].to_numpy(float))
        slope, start = np.polyfit(*logs, 1)
        rows[draw] = {n: np.exp(start + slope * np.log(n)) for n in at}
    return pd.DataFrame(rows).T


def points(values: pd.Series) -> str:
    mean, low, high, _ = (100 * v for v in interval(values.dropna()))
    return f"{mean:.1f} ({low:.1f} to {high:.1f})"


def table(found: Phase, upto: int, at: list[int]) -> None:
    print("| p | images | attention minus | forecast, points | measured |")
    print("|---:|---:|:---|---:|---:|")
    for p, analysis in found.studies.items():
        runs = analysis.stored.results
        runs = runs[runs["status"] == "ok"]
        told = {m: errors(runs, m, upto, at) for m in (found.model, *found.opponents)}
        for n in at:
            real = runs[runs["size"] == n].pivot_table(
                index="draw", columns="model", values="test_acc"
            )
            for opponent in found.opponents:
                forecast = points(told[opponent][n] - told[found.model][n])
                both = {found.model, opponent} <= set(real)
                got = points(real[found.model] - real[opponent]) if both else ""
                print(f"| {p:g} | {n:,} | {opponent} | {forecast} | {got} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", type=Path, nargs="+")
    parser.add_argument("--upto", type=int, default=1600)
    parser.add_argument("--at", type=int, nargs="+", default=[6400, 96000])
    given = parser.parse_args()
    table(phase(given.studies), given.upto, given.at)


if __name__ == "__main__":
    main()
