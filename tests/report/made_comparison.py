"""Comparisons of a cnn and a vit with made differences, for the tests of sentences."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from made_study import analysed, pairs

from vision_attn.report.comparison import Change, Comparison
from vision_attn.stats.paired import RATIO

T1 = 12.706204736432095
"""Student's t at 97.5 % for 1 degree of freedom."""

NAN = np.nan


def differences(*rows: tuple[int, float, float, float, float]) -> pd.DataFrame:
    """Differences as (size, mean, low, high, fitted), of three draws or of one."""
    names = ["size", "mean", "low", "high", "fitted"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(count=np.where(table["low"].isna(), 1, 3))


TABLES = {"points": "test_acc", "gap": "gap", "loss": "test_loss", "rise": "val_loss_rise"}
CHANGES = {"change": "test_acc", "ratio_change": RATIO, "rise_change": "val_loss_rise"}


def made(**parts: Any) -> Comparison:
    """A comparison of cnn and vit with some of its tables and changes replaced, and no losses."""
    comparison = analysed(pairs(20, [0.5], [0.4])).comparison
    assert comparison is not None
    tables = {m: comparison.table(m) for m in ("test_acc", "gap", RATIO)}
    tables |= {TABLES[k]: v for k, v in parts.items() if k in TABLES}
    tables |= {RATIO: parts["ratio"]} if "ratio" in parts else {}
    rows = pd.concat([t.assign(measure=m) for m, t in tables.items() if len(t)])
    changes = {CHANGES[k]: v for k, v in parts.items() if k in CHANGES}
    more = {k: parts[k] for k in ("log_rows", "multiplier") if k in parts}
    return replace(comparison, rows=rows, changes=changes, **more)


def numbers(text: str) -> list[str]:
    """Every number of a sentence that has a decimal."""
    return re.findall(r"[+-]?\d+\.\d+", text)


def change(*draws: float) -> Change:
    """Of the change in each of some draws."""
    if len(draws) < 2:
        return Change(NAN, NAN, NAN, len(draws))
    mean, half = float(np.mean(draws)), T1 * float(np.std(draws, ddof=1)) / 2**0.5
    return Change(mean, mean - half, mean + half, 2)


AHEAD = differences((20, 0.1, 0.05, 0.15, 1), (50, 0.2, 0.1, 0.3, 1), (1000, 0.3, 0.25, 0.35, 1))
BEHIND = differences((20, -0.1, -0.15, -0.05, 1))
AROUND = differences((20, 0.1, -0.01, 0.21, 1), (50, 0.0, 0.0, 0.0, 1))
WIDE = differences((20, 0.346, -0.466, 1.157, 1))
ALONE = differences((20, 0.1, NAN, NAN, 1), (50, -0.2, NAN, NAN, 1))
RISE = differences((20, 2.5, 2.0, 3.0, 1), (50, 1.5, 1.0, 2.0, 0))
NOTHING = AHEAD[:0]
