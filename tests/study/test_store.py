"""A study's directory: whole cells or none, nothing mixed, strict JSON, one process at a time."""

import csv
import itertools
import json
import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_store import FAILED, OK, STUDY, VIT, digits, digits_plan, half_done, keep, tree

from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.files import as_json, write_text
from vision_attn.study.cells import Plan, plan
from vision_attn.study.keys import key_start
from vision_attn.study.result import COLUMNS, Result
from vision_attn.study.results import read_results
from vision_attn.study.store import Store

DESIGN = (
    "model, size, draw, seed, status, params, flops, steps, epochs, train_acc, val_acc, test_acc,"
    " train_loss, test_loss, gap, fitted, seconds, images_per_second"
)


@pytest.fixture(scope="module")
def source() -> Source:
    return digits()


@pytest.fixture(scope="module")
def made() -> Plan:
    return digits_plan()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return half_done(tmp_path / "out")


def no_constants(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def test_a_cell_is_whole(store: Store, made: Plan) -> None:
    vit = store.cells / made.cells[0].key
    assert sorted(p.name for p in vit.iterdir()) == ["metrics.csv", "result.json"]
    row = json.loads((vit / "result.json").read_text())
    config = row.pop("config")
    cost = made.arms["vit"].cost
    where = {"model": "vit", "size": 20, "draw": 0, "seed": 0, "arch": "vit", "matched": "none"}
    where |= {"control": "none", "protocols": ["steps"]}
    assert row == {**where, "params": cost.params, "flops": cost.flops, **OK}
    assert (config["args"], config["steps"], config["optim"]["lr"]) == (VIT, 400, 1e-3)
    assert sorted(p.name for p in store.cells.iterdir()) == sorted(c.key for c in made.cells)


def test_only_ok_is_done(store: Store, made: Plan) -> None:
    assert [bool(store.done(c)) for c in made.cells] == [True, False]


def test_a_result_of_other_images_is_run_again(
    store: Store, made: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    """The same key, but the subset is not the one that is dealt now: validation was taken anew."""
    other = replace(made.cells[0], subset="0123456789abcdef")
    file = store.cells / other.key / "result.json"
    with caplog.at_level(logging.WARNING):
        assert not store.done(other)
    (said,) = [r.getMessage() for r in caplog.records]
    assert said == (
        f"{file} is of other training images than are dealt now: subset de5648215dcb627e,"
        " now 0123456789abcdef; the cell is run again"
    )
    keep(store, other, OK | {"subset": other.subset})
    assert store.done(other)
    assert not store.done(made.cells[0])


def test_a_failed_result_has_no_images_to_differ(
    store: Store, made: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    assert not store.done(replace(made.cells[1], subset="0123456789abcdef"))
    assert not caplog.records


def test_only_attention_is_run_again_for_its_measures(store: Store, made: Plan) -> None:
    vit, cnn = made.cells
    keep(store, cnn, OK)
    assert [bool(store.done(c, measure=True)) for c in (vit, cnn)] == [False, True]
    keep(store, vit, OK | {"measures": [{"layer": 0, "head": 0, "distance": 1.5}]})
    assert store.done(vit, measure=True)


@pytest.mark.parametrize(("right", "fitted"), [(98, False), (99, True), (100, True)])
def test_fitted_from_99_of_100(made: Plan, right: int, fitted: bool) -> None:
    accuracy = torch.tensor(right / 100).item()
    assert Result.of(made.cells[0], OK | {"train_acc": accuracy}).fitted is fitted


@pytest.mark.parametrize(
    "content",
    [None, "", "{", '{"model": "vi', "[]", "null", '{"status": "ok"}', "\x00\x00", b"\xff\xfe{"],
)
def test_a_broken_result_is_run_again(
    store: Store, made: Plan, content: str | bytes | None
) -> None:
    cell = made.cells[0]
    path = store.cells / cell.key / "result.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert not store.done(cell)
    assert [r["model"] for r in store.rows()] == ["cnn"]
    keep(store, cell, OK)
    assert store.done(cell)
    assert [r["model"] for r in store.rows()] == ["cnn", "vit"]


def test_a_failed_cell_is_replaced(store: Store, made: Plan) -> None:
    cell = made.cells[1]
    path = store.cells / cell.key
    (path / "error.txt").write_text("traceback")
    keep(store, cell, OK)
    assert store.done(cell)
    assert not (path / "error.txt").exists()
    assert [r["status"] for r in store.rows()] == ["ok", "ok"]


def test_a_crash_before_the_rename_leaves_no_cell(
    store: Store, made: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, replace_path = made.cells[1], Path.replace

    def crash(self: Path, target: Path) -> Path:
        if self.is_dir():
            raise KeyboardInterrupt
        return replace_path(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            keep(store, cell, OK)
    assert not store.done(cell)
    assert [r["model"] for r in store.rows()] == ["vit"]
    store.open(made)
    assert [p.name for p in store.cells.iterdir()] == [made.cells[0].key]


def test_a_file_is_replaced_or_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.csv"
    write_text(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_text(path, "new")
    assert path.read_text() == "old"
    write_text(path, "new, π")
    assert path.read_text(encoding="utf-8") == "new, π"


def something_else(root: Path, kind: str) -> None:
    if kind == "file":
        root.write_text("mine")
        return
    root.mkdir()
    name, text = {
        "directory": ("notes.txt", "mine"),
        "other yaml": ("study.yaml", "subject: history\n"),
        "no yaml": ("study.yaml", "a: [1\n"),
    }[kind]
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("file", "is not a study directory"),
        ("directory", "is not a study directory"),
        ("other yaml", "not a study of this program"),
        ("no yaml", "cannot be read"),
    ],
)
def test_something_else_is_left_alone(tmp_path: Path, made: Plan, kind: str, message: str) -> None:
    root = tmp_path / "out"
    something_else(root, kind)
    before = tree(root)
    with pytest.raises(UserError, match=message):
        Store(root).open(made)
    assert tree(root) == before


def test_an_empty_directory_will_do(tmp_path: Path, made: Plan) -> None:
    Store(tmp_path).open(made)
    assert (tmp_path / "study.yaml").is_file()


HOLD = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1], timeout=0):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_cell_belongs_to_one_process_at_a_time(store: Store, made: Plan) -> None:
    key, other_key = (c.key for c in made.cells)
    (store.cells / f".tmp-{key}").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.cells / f".lock-{key}")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        store.open(made)  # a second study process may begin
        assert (store.cells / f".tmp-{key}").is_dir()  # and leaves the other's files alone
        assert store.claim(key) is None
        free = store.claim(other_key)
        assert free is not None
        free.release()
        other.communicate("")
    claim = store.claim(key)
    assert claim is not None
    claim.release()
    store.open(made)
    assert not [p.name for p in store.cells.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (float("nan"), None),
        (float("-inf"), None),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (torch.tensor(float("inf")), None),
        (torch.tensor(3), 3),
        ((1, [float("nan"), {2: np.float32("inf")}]), [1, [None, {"2": None}]]),
    ],
)
def test_json_is_strict(value: Any, want: Any) -> None:
    got = json.loads(as_json({"value": value}), parse_constant=no_constants)["value"]
    assert got == want
    assert type(got) is type(want)


def test_a_result_that_is_not_finite_is_null(store: Store, made: Plan) -> None:
    path = keep(store, made.cells[0], OK | {"val_loss": float("nan"), "test_loss": np.float32(0.5)})
    row = json.loads((path / "result.json").read_text(), parse_constant=no_constants)
    assert (row["val_loss"], row["test_loss"]) == (None, 0.5)


def test_results_csv(store: Store, made: Plan) -> None:
    assert list(COLUMNS[:18]) == DESIGN.split(", ")
    rows = store.write_results()
    with (store.root / "results.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0][:18] == DESIGN.split(", ")
    assert table[0][18:] == [
        "val_loss", "subset", "error", "protocol", "control", "arch", "matched",
    ]  # fmt: skip
    costs = {m: [str(a.cost.params), str(a.cost.flops)] for m, a in made.arms.items()}
    assert table[1:] == [
        ["cnn", "20", "0", "0", "failed", *costs["cnn"], *[""] * 13, FAILED["error"],
         "steps", "none", "cnn", "params of vit"],
        [
            "vit", "20", "0", "0", "ok", *costs["vit"], "400", "300.0", "1.0", "0.5", "0.75",
            "0.125", "1.5", "0.25", "True", "3.5", "1714.0", "2.0", "de5648215dcb627e", "",
            "steps", "none", "vit", "none",
        ],
    ]  # fmt: skip
    assert [r["status"] for r in rows] == ["failed", "ok"]


def test_rows_come_in_one_order(tmp_path: Path, source: Source) -> None:
    study = replace(STUDY, sizes=["all", 20, 100], draws=2, seeds=2)
    made, store = plan(study, source), Store(tmp_path)
    for cell in reversed(made.cells):
        keep(store, cell, OK | {"size": cell.config.size})
    got = [(r["model"], r["size"], r["draw"], r["seed"]) for r in store.rows()]
    assert got == list(itertools.product(("cnn", "vit"), (20, 100, 1078), (0, 1), (0, 1)))


LABELS = (
    "a:b", "a-b", "a/b", "a\\b", "a b", "a~b", "a*b", ".hid", "hid", "..hid", "..",
    "a" * 200, "a" * 199, "timm:resnet18", "timm-resnet18", "v[lr]", "$x$", "=1", "-1", "ü" * 70,
    "linear",
)  # fmt: skip


def test_case_65_two_labels_never_share_a_cell(tmp_path: Path, source: Source) -> None:
    study = replace(STUDY, models=[f"{label}=linear" for label in LABELS], args={})
    made, store = plan(study, source), Store(tmp_path / "out")
    names = [c.key for c in made.cells]
    assert len({n.casefold() for n in names}) == len(LABELS)
    assert not [n for n in names if "/" in n or n.startswith(".") or len(n.encode()) > 200]
    store.open(made)
    for cell in made.cells:
        keep(store, cell, OK)
    assert all(store.done(c) for c in made.cells)
    rows = store.write_results()
    assert sorted(r["model"] for r in rows) == sorted(LABELS)
    assert sorted(read_results(store.root)["model"]) == sorted(LABELS)


def test_case_65_a_model_under_its_own_name_keeps_its_key() -> None:
    config = {"model": "timm:resnet18", "size": 20, "draw": 0, "seed": 0}
    assert key_start("timm:resnet18", config) == "timm-resnet18-n000020-d0-s0"
    assert key_start("vit_0.3M", config) == "vit_0.3M-n000020-d0-s0"
    other = key_start("timm-resnet18", config)
    assert other.startswith("timm-resnet18~")
    assert other.endswith("-n000020-d0-s0")


@pytest.mark.parametrize("label", ["a\nb", "\udcff", " a", "a\t", "\x1b[31m", "a\u200bb"])
def test_case_71_a_label_that_cannot_be_shown_is_refused(source: Source, label: str) -> None:
    with pytest.raises(UserError, match=r"models has the label .*wanted printable") as refused:
        plan(replace(STUDY, models=[f"{label}=linear"], args={}), source)
    assert len(str(refused.value).splitlines()) == 1
    str(refused.value).encode()


@pytest.mark.parametrize(("first", "second"), [("Vit", "vit"), ("\u00e9", "e\u0301")])
def test_case_65_labels_that_differ_in_case_alone_are_refused(
    tmp_path: Path, source: Source, first: str, second: str
) -> None:
    """At one start, and where one came to the directory earlier."""
    both, one, other = (
        replace(STUDY, models=[f"{name}=linear" for name in names], args={})
        for names in ([first, second], [first], [second])
    )
    with pytest.raises(UserError, match="differ only in the case of letters"):
        Store(tmp_path / "both").check(plan(both, source))
    store = Store(tmp_path / "out")
    store.open(plan(one, source))
    with pytest.raises(UserError, match="differ only in the case of letters"):
        store.check(plan(other, source))
    store.check(plan(one, source))
