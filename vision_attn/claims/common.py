"""Shared by all claims: settings, tables of repeats with 95 % intervals, figures."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vision_attn.stats.intervals import interval_table

__all__ = [
    "COLOURS",
    "Claim",
    "Settings",
    "Summary",
    "error_bars",
    "figure",
    "one_thread",
    "span",
]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much work the claims are measured with; the defaults are the full `diagnose`.

    Args:
        widths: head widths K of independent queries and keys.
        draws: repeats of these.
        steps: updates of a training.
        seeds: repeats of a training.
        heads: head counts of the models, of width 64.
        alphas: sharpness of `from_conv`.
        convs: random convolutions.
        sides: sides of the token grids whose cost is measured.
        turns: repeats of these.
        matrix: largest side for which the whole matrix of weights is computed.
    """

    widths: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256)
    draws: int = 10
    steps: int = 300
    seeds: int = 3
    heads: tuple[int, ...] = (1, 2, 4, 8)
    alphas: tuple[float, ...] = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 46)
    convs: int = 5
    sides: tuple[int, ...] = (16, 24, 32, 48, 64)
    turns: int = 5
    matrix: int = 48


@dataclass(frozen=True)
class Summary:
    """A table of repeats.

    Args:
        title: what it shows.
        raw: one row a repeat.
        by: columns; rows that share them are repeats.
        values: columns that are averaged.
    """

    title: str
    raw: pd.DataFrame
    by: tuple[str, ...]
    values: tuple[str, ...]

    def table(self) -> pd.DataFrame:
        """`by`, count, and for each value its mean, low and high (95 %, Student's t)."""
        table = interval_table(self.raw, self.by, self.values, sort=False)
        return table.drop(columns=[f"{name}_std" for name in self.values])


@dataclass
class Claim:
    """The measurement of one claim.

    Args:
        name: of its files.
        question: what the claim is about.
        answers: sentences with the numbers.
        numbers: by name, each one number or (mean, low, high).
        tables: by name.
        figure: of the tables.
        seconds: duration of the measurement.
    """

    name: str
    question: str
    answers: list[str]
    numbers: dict[str, Any]
    tables: dict[str, Summary]
    figure: Figure
    seconds: float = field(default=math.nan)


def span(value: Sequence[float], digits: int = 2, factor: float = 1.0) -> str:
    """`1.00 [0.99, 1.01]`."""
    mean, low, high = (f"{factor * v:.{digits}f}" for v in value)
    return f"{mean} [{low}, {high}]"


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one CPU thread, so that numbers do not depend on how many there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def figure(panels: int) -> tuple[Figure, list[Axes]]:
    """A figure of some axes side by side."""
    fig = Figure(figsize=(1.2 + 4.2 * panels, 3.9), layout="constrained")
    axes = [fig.add_subplot(1, panels, i + 1) for i in range(panels)]
    for a in axes:
        a.grid(alpha=0.3)
        a.spines[["top", "right"]].set_visible(False)
    return fig, axes


def error_bars(
    axes: Axes, table: pd.DataFrame, x: str, y: str, colour: str, label: str, **how: Any
) -> None:
    """Means over x with intervals as bars; an end below zero on a log axis is drawn at the mean."""
    mean, low, high = (table[f"{y}_{part}"].to_numpy() for part in ("mean", "low", "high"))
    positive = axes.get_yscale() != "log"
    down = np.where((low > 0) | positive, mean - low, 0.0)
    bars = np.nan_to_num(np.stack((down, high - mean)).clip(0))
    axes.errorbar(table[x], mean, yerr=bars, color=colour, label=label, capsize=2, **how)
