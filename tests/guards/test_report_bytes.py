"""Tables made again from the stored cells are the committed ones.

Results, summary and table are compared byte by byte, means of logs and of measures up to rounding:
pandas before 3 adds and reads fractions otherwise, so there only table.md is exact. Figures are
not compared: their look may change, and tests/report holds what they draw to the numbers.
"""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from vision_attn.report.write import report
from vision_attn.study.store import Store

RESULTS = Path(__file__).parents[2] / "docs" / "results"
EXACT = ["table.md"]
EXACT += ["results.csv", "summary.csv"] if int(pd.__version__.split(".")[0]) >= 3 else []
STUDIES = sorted(path.parent.name for path in RESULTS.glob("*/summary.csv"))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each stored study by itself, reported anew in a place of its own."""
    places = {}
    for name in STUDIES:
        stored, place = RESULTS / name, tmp_path_factory.mktemp("reports") / name
        if (stored / "cells").is_dir():
            shutil.copytree(stored / "cells", place / "cells")
            shutil.copy(stored / "study.yaml", place)
            if (stored / "tuning.csv").is_file():
                shutil.copy(stored / "tuning.csv", place)
            Store(place).write_results()
        else:
            place.mkdir()
            shutil.copy(stored / "results.csv", place)
        report(place)
        places[name] = place
    return places


def test_there_are_twelve_studies() -> None:
    assert STUDIES == [
        "cifar10_attention", "cifar10_attention_fitted", "cifar10_augmented", "cifar10_capacity",
        "cifar10_cpu", "cifar10_fitted", "cifar10_full", "cifar10_local", "cifar10_pixels",
        "cifar10_regularised", "cifar10_tuned", "digits",
    ]  # fmt: skip


@pytest.mark.parametrize("name", STUDIES)
def test_tables_stand(reports: dict[str, Path], name: str) -> None:
    tables = sorted(path.name for path in RESULTS.joinpath(name).glob("*.[cm][sd]*"))
    assert {"results.csv", "summary.csv", "table.md"} <= set(tables)
    for table in tables:
        made, stored = reports[name] / table, RESULTS / name / table
        if table in EXACT:
            assert made.read_bytes() == stored.read_bytes(), table
        else:
            pd.testing.assert_frame_equal(pd.read_csv(made), pd.read_csv(stored), rtol=1e-12)
