"""Intervals, summaries and paired differences, against numbers worked out by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch.testing import assert_close

from vision_attn.compare.curves import MEASURES, differences, interval, summarise

T1, T2 = 12.706204736432095, 4.302652729696142
"""Student's t at 97.5 % for 1 and 2 degrees of freedom, from printed tables."""


def results(*rows: tuple[str, int, int, int, str, float, bool]) -> pd.DataFrame:
    """Rows of (model, size, draw, seed, status, test_acc, fitted); other measures follow."""
    columns = ["model", "size", "draw", "seed", "status", "test_acc", "fitted"]
    table = pd.DataFrame(rows, columns=columns)
    table["train_acc"] = table["test_acc"] + 0.25
    table["gap"] = 0.25
    table["test_loss"] = 1 - table["test_acc"]
    return table.assign(params=101, flops=1009)


@pytest.mark.parametrize(
    ("values", "mean", "std", "half"),
    [
        ([0.4, 0.6], 0.5, 0.02**0.5, T1 * 0.1),
        ([0.4, 0.5, 0.9], 0.6, 0.07**0.5, T2 * (0.07 / 3) ** 0.5),
        ([0.25, 0.25, 0.25], 0.25, 0.0, 0.0),
    ],
)
def test_interval(values: list[float], mean: float, std: float, half: float) -> None:
    assert_close(interval(values), (mean, mean - half, mean + half, std))


def test_interval_at_another_level() -> None:
    mean, low, high, _ = interval([1.0, 2.0, 3.0], level=0.9)
    assert_close((mean, low, high), (2.0, 2 - 2.919985580 / 3**0.5, 2 + 2.919985580 / 3**0.5))


def test_one_value_has_no_spread() -> None:
    mean, *rest = interval([0.5])
    assert mean == 0.5
    assert np.isnan(rest).all()


def test_seeds_of_a_draw_are_averaged_first() -> None:
    table = results(
        ("vit", 20, 0, 0, "ok", 0.3, True),
        ("vit", 20, 0, 1, "ok", 0.5, True),
        ("vit", 20, 1, 0, "ok", 0.6, False),
        ("vit", 20, 1, 1, "ok", 0.6, True),
    )
    (row,) = summarise(table).to_dict("records")
    assert row["count"] == 2
    assert row["fitted"] == 0.75
    half = T1 * 0.1
    want = {"mean": 0.5, "low": 0.5 - half, "high": 0.5 + half, "std": 0.02**0.5}
    assert_close({k: row[f"test_acc_{k}"] for k in want}, want)
    want |= {"mean": 0.75, "low": 0.75 - half, "high": 0.75 + half}
    assert_close({k: row[f"train_acc_{k}"] for k in want}, want)
    assert_close(row["test_loss_mean"], 0.5)
    assert_close((row["gap_mean"], row["gap_std"]), (0.25, 0.0))
    assert (row["params"], row["flops"]) == (101, 1009)


def test_failed_cells_do_not_count() -> None:
    table = results(
        ("cnn", 20, 0, 0, "ok", 0.7, True),
        ("cnn", 20, 1, 0, "failed", 0.1, False),
        ("cnn", 50, 0, 0, "failed", 0.1, False),
        ("vit", 20, 0, 0, "ok", 0.4, True),
    )
    got = summarise(table)
    assert got[["model", "size", "count"]].to_numpy().tolist() == [["cnn", 20, 1], ["vit", 20, 1]]
    assert_close(got["test_acc_mean"].tolist(), [0.7, 0.4])
    assert got["fitted"].tolist() == [1.0, 1.0]
    spread = [f"{m}_{k}" for m in MEASURES for k in ("low", "high", "std")]
    assert got[spread].isna().to_numpy().all()


def test_rows_come_by_model_and_rising_size() -> None:
    table = results(*((m, n, 0, 0, "ok", 0.5, True) for n in (100, 9, 20) for m in ("vit", "cnn")))
    got = summarise(table)[["model", "size"]].to_numpy().tolist()
    assert got == [[m, n] for m in ("cnn", "vit") for n in (9, 20, 100)]


def test_differences_are_paired_by_draw() -> None:
    table = results(
        ("cnn", 20, 0, 0, "ok", 0.9, True),
        ("cnn", 20, 1, 0, "ok", 0.5, True),
        ("cnn", 20, 2, 0, "ok", 0.7, True),
        ("vit", 20, 2, 0, "ok", 0.4, True),
        ("vit", 20, 0, 0, "ok", 0.7, True),
        ("vit", 20, 1, 0, "ok", 0.4, True),
    )
    (row,) = differences(table, "cnn", "vit", "test_acc").to_dict("records")
    half = T2 * (0.01 / 3) ** 0.5  # of 0.2, 0.1 and 0.3
    want: dict[str, Any] = {"size": 20, "count": 3, "mean": 0.2, "low": 0.2 - half}
    assert_close(row, want | {"high": 0.2 + half})
    (back,) = differences(table, "vit", "cnn", "test_acc").to_dict("records")
    assert_close(back["mean"], -0.2)


def test_a_pair_needs_both() -> None:
    table = results(
        ("cnn", 20, 0, 0, "ok", 0.9, True),
        ("vit", 20, 0, 0, "failed", 0.1, True),
        ("cnn", 20, 1, 0, "ok", 0.8, True),
        ("vit", 20, 1, 0, "ok", 0.5, True),
        ("cnn", 50, 0, 0, "ok", 0.9, True),
        ("vit", 99, 0, 0, "ok", 0.9, True),
        ("vit", 50, 1, 0, "ok", 0.9, True),
    )
    got = differences(table, "cnn", "vit", "test_acc")
    assert got["size"].tolist() == [20]
    assert got["count"].tolist() == [1]
    assert_close(got["mean"].tolist(), [0.3])
    assert got[["low", "high"]].isna().to_numpy().all()


def test_differences_of_models_that_never_met() -> None:
    table = results(("cnn", 20, 0, 0, "ok", 0.9, True))
    got = differences(table, "cnn", "vit", "test_acc")
    assert got.columns.tolist() == ["size", "count", "mean", "low", "high"]
    assert got.empty
