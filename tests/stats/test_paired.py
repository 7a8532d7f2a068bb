"""Paired differences, ratios and their changes, against numbers worked out by hand."""

from typing import Any

import numpy as np
import pandas as pd
from torch.testing import assert_close

from vision_attn.stats.paired import (
    RATIO,
    changes,
    differences,
    online_gaps,
    paired,
    protocol_split,
)

T1, T2 = 12.706204736432095, 4.302652729696142
"""Student's t at 97.5 % for 1 and 2 degrees of freedom, from printed tables."""


def runs(*rows: tuple[str, int, int, int, float, bool]) -> pd.DataFrame:
    """Rows of (model, size, draw, seed, test_acc, fitted)."""
    columns = ["model", "size", "draw", "seed", "test_acc", "fitted"]
    return pd.DataFrame(rows, columns=columns)


def apart(
    table: pd.DataFrame, model: str, reference: str, measure: str = "test_acc"
) -> pd.DataFrame:
    """`model - reference`, a row a size; of `RATIO` the error of the model over the reference's."""
    got = differences(paired(table, reference, [measure]))
    return got[got["model"] == model].drop(columns=["model", "measure"]).reset_index(drop=True)


def error_ratio(table: pd.DataFrame, reference: str, model: str) -> pd.DataFrame:
    return apart(table, model, reference, RATIO)


def test_differences_are_paired_by_draw() -> None:
    table = runs(
        ("cnn", 20, 0, 0, 0.9, True),
        ("cnn", 20, 1, 0, 0.5, True),
        ("cnn", 20, 2, 0, 0.7, True),
        ("vit", 20, 2, 0, 0.4, True),
        ("vit", 20, 0, 0, 0.7, True),
        ("vit", 20, 1, 0, 0.4, True),
    )
    (row,) = apart(table, "cnn", "vit").to_dict("records")
    half = T2 * (0.01 / 3) ** 0.5  # of 0.2, 0.1 and 0.3
    want: dict[str, Any] = {"size": 20, "count": 3, "mean": 0.2, "low": 0.2 - half}
    assert_close(row, want | {"high": 0.2 + half, "fitted": 1.0})
    (back,) = apart(table, "vit", "cnn").to_dict("records")
    assert_close(back["mean"], -0.2)


def test_a_pair_needs_both() -> None:
    table = runs(
        ("cnn", 20, 0, 0, 0.9, True),
        ("cnn", 20, 1, 0, 0.8, True),
        ("vit", 20, 1, 0, 0.5, True),
        ("cnn", 50, 0, 0, 0.9, True),
        ("vit", 99, 0, 0, 0.9, True),
        ("vit", 50, 1, 0, 0.9, True),
    )
    got = apart(table, "cnn", "vit")
    assert got["size"].tolist() == [20]
    assert got["count"].tolist() == [1]
    assert_close(got["mean"].tolist(), [0.3])
    assert got[["low", "high"]].isna().to_numpy().all()


def test_differences_of_models_that_never_met() -> None:
    table = runs(("cnn", 20, 0, 0, 0.9, True))
    got = apart(table, "cnn", "vit")
    assert got.columns.tolist() == ["size", "count", "mean", "low", "high", "fitted"]
    assert got.empty
    assert error_ratio(table, "cnn", "vit").empty
    split = protocol_split(table, table, "cnn", "vit")
    assert split.columns[:4].tolist() == ["size", "count", "total", "total_low"]
    assert split.empty
    assert changes(paired(table, "vit")).empty
    assert apart(table[:0], "cnn", "vit").empty


def test_pairs_share_the_seed_too() -> None:
    """Seed 1 of draw 0 has no partner, and would move the mean from 0.2 to 0.1."""
    table = runs(
        ("cnn", 20, 0, 0, 0.9, True),
        ("cnn", 20, 0, 1, 0.7, True),
        ("vit", 20, 0, 0, 0.7, False),
        ("vit", 20, 0, 2, 0.2, True),
    )
    (row,) = apart(table, "cnn", "vit").to_dict("records")
    assert_close((row["mean"], row["fitted"]), (0.2, 0.5))


def test_error_ratio_is_a_geometric_mean_of_pairs() -> None:
    table = runs(
        *(("cnn", 20, d, 0, 1 - e, True) for d, e in enumerate((0.1, 0.2, 0.4))),
        *(("vit", 20, d, 0, 1 - e, True) for d, e in enumerate((0.2, 0.2, 0.4 * 2**0.5))),
    )
    (row,) = error_ratio(table, "cnn", "vit").to_dict("records")
    half = T2 * np.log(2) * 0.5 / 3**0.5  # of 1, 0 and 1/2 times log 2
    want: dict[str, Any] = {"size": 20, "count": 3, "mean": 2**0.5, "fitted": 1.0}
    want |= {"low": 2**0.5 / np.exp(half), "high": 2**0.5 * np.exp(half)}
    assert_close(row, want)
    (back,) = error_ratio(table, "vit", "cnn").to_dict("records")
    assert_close((back["mean"], back["high"]), (2**-0.5, 1 / row["low"]))


def test_parallel_lines_have_one_ratio_while_points_shrink() -> None:
    error = {(m, n): k * n**-0.5 for m, k in (("cnn", 3.0), ("vit", 4.5)) for n in (50, 100, 400)}
    table = runs(*((m, n, d, 0, 1 - e, True) for (m, n), e in error.items() for d in (0, 1)))
    ratio = error_ratio(table, "cnn", "vit")
    for column in ("mean", "low", "high"):
        assert_close(ratio[column].tolist(), [1.5] * 3)
    points = apart(table, "cnn", "vit")["mean"].tolist()
    assert_close(points, [1.5 * n**-0.5 for n in (50, 100, 400)])


def test_a_run_without_errors_has_no_ratio() -> None:
    table = runs(
        *(("cnn", 20, d, 0, acc, True) for d, acc in enumerate((0.9, 1.0))),
        *(("vit", 20, d, 0, acc, True) for d, acc in enumerate((0.8, 0.8))),
    )
    (row,) = error_ratio(table, "cnn", "vit").to_dict("records")
    assert row["count"] == 2
    assert np.isnan([row["mean"], row["low"], row["high"]]).all()


def test_a_seed_without_errors_leaves_its_draw_without_a_ratio() -> None:
    """The mean of a draw whose other seed has a ratio is no mean of what remains."""
    rows = [
        (m, 20, draw, seed, 1 - error, True)
        for (m, draw), errors in {
            ("cnn", 0): (0.0, 0.1), ("cnn", 1): (0.1, 0.2),
            ("vit", 0): (0.1, 0.3), ("vit", 1): (0.2, 0.4),
        }.items()
        for seed, error in enumerate(errors)
    ]  # fmt: skip
    (row,) = error_ratio(runs(*rows), "cnn", "vit").to_dict("records")
    assert row["count"] == 2
    assert np.isnan([row["mean"], row["low"], row["high"]]).all()


def test_protocol_split_adds_up() -> None:
    """Of draw 2 a run is missing. Totals 0.4 and 0.2, under equal updates 0.1 and 0.1."""
    accuracy = {
        ("cnn", "steps"): (0.9, 0.8, 0.9), ("vit", "steps"): (0.8, 0.7, 0.1),
        ("cnn", "epochs"): (0.7, 0.6, 0.9), ("vit", "epochs"): (0.3, 0.4),
    }  # fmt: skip
    epochs, steps = (
        runs(*(
            (m, 20, d, 0, a, True)
            for (m, p), draws in accuracy.items()
            if p == protocol
            for d, a in enumerate(draws)
        ))
        for protocol in ("epochs", "steps")
    )  # fmt: skip
    (row,) = protocol_split(epochs, steps, "cnn", "vit").to_dict("records")
    half = T1 * 0.1
    want: dict[str, float] = {"size": 20, "count": 2}
    want |= {"total": 0.3, "total_low": 0.3 - half, "total_high": 0.3 + half}
    want |= {"undertraining": 0.2, "undertraining_low": 0.2 - half}
    want |= {"undertraining_high": 0.2 + half}
    want |= dict.fromkeys(("generalisation", "generalisation_low", "generalisation_high"), 0.1)
    assert_close(row, want)


def test_changes_of_a_difference_between_two_sizes() -> None:
    """Seeds are averaged; draw 1 has a run without errors at the larger size, draw 2 no pair."""
    error = {
        ("cnn", 20): {(0, 0): 0.4, (0, 1): 0.2, (1, 0): 0.4, (2, 0): 0.4},
        ("vit", 20): {(0, 0): 0.5, (0, 1): 0.4, (1, 0): 0.5, (2, 0): 0.5},
        ("cnn", 50): {(0, 0): 0.1, (0, 1): 0.2, (1, 0): 0.0, (2, 0): 0.2},
        ("vit", 50): {(0, 0): 0.3, (0, 1): 0.2, (1, 0): 0.3},
        ("cnn", 70): {(0, 0): 0.9},
    }
    table = runs(*(
        (m, n, draw, seed, 1 - e, True)
        for (m, n), draws in error.items()
        for (draw, seed), e in draws.items()
    ))  # fmt: skip
    got = changes(paired(table, "vit", ["test_acc", RATIO])).set_index("measure")
    assert got["count"].tolist() == [2, 1]
    half = T1 * 0.125  # of -0.05, which is the mean of 0.1 and -0.2, and 0.2
    ends = got.loc["test_acc", ["mean", "low", "high"]].tolist()
    assert_close(ends, [0.075, 0.075 - half, 0.075 + half])
    want = (np.log(3 / 1.25) + np.log(1 / 2)) / 2
    assert_close(-got.loc[RATIO, "mean"], want)
    back = changes(paired(table, "cnn"))
    assert_close(back["mean"].tolist(), [-0.075])


def test_the_online_run_of_several_is_of_the_most_images() -> None:
    runs = pd.DataFrame({
        "model": "a", "protocol": "steps", "control": "none", "seed": 0, "steps": 7,
        "status": ["ok"] * 5 + ["failed"],
        "draw": [0, 0, 0, 1, 1, 1],
        "size": [5, 70, 90, 5, 6, 70],
        "epochs": [3.0, 1.0, 0.5, 3.0, 2.0, None],
        "test_acc": [0.25, 0.5, 0.75, 0.25, 0.375, None],
    })  # fmt: skip
    told = online_gaps(runs)
    assert told.loc[0, ["online_size", "online_acc", "online_gap"]].tolist() == [90, 0.75, 0.5]
    assert told.loc[1:, "online_gap"].isna().all()  # the online run of the second draw failed
    pd.testing.assert_frame_equal(told[[*runs]], runs)
    assert online_gaps(runs[runs["draw"] == 1]).equals(runs[runs["draw"] == 1])
