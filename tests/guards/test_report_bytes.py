"""Tables and figures made again from the stored cells are the committed ones.

Results, summary and table are compared byte by byte, means of logs and of measures up to rounding:
pandas before 3 adds and reads fractions otherwise, so there only table.md is exact. Fits end a few
units in the last place apart on another CPU, so in figures fractions may differ by 0.001 of a
point, and ids, which are hashes of such fractions, by all. Another matplotlib draws letters
otherwise, so there only the names of figures are compared.
"""

import re
import shutil
from pathlib import Path

import matplotlib
import pandas as pd
import pytest

from vision_attn.report.write import report
from vision_attn.study.store import Store

RESULTS = Path(__file__).parents[2] / "docs" / "results"
EXACT = ["table.md"]
EXACT += ["results.csv", "summary.csv"] if int(pd.__version__.split(".")[0]) >= 3 else []
STUDIES = sorted(path.parent.name for path in RESULTS.glob("*/summary.csv"))
FRACTION, ID = re.compile(r"-?\d+\.\d+"), re.compile(r"\b[a-z][0-9a-f]{10}\b")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each stored study by itself, reported anew in a place of its own."""
    places = {}
    for name in STUDIES:
        stored, place = RESULTS / name, tmp_path_factory.mktemp("reports") / name
        if (stored / "cells").is_dir():
            shutil.copytree(stored / "cells", place / "cells")
            shutil.copy(stored / "study.yaml", place)
            Store(place).write_results()
        else:
            place.mkdir()
            shutil.copy(stored / "results.csv", place)
        report(place)
        places[name] = place
    return places


def test_there_are_five_studies() -> None:
    assert STUDIES == [
        "cifar10_capacity", "cifar10_cpu", "cifar10_fitted", "cifar10_local", "digits",
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


@pytest.mark.parametrize("name", STUDIES)
def test_figures_stand(reports: dict[str, Path], name: str) -> None:
    figures = sorted(path.name for path in RESULTS.joinpath(name).glob("*.svg"))
    assert sorted(path.name for path in reports[name].glob("*.svg")) == figures
    for figure in figures:
        stored = RESULTS.joinpath(name, figure).read_text(encoding="utf-8")
        version = re.findall(r"Matplotlib v([\w.]+)", stored)
        if version != [matplotlib.__version__]:
            continue  # another version may draw otherwise; their names were compared
        made = reports[name].joinpath(figure).read_text(encoding="utf-8")
        assert _words(made) == _words(stored), figure
        values, wanted = ([float(f) for f in FRACTION.findall(t)] for t in (made, stored))
        assert values == pytest.approx(wanted, abs=1e-3), figure


def _words(svg: str) -> str:
    """All of a figure but its fractions and ids."""
    return FRACTION.sub("0.0", ID.sub("id", svg))
