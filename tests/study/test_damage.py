"""Damaged files of a study: each is named in one line, and its cell is run again."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_store import OK, digits_plan, keep

from vision_attn.errors import UserError
from vision_attn.files import as_json
from vision_attn.study.cells import Plan
from vision_attn.study.results import read, read_results
from vision_attn.study.store import Store

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


def change(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda row: row | changes


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda row: {k: v for k, v in row.items() if k != name}


def in_config(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda row: row | {"config": row["config"] | changes}


ROWS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "null": lambda row: None,
    "list": lambda row: [row],
    "text": lambda row: "row",
    "number": lambda row: 3,
    "empty object": lambda row: {},
    **{f"no {name}": without(name) for name in (
        "model", "size", "draw", "seed", "status", "config", "steps", "train_acc", "test_acc",
        "gap", "fitted", "subset", "seconds", "params",
    )},
    **{f"{name} null": change(**{name: None}) for name in (
        "model", "size", "status", "protocols", "control", "arch", "train_acc", "test_acc",
        "epochs", "fitted", "subset", "flops", "images_per_second", "config",
    )},
    **{f"{name} a text": change(**{name: "20"}) for name in (
        "size", "draw", "seed", "steps", "params", "test_acc", "train_loss", "gap", "fitted",
        "seconds", "measures", "config", "status", "control",
    )},
    **{f"{name} a list": change(**{name: [1]}) for name in (
        "model", "size", "status", "test_acc", "error", "measures", "control", "matched",
    )},
    "protocols a text": change(protocols="steps"),
    "protocols empty": change(protocols=[]),
    "protocols unknown": change(protocols=["steps", "days"]),
    "protocols of lists": change(protocols=[["steps"]]),
    "protocols twice": change(protocols=["steps", "steps"]),
    "protocols a number": change(protocols=5),
    "test_acc 7": change(test_acc=7),
    "test_acc -0.1": change(test_acc=-0.1),
    "val_acc true": change(val_acc=True),
    "gap 3": change(gap=3.0),
    "size 0": change(size=0),
    "size 20.5": change(size=20.5),
    "another size": change(size=50),
    "another draw": change(draw=1),
    "another seed": change(seed=2),
    "another model": change(model="pixel_vit"),
    "another arch": change(arch="cnn"),
    "another control": change(control="permuted"),
    "another number of steps": change(steps=399),
    "draw -1": change(draw=-1),
    "loss below 0": change(train_loss=-1.0),
    "seconds below 0": change(seconds=-3),
    "huge epochs": lambda row: row | {"epochs": int("9" * 400)},
    "measures without a layer": change(measures=[{"head": 0}]),
    "measures of texts": change(measures=[{"layer": 0, "distance": "far"}]),
    "failed without an error": change(status="failed"),
    "config of another rate": lambda row: row
    | {"config": row["config"] | {"optim": row["config"]["optim"] | {"lr": 0.5}}},
    "config without optim": lambda row: row | {"config": without("optim")(row["config"])},
    "config with optim a text": in_config(optim="adam"),
    "config with threads a text": in_config(threads="1"),
    "config with threads 2": in_config(threads=2),
    "config of another size": in_config(size=50),
    "config empty": change(config={}),
}  # fmt: skip

TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "cut off": b'{"model": "vit", "si',
    "NaN": b"NaN",
    "zeros": bytes(64),
    "utf-16": as_json({"model": "vit"}).encode("utf-16"),
    "latin1": '{"model": "vit\xe9"}'.encode("latin1"),
    "deep": b"[" * 100_000,
    "yaml": b"model: vit\n",
}


def named_and_run_again(
    root: Path, made: Plan, caplog: pytest.LogCaptureFixture, file: Path
) -> None:
    """The ViT's cell counts as missing, its file is named once, the CNN's stays."""
    store = Store(root)
    with caplog.at_level(logging.WARNING):
        assert [bool(store.done(c)) for c in made.cells] == [False, True]
        (again,) = [r.getMessage() for r in caplog.records]
        caplog.clear()
        assert list(read_results(root)["model"]) == ["cnn"]
        (left,) = [r.getMessage() for r in caplog.records]
    for said, end in ((again, "; the cell is run again"), (left, "; left out")):
        assert str(file) in said
        assert said.endswith(end)
        assert len(said.splitlines()) == 1
    cell = made.cells[0]
    place = store.scratch(cell)
    (place / "metrics.csv").write_text(LOG)
    store.keep(cell, place, OK)
    assert store.done(cell)
    assert list(read_results(root)["model"]) == ["cnn", "vit"]


@pytest.mark.parametrize("kind", ROWS)
def test_case_68_a_row_of_another_schema(
    root: Path, made: Plan, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    file = root / "cells" / made.cells[0].key / "result.json"
    file.write_text(json.dumps(ROWS[kind](json.loads(file.read_text()))))
    named_and_run_again(root, made, caplog, file)


@pytest.mark.parametrize("kind", TEXTS)
def test_case_68_a_result_that_is_no_json(
    root: Path, made: Plan, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    file = root / "cells" / made.cells[0].key / "result.json"
    file.write_bytes(TEXTS[kind])
    named_and_run_again(root, made, caplog, file)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_case_68_numbers_that_json_does_not_have(
    root: Path, made: Plan, caplog: pytest.LogCaptureFixture, number: str
) -> None:
    file = root / "cells" / made.cells[0].key / "result.json"
    file.write_text(file.read_text().replace('"val_loss": 2.0', f'"val_loss": {number}'))
    named_and_run_again(root, made, caplog, file)


@pytest.mark.parametrize("kind", ["missing", "a folder", "its cell a file", "its cell empty"])
def test_case_68_a_result_that_is_no_file(
    root: Path, made: Plan, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    cell = root / "cells" / made.cells[0].key
    file = cell / "result.json"
    file.unlink()
    if kind == "a folder":
        file.mkdir()
    elif kind != "missing":
        shutil.rmtree(cell)
        if kind == "its cell a file":
            cell.write_text("mine")
        else:
            cell.mkdir()
    named_and_run_again(root, made, caplog, file)


def test_case_68_a_cell_under_another_key(
    root: Path, made: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    vit, cnn = (root / "cells" / c.key for c in made.cells)
    shutil.rmtree(vit)
    shutil.copytree(cnn, vit)
    named_and_run_again(root, made, caplog, vit / "result.json")


@pytest.mark.parametrize("digest", ["0123456789", "fe8465fb2e"])
def test_case_68_a_copy_is_not_a_second_run(
    root: Path, made: Plan, caplog: pytest.LogCaptureFixture, digest: str
) -> None:
    vit = root / "cells" / made.cells[0].key
    copy = vit.with_name(f"{vit.name.rpartition('-')[0]}-{digest}")
    shutil.copytree(vit, copy)
    assert list(read_results(root)["model"]) == ["cnn", "vit"]
    assert f"{copy / 'result.json'} is damaged: it belongs to {vit.name}" in caplog.text


@pytest.mark.parametrize(
    "content",
    [b"", b"step\n\x00\xff", b"epoch\n1\n", b"step,val_loss\n1,low\n", b'step\n"1',
     "stép\n1".encode("latin1"),     b"step\n1,2,3\n4\n5,6,7,8\n", None],
)  # fmt: skip
def test_case_68_a_log_is_named_and_its_cell_run_again(
    root: Path, made: Plan, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    file = root / "cells" / made.cells[0].key / "metrics.csv"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    assert list(read(root).training["model"]) == ["cnn"]
    assert f"{file} is damaged" in caplog.text
    caplog.clear()
    assert [bool(Store(root).done(c)) for c in made.cells] == [False, True]
    assert caplog.text.count(f"{file} is damaged") == 1


def in_study(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda study: study | changes


STUDIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "null": lambda study: None,
    "list": lambda study: [study],
    "number": lambda study: 7,
    **{f"{name} {value!r}": in_study(**{name: value}) for name, value in (
        ("identity", None), ("identity", []), ("identity", {}), ("identity", {"data": "digits"}),
        ("identity", {"data": {"name": 3, "fingerprint": "f"}}), ("args", None), ("args", ["vit"]),
        ("args", {"vit": 3}), ("costs", "low"), ("costs", {"vit": [1]}),
        ("costs", {"vit": {"params": "many"}}), ("starts", "once"), ("starts", [3]),
        ("starts", [{"models": 3}]), ("starts", [{"sizes": [[1]]}]), ("starts", [{"draws": "x"}]),
        ("starts", [{"budget": 5}]), ("versions", "new"), ("machine", ["mine"]),
    )},
}  # fmt: skip


@pytest.mark.parametrize("kind", [*STUDIES, "latin1", "no yaml", "a folder"])
def test_case_68_a_study_of_another_kind_is_refused(root: Path, made: Plan, kind: str) -> None:
    file = root / "study.yaml"
    if kind in STUDIES:
        file.write_text(yaml.safe_dump(STUDIES[kind](yaml.safe_load(file.read_text()))))
    elif kind == "a folder":
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes("é: 1".encode("latin1") if kind == "latin1" else b"a: [")
    with pytest.raises(UserError, match=r"study\.yaml (is not a study|cannot be read)"):
        Store(root).open(made).__enter__()
    with pytest.raises(UserError, match=r"study\.yaml (is not a study|cannot be read)"):
        read(root)


@pytest.mark.parametrize("name", [".lock", "cells", "cells/.tmp-left"])
def test_case_68_a_part_of_another_kind(root: Path, made: Plan, name: str) -> None:
    part = root / name
    if part.is_dir():
        shutil.rmtree(part)
    part.unlink(missing_ok=True)
    if name == ".lock":
        part.mkdir()
    else:
        part.write_text("mine")
    store = Store(root)
    if name == "cells/.tmp-left":
        store.open(made)
        assert not part.exists()
        return
    with pytest.raises(UserError, match=f"{part} cannot be written"):
        store.open(made)
