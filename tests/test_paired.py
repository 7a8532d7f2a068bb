"""Intervals, summaries and paired differences, against numbers worked out by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch.testing import assert_close

from vision_attn.stats.paired import (
    MEASURES,
    complete,
    differences,
    error_ratio,
    interval,
    protocol_split,
    summarise,
)

T1, T2 = 12.706204736432095, 4.302652729696142
"""Student's t at 97.5 % for 1 and 2 degrees of freedom, from printed tables."""


def results(*rows: tuple[str, int, int, int, str, float, bool]) -> pd.DataFrame:
    """Rows of (model, size, draw, seed, status, test_acc, fitted); other measures follow."""
    columns = ["model", "size", "draw", "seed", "status", "test_acc", "fitted"]
    table = pd.DataFrame(rows, columns=columns)
    table["train_acc"] = table["test_acc"] + 0.25
    table["gap"] = 0.25
    table["test_loss"] = 1 - table["test_acc"]
    table["train_loss"] = 0.125 * table["test_loss"]
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
    assert_close(row["loss_gap_mean"], -0.875 * 0.5)
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
    assert_close(row, want | {"high": 0.2 + half, "fitted": 1.0})
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
    assert got.columns.tolist() == ["size", "count", "mean", "low", "high", "fitted"]
    assert got.empty
    assert error_ratio(table, "cnn", "vit").columns.tolist() == [
        "size", "count", "ratio", "low", "high",
    ]  # fmt: skip
    assert protocol_split(table, "cnn", "vit").empty


def test_pairs_share_the_seed_too() -> None:
    """Seed 1 of draw 0 has no partner, and would move the mean from 0.2 to 0.1."""
    table = results(
        ("cnn", 20, 0, 0, "ok", 0.9, True),
        ("cnn", 20, 0, 1, "ok", 0.7, True),
        ("vit", 20, 0, 0, "ok", 0.7, False),
        ("vit", 20, 0, 2, "ok", 0.2, True),
    )
    (row,) = differences(table, "cnn", "vit").to_dict("records")
    assert_close((row["mean"], row["fitted"]), (0.2, 0.5))


def test_a_protocol_and_a_control_stand_apart() -> None:
    old = results(("vit", 20, 0, 0, "ok", 0.4, True), ("cnn", 20, 0, 0, "ok", 0.5, True))
    new = pd.concat(
        [old, old.assign(protocol="epochs", test_acc=[0.1, 0.3]), old.assign(control="permuted")]
    )
    got = summarise(new)
    assert got[["model", "protocol", "control"]].to_numpy().tolist() == [
        [m, p, c]
        for m in ("cnn", "vit")
        for p, c in (("epochs", "none"), ("steps", "none"), ("steps", "permuted"))
    ]
    assert (got["count"] == 1).all()
    assert_close(differences(new, "cnn", "vit")["mean"].tolist(), [0.1])
    assert_close(differences(new, "cnn", "vit", protocol="epochs")["mean"].tolist(), [0.2])
    assert differences(new, "cnn", "vit", control="shuffled").empty


@pytest.mark.parametrize("held", [None, np.nan, ""])
def test_results_of_an_earlier_version_are_completed(held: Any) -> None:
    old = results(("vit", 20, 0, 0, "ok", 0.4, True), ("vit", 50, 0, 0, "ok", 0.4, True))
    got = complete(old if held is None else old.assign(protocol=[held, "epochs"], control=held))
    assert got["protocol"].tolist() == ["steps", "steps" if held is None else "epochs"]
    assert got["control"].tolist() == ["none", "none"]
    assert "protocol" not in old


def test_error_ratio_is_a_geometric_mean_of_pairs() -> None:
    table = results(
        *(("cnn", 20, d, 0, "ok", 1 - e, True) for d, e in enumerate((0.1, 0.2, 0.4))),
        *(("vit", 20, d, 0, "ok", 1 - e, True) for d, e in enumerate((0.2, 0.2, 0.4 * 2**0.5))),
    )
    (row,) = error_ratio(table, "cnn", "vit").to_dict("records")
    half = T2 * np.log(2) * 0.5 / 3**0.5  # of 1, 0 and 1/2 times log 2
    want = {"size": 20, "count": 3, "ratio": 2**0.5}
    want |= {"low": 2**0.5 / np.exp(half), "high": 2**0.5 * np.exp(half)}
    assert_close(row, want)
    (back,) = error_ratio(table, "vit", "cnn").to_dict("records")
    assert_close((back["ratio"], back["high"]), (2**-0.5, 1 / row["low"]))


def test_parallel_lines_have_one_ratio_while_points_shrink() -> None:
    error = {(m, n): k * n**-0.5 for m, k in (("cnn", 3.0), ("vit", 4.5)) for n in (50, 100, 400)}
    table = results(
        *((m, n, d, 0, "ok", 1 - e, True) for (m, n), e in error.items() for d in (0, 1))
    )
    ratio = error_ratio(table, "cnn", "vit")
    for column in ("ratio", "low", "high"):
        assert_close(ratio[column].tolist(), [1.5] * 3)
    points = differences(table, "cnn", "vit")["mean"].tolist()
    assert_close(points, [1.5 * n**-0.5 for n in (50, 100, 400)])


def test_a_run_without_errors_has_no_ratio() -> None:
    table = results(
        *(("cnn", 20, d, 0, "ok", acc, True) for d, acc in enumerate((0.9, 1.0))),
        *(("vit", 20, d, 0, "ok", acc, True) for d, acc in enumerate((0.8, 0.8))),
    )
    (row,) = error_ratio(table, "cnn", "vit").to_dict("records")
    assert row["count"] == 2
    assert np.isnan([row["ratio"], row["low"], row["high"]]).all()


def test_a_seed_without_errors_leaves_its_draw_without_a_ratio() -> None:
    """The mean of a draw whose other seed has a ratio is no mean of what remains."""
    rows = [
        (m, 20, draw, seed, "ok", 1 - error, True)
        for (m, draw), errors in {
            ("cnn", 0): (0.0, 0.1), ("cnn", 1): (0.1, 0.2),
            ("vit", 0): (0.1, 0.3), ("vit", 1): (0.2, 0.4),
        }.items()
        for seed, error in enumerate(errors)
    ]  # fmt: skip
    (row,) = error_ratio(results(*rows), "cnn", "vit").to_dict("records")
    assert row["count"] == 2
    assert np.isnan([row["ratio"], row["low"], row["high"]]).all()


def test_protocol_split_adds_up() -> None:
    """Draw 2 lacks a cell. Totals 0.4 and 0.2, under equal updates 0.1 and 0.1."""
    accuracy = {
        ("cnn", "steps"): (0.9, 0.8, 0.9), ("vit", "steps"): (0.8, 0.7, 0.1),
        ("cnn", "epochs"): (0.7, 0.6, 0.9), ("vit", "epochs"): (0.3, 0.4),
    }  # fmt: skip
    table = pd.concat(
        results(*((m, 20, d, 0, "ok", a, True) for d, a in enumerate(draws))).assign(protocol=p)
        for (m, p), draws in accuracy.items()
    )
    (row,) = protocol_split(table, "cnn", "vit").to_dict("records")
    half = T1 * 0.1
    want: dict[str, float] = {"size": 20, "count": 2}
    want |= {"total": 0.3, "total_low": 0.3 - half, "total_high": 0.3 + half}
    want |= {"undertraining": 0.2, "undertraining_low": 0.2 - half}
    want |= {"undertraining_high": 0.2 + half}
    want |= dict.fromkeys(("generalisation", "generalisation_low", "generalisation_high"), 0.1)
    assert_close(row, want)
