"""Tables and early results of a study read back; reading writes nothing."""

import contextlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from made_store import OK, digits_plan, keep

from vision_attn.cli import main
from vision_attn.errors import UserError
from vision_attn.study import result, results, store, study_file
from vision_attn.study.cells import Plan
from vision_attn.study.join import join
from vision_attn.study.result import Result, read_rows
from vision_attn.study.results import read, read_results, read_studies, read_tries
from vision_attn.study.store import Store, read_log
from vision_attn.study.study_file import check_study, read_study, read_yaml

LOG = "epoch,step,train_loss,val_acc,val_loss\n1,3,,0.5,2.0\n1,3,1.0,,\n"


@pytest.fixture(scope="module")
def made() -> Plan:
    return digits_plan()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, made: Plan) -> Path:
    """A study's directory with its ViT and its CNN done."""
    store = Store(tmp_path_factory.mktemp("whole") / "out")
    store.open(made)
    for cell in made.cells:
        keep(store, cell, OK, LOG)
    store.write_results()
    return store.root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (",20,0,0,", ",many,0,0,", r"line 2: size is 'many'; wanted a whole number"),
        (",20,0,0,", ",,0,0,", "line 2: size is None; wanted a whole number"),
        (",20,0,0,", ",20,-1,0,", "line 2: draw is -1; wanted a whole number, 0 or more"),
        (",20,0,0,", ",20,0.5,0,", r"line 2: draw is 0\.5; wanted a whole number"),
        (",0.75,", ",7,", r"line 2: test_acc is 7\.0; wanted a number, 0 to 1"),
        (",0.75,", ",high,", "line 2: test_acc is 'high'; wanted a number"),
        (",0.75,", ",,", "line 2: test_acc or gap is missing"),
        (",0.75,", ",nan,", "line 2: test_acc is nan; wanted a number"),
        (",True,", ",yes,", "line 2: fitted is 'yes'; wanted a bool"),
        (",ok,", ",fine,", "line 2: status is 'fine'; wanted ok or failed"),
        (",steps,none,", ",days,none,", r"line 2: protocols is \['days'\]; wanted"),
        (",steps,none,", ",steps,mixed,", "line 2: control is 'mixed'; wanted"),
        (",0.125,", ",-0.125,", r"line 2: train_loss is -0\.125; wanted a number, 0 or more"),
        ("test_loss", "t", r"has no column 'test_loss'"),
        ("cnn,20", ",20", "line 2: model is None; wanted text"),
    ],
)
def test_case_68_a_table_that_is_damaged(root: Path, old: str, new: str, said: str) -> None:
    """A row of results.csv goes through the checks of result.json."""
    shutil.rmtree(root / "cells")
    file = root / "results.csv"
    text = file.read_text().replace(old, new)
    assert text != file.read_text()
    file.write_text(text)
    with pytest.raises(UserError, match=rf"results\.csv.* {said}"):
        read_results(root)


def test_a_table_says_what_the_cells_say(root: Path) -> None:
    cells = read_results(root)
    shutil.rmtree(root / "cells")
    pd.testing.assert_frame_equal(read_results(root), cells)


@pytest.mark.parametrize("blank", [None, ""])
def test_columns_that_an_early_table_does_not_have_are_filled_in(
    root: Path, blank: str | None
) -> None:
    file = root / "results.csv"
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    later = ["protocol", "control", "arch", "matched"]
    table = table.drop(columns=later) if blank is None else table.assign(**dict.fromkeys(later, ""))
    shutil.rmtree(root / "cells")
    table.to_csv(file, index=False)
    got = read_results(root)
    assert got[["model", *later[:3]]].to_numpy().tolist() == [
        ["cnn", "steps", "none", "cnn"], ["vit", "steps", "none", "vit"],
    ]  # fmt: skip
    assert got["matched"].isna().all()


def test_a_result_comes_back_as_it_was_stored(root: Path, made: Plan) -> None:
    for cell in made.cells:
        place = root / "cells" / cell.key
        row = json.loads((place / "result.json").read_text())
        result = Result.read(place, None)
        assert result.to_json() == row
        assert Result.from_json(row) == result


def test_what_an_early_result_lacks_is_filled_in(root: Path, made: Plan) -> None:
    cell = made.cells[0]
    file = root / "cells" / cell.key / "result.json"
    row = json.loads(file.read_text())
    for name in ("protocols", "control", "arch", "matched"):
        del row[name]
    del row["config"]["control"], row["config"]["optim"]["ema"]
    file.write_text(json.dumps(row))
    assert Store(root).done(cell)
    result = Result.read(file.parent, None)
    got = (result.protocols, result.control, result.arch, result.matched)
    assert got == (("steps",), "none", "vit", None)
    assert list(read_results(root)["protocol"]) == ["steps", "steps"]


def files(root: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(p.relative_to(root)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else None)
        for p in [root, *root.rglob("*")]
    }


READERS: dict[str, Callable[[Path, Plan], object]] = {
    "Store.check": lambda root, made: Store(root).check(made),
    "Store.done": lambda root, made: [
        Store(root).done(replace(c, protocols=("steps", "epochs")), measure=m)
        for c in made.cells for m in (False, True)
    ],
    "Store.result": lambda root, made: [Store(root).result(c) for c in made.cells],
    "Store.read": lambda root, made: Store(root).read(),
    "Store.rows": lambda root, made: Store(root).rows(),
    "store.read_log": lambda root, made: read_log(root / "cells" / made.cells[0].key),
    "study_file.read_study": lambda root, made: read_study(root),
    "study_file.read_yaml": lambda root, made: read_yaml(root / "study.yaml"),
    "study_file.check_study": lambda root, made: check_study(root, read_study(root)),
    "Result.read": lambda root, made: Result.read(root / "cells" / made.cells[0].key, None),
    "result.read_rows": lambda root, made: read_rows(root / "results.csv"),
    "results.read": lambda root, made: read(root),
    "results.read_results": lambda root, made: read_results(root),
    "results.read_studies": lambda root, made: read_studies(root),
    "results.read_tries": lambda root, made: read_tries(root),
    "join.join": lambda root, made: join([root, root.parent / "other"]),
}  # fmt: skip


def test_case_67_every_reader_is_tried() -> None:
    """All that asks or reads, by its name, in the modules that work on files."""
    places: list[Any] = [store, study_file, result, results, Store, Result]
    names = {
        f"{place.__name__.rpartition('.')[2]}.{name}"
        for place in places
        for name, thing in vars(place).items()
        if re.match("done|read|check", name)
        and (isinstance(place, type) or thing.__module__ == place.__name__)
    }
    assert names <= READERS.keys()
    assert len(names) == 13


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("state", ["whole", "no table", "damaged"])
def test_case_67_reading_writes_nothing(root: Path, made: Plan, reader: str, state: str) -> None:
    """Nor does it try to: the folder may not be written to, and nothing in it has changed."""
    if state == "no table" and reader != "result.read_rows":
        (root / "results.csv").unlink()
    if state == "damaged":
        (root / "cells" / made.cells[1].key / "result.json").write_text("{")
        (root / "cells" / ".tmp-left").mkdir()
    if reader == "join.join":
        shutil.copytree(root, root.parent / "other")
    before = files(root)
    folders = [p for p in (root, *root.rglob("*")) if p.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with contextlib.suppress(UserError):  # which names what is damaged
            READERS[reader](root, made)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert files(root) == before


def test_protocols_of_a_finished_run_are_noted_once(root: Path, made: Plan) -> None:
    both = replace(made.cells[0], protocols=("steps", "epochs"))
    result = Store(root).done(both)
    assert result is not None
    assert list(read_results(root)["protocol"]) == ["steps", "steps"]
    Store(root).add_protocols(both, result)
    assert list(read_results(root)["protocol"]) == ["steps", "epochs", "steps"]
    before = files(root)
    again = Store(root).done(both)
    assert again is not None
    Store(root).add_protocols(both, again)
    assert files(root) == before


def test_case_67_plot_leaves_its_directories_as_they_were(root: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(root, tmp_path / "other"))
    for place in (root, other):
        (place / "results.csv").unlink()
    before = files(root), files(other)
    assert main(["plot", str(root), str(other), "--out", str(tmp_path / "both")]) == 0
    assert (files(root), files(other)) == before
    assert list(read_results(tmp_path / "both")["model"]) == ["cnn", "vit"]


STORED = Path(__file__).parents[2] / "docs" / "results"


def test_every_stored_result_of_the_docs_is_believed(caplog: pytest.LogCaptureFixture) -> None:
    count = 0
    for cells in STORED.glob("*/cells"):
        results, damages = Store(cells.parent).read()
        assert damages == []
        count += len(results)
    assert count >= 228
