"""What later studies store beside: early-stopped weights and test logits; others are as before."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import analysed, pairs, table
from test_write import cell

from vision_attn.report.analysis import Analysis, analyse
from vision_attn.report.comparison import ON_IMAGES
from vision_attn.report.tables import in_short, page_blocks, paired
from vision_attn.stats.resample import paired_bootstrap
from vision_attn.study.result import RUN
from vision_attn.study.results import StoredStudy, read

T1 = 12.706204736432095
"""Student's t at 97.5 % for 1 degree of freedom."""

ROWS = [*pairs(20, [0.5, 0.6], [0.4, 0.5]), *pairs(50, [0.7, 0.8], [0.6, 0.6])]


def stopped() -> Analysis:
    """The vit's best weights are better by 2 and 4 points, the CNN's are its last ones."""
    results = table(ROWS)
    better = np.where(results["model"] == "vit", 0.02 + results["draw"] / 50, 0.0)
    results["best_test_acc"] = results["test_acc"] + better
    results["best_test_loss"] = results["test_loss"] - 10 * better
    rises = results[list(RUN)].assign(rows=10, val_loss_rise=20 * better)
    return analyse(StoredStudy(results, rises=rises))


def test_early_stopped_weights_stand_beside_the_last_ones() -> None:
    (block,) = (b for b in page_blocks(stopped()) if b.title.startswith("Early-stopped"))
    cnn, vit = block.rows[0], block.rows[2]
    assert vit[:3] == ["vit", "20", "2"]
    half = T1 * 1.0  # of 2 and 4 points: their deviation over the root of 2
    assert vit[5] == f"3.0 ({3 - half:.1f} to {3 + half:.1f})"
    assert vit[8] == f"-0.30 ({-0.3 - half / 10:.2f} to {-0.3 + half / 10:.2f})"
    assert vit[9] == f"0.60 ({0.6 - half / 5:.2f} to {0.6 + half / 5:.2f})"
    assert (cnn[5], cnn[8]) == ("0.0 (0.0 to 0.0)", "0.00 (0.00 to 0.00)")
    assert block.header[9] == "rise of validation loss from its minimum"


def test_early_stopped_models_are_compared_too() -> None:
    analysis = stopped()
    pairs_ = analysis.pairs[analysis.pairs["size"] == 20].set_index("measure")
    assert pairs_.loc["test_acc", "value"] == pytest.approx(-0.1)
    assert pairs_.loc["best_test_acc", "value"] == pytest.approx(-0.07)
    assert pairs_.loc["best_test_loss", "value"] == pytest.approx(-0.3)
    assert analysis.stopped["test_acc_gain_mean"].tolist() == pytest.approx([0, 0, 0.03, 0.03])


def test_a_study_without_them_has_no_trace_of_them() -> None:
    analysis = analysed(ROWS)
    assert analysis.stopped.empty
    assert not [m for m in analysis.pairs["measure"] if "best" in m or m == ON_IMAGES]
    assert not [b for b in page_blocks(analysis) if b.title.startswith("Early-stopped")]
    empty = analyse(StoredStudy(table(ROWS).assign(best_test_acc=np.nan, best_test_loss=np.nan)))
    assert empty.stopped.empty
    pd.testing.assert_frame_equal(empty.pairs, analysis.pairs)


def right(rows: list[dict[str, Any]], images: int = 40) -> dict[tuple[Any, ...], Any]:
    """Answers to as many images as the accuracy of each run says, the first ones."""
    return {
        tuple(r[name] for name in RUN): np.arange(images) < round(images * r["test_acc"])
        for r in rows
    }


def test_intervals_for_other_images_where_every_answer_is_stored() -> None:
    correct = right(ROWS)
    del correct["vit", 50, "steps", "none", 1, 0]
    analysis = analyse(StoredStudy(table(ROWS), correct=correct))
    comparison = analysis.comparison
    assert comparison is not None
    (row,) = comparison.table(ON_IMAGES).to_dict("records")
    answers = [
        np.stack([correct[m, 20, "steps", "none", draw, 0] for draw in (0, 1)])
        for m in ("cnn", "vit")
    ]
    want = paired_bootstrap(*answers)
    assert (row["size"], row["mean"]) == (20, pytest.approx(0.1))
    assert (row["mean"], row["low"], row["high"]) == want
    block = paired(comparison)
    place = list(block.header).index("the same, for other test images too")
    assert block.rows[0][place] == f"10.0 ({100 * want[1]:.1f} to {100 * want[2]:.1f})"
    assert block.rows[1][place] == ""
    assert "the same, for other test images too" in [row[0] for row in in_short(comparison).rows]
    csv = analysis.pairs[analysis.pairs["measure"] == ON_IMAGES]
    assert csv["value"].tolist() == pytest.approx([-0.1])
    assert csv["low"].tolist() == pytest.approx([-want[2]])


def test_answers_are_read_beside_the_cells(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for draw in range(3):
        cell(tmp_path, "step,val_loss\n4,2.0\n", draw=draw, protocols=["steps", "epochs"])
    cells = sorted((tmp_path / "cells").iterdir())
    right = np.array([True, False, True])
    np.savez(cells[0] / "test.npz", correct=right)
    np.savez(cells[1] / "test.npz", correct=right.astype(float))
    (cells[2] / "test.npz").write_text("damaged")
    correct = read(tmp_path).correct
    assert [run[2] for run in correct] == ["steps", "epochs"]
    assert [answers.tolist() for answers in correct.values()] == [[True, False, True]] * 2
    assert "correct is float64 (3,), wanted a list of bool" in caplog.text
    assert caplog.text.count("test.npz cannot be read") == 2
