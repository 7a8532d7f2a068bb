"""Results completed, picked and summarised, against numbers worked out by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch.testing import assert_close

from vision_attn.study.runs import MEASURES, complete, select, summarise

T1 = 12.706204736432095
"""Student's t at 97.5 % for 1 degree of freedom, from printed tables."""


def results(*rows: tuple[str, int, int, int, str, float, bool]) -> pd.DataFrame:
    """Rows of (model, size, draw, seed, status, test_acc, fitted); other measures follow."""
    columns = ["model", "size", "draw", "seed", "status", "test_acc", "fitted"]
    table = pd.DataFrame(rows, columns=columns)
    table["train_acc"] = table["test_acc"] + 0.25
    table["gap"] = 0.25
    table["test_loss"] = 1 - table["test_acc"]
    table["train_loss"] = 0.125 * table["test_loss"]
    return table.assign(params=101, flops=1009, protocol="steps", control="none")


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
    assert select(new, "epochs", "none")["test_acc"].tolist() == [0.1, 0.3]
    assert select(new.assign(status="failed"), "epochs", "none").empty
    assert select(new, "steps", "shuffled").empty


@pytest.mark.parametrize("held", [None, np.nan, ""])
def test_results_of_an_earlier_version_are_completed(held: Any) -> None:
    old = results(("vit", 20, 0, 0, "ok", 0.4, True), ("vit", 50, 0, 0, "ok", 0.4, True))
    old = old.drop(columns=["protocol", "control"])
    got = complete(old if held is None else old.assign(protocol=[held, "epochs"], control=held))
    assert got["protocol"].tolist() == ["steps", "steps" if held is None else "epochs"]
    assert got["control"].tolist() == ["none", "none"]
    assert "protocol" not in old
