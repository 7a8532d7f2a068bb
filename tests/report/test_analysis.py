"""Which two models a study is about, what its settings are, and that nothing is computed twice."""

import ast
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from made_study import analysed, everything, pairs, row, table
from rich.console import Console

import vision_attn.report
from vision_attn.report import analysis, comparison
from vision_attn.report.analysis import Setting, analyse, choose_pair
from vision_attn.report.figures import figures
from vision_attn.report.page import page
from vision_attn.report.tables import markdown
from vision_attn.report.terminal import show
from vision_attn.stats.paired import RATIO
from vision_attn.study.results import StoredStudy, read

ARCHS = {"vit_small": "vit", "cnn_small": "cnn", "cnn_large": "cnn", "big": "vit", "wide": "cnn"}


@pytest.mark.parametrize(
    ("models", "chosen"),
    [
        (["vit"], None),
        (["cnn", "linear", "pixel_vit", "vit"], ("cnn", "vit")),
        (["linear", "vit"], ("linear", "vit")),
        (["cnn", "linear"], ("cnn", "linear")),
        (["pixel_vit", "vit"], ("pixel_vit", "vit")),
        (["cnn_large", "cnn_small", "vit_small"], ("cnn_large", "vit_small")),
        (["timm:deit_tiny_patch16_224", "timm:resnet18"],
         ("timm:resnet18", "timm:deit_tiny_patch16_224")),
        (["big", "wide"], ("wide", "big")),
    ],
)  # fmt: skip
def test_the_pair_of_a_study(models: list[str], chosen: tuple[str, str] | None) -> None:
    assert choose_pair(models, ARCHS, {}) == chosen


def test_a_name_alone_makes_no_attention() -> None:
    named = {"vit_but_no": "cnn", "plain": "vit"}
    assert choose_pair(sorted(named), named, {}) == ("vit_but_no", "plain")


def test_a_vit_without_attention_is_not_the_attention_of_a_pair() -> None:
    archs = {"a": "vit", "b": "vit", "cnn": "cnn"}
    mixers = {"a": {"mixer": "none"}, "b": {"mixer": "attention"}}
    assert choose_pair(["a", "b", "cnn"], archs, mixers) == ("cnn", "b")
    assert choose_pair(["a", "b"], archs, mixers) == ("a", "b")
    assert choose_pair(["a", "b"], archs, {}) == ("a", "b")


def test_the_other_of_a_pair_is_of_another_kind_than_a_named_reference() -> None:
    archs = {"a": "vit", "b": "vit", "c": "vit", "cnn": "cnn"}
    args: dict[str, dict[str, Any]] = {
        "a": {"depth": 3},
        "b": {"depth": 5, "stem": "pooled"},
        "c": {"depth": 5, "stem": "pooled", "mixer": "none"},
    }
    assert choose_pair([*archs], archs, args, "c") == ("c", "b")
    assert choose_pair([*archs], archs, args, "cnn") == ("cnn", "a")
    assert choose_pair([*archs], archs, args, "b") == ("b", "cnn")
    assert choose_pair(["a", "b"], archs, args, "b") == ("b", "a")
    assert choose_pair(["b"], archs, args, "b") is None


def test_a_study_names_its_reference() -> None:
    runs = [row(m, 20, d, 0.5 + d / 10) for m in ("cnn", "vit", "linear") for d in (0, 1)]
    study = {"identity": {"data": {"name": "digits", "fingerprint": "x"}}, "args": {}}

    def first(*references: str | None, named: str | None = None) -> str:
        studies = {str(i): study | {"reference": name} for i, name in enumerate(references)}
        made = analyse(StoredStudy(table(runs), studies), named)
        assert made.pair is not None
        return made.pair[0]

    assert first(None) == "cnn"
    assert first("linear") == "linear"
    assert first(None, "vit", "linear") == "vit"
    assert first("gone", "linear") == "linear"  # without results
    assert first("linear", named="cnn") == "cnn"


def test_settings_stand_in_order_and_have_words() -> None:
    rows = pairs(20, [0.5], [0.25], protocol="epochs") + pairs(20, [0.1], [0.1], control="shuffled")
    made = analysed(rows)
    assert made.settings == (Setting("epochs", "none"), Setting("steps", "shuffled"))
    assert made.setting == made.settings[0]
    words = [s.words for s in made.settings]
    assert words == ["equal epochs", "equal updates, labels shuffled"]
    assert [list(made.comparisons[s]) for s in made.settings] == [["vit"], ["vit"]]


def test_every_setting_compares_the_same_pair() -> None:
    rows = [*pairs(20, [0.5], [0.25]), row("linear", 20, 0, 0.3)]
    rows += [
        row("linear", 20, 0, 0.1, control="shuffled"),
        row("vit", 20, 0, 0.1, control="shuffled"),
    ]
    made = analysed(rows)
    assert made.comparison is not None
    assert (made.comparison.first, made.comparison.second) == ("cnn", "vit")
    shuffled = made.comparisons[made.settings[1]]
    assert shuffled == {}  # it has no cnn
    assert list(made.comparisons[made.setting]) == ["linear", "vit"]


def test_the_change_is_of_draws_with_both_sizes() -> None:
    rows = [*pairs(20, [0.5, 0.52, 0.9], [0.4, 0.41, 0.1]), *pairs(50, [0.7, 0.72], [0.5, 0.63])]
    comparison = analysed(rows).comparison
    assert comparison is not None
    change = comparison.change("test_acc")
    assert change.draws == comparison.change(RATIO).draws == 2
    assert change.mean == pytest.approx((0.1 - 0.02) / 2)


STATISTICS = (
    "summarise", "paired", "differences", "changes", "data_multiplier", "crossing",
    "protocol_split", "fit_law", "errors_of",
)  # fmt: skip


def test_every_statistic_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for each question, and none at all by what renders."""
    calls: Counter[tuple[str, str]] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            texts = [a.to_csv() if isinstance(a, pd.DataFrame) else str(a) for a in args]
            calls[name, f"{texts} {more}"] += 1
            return function(*args, **more)

        return call

    for name in STATISTICS:
        home = analysis if hasattr(analysis, name) else comparison
        monkeypatch.setattr(home, name, counted(name, getattr(home, name)))
    made = analyse(read(everything(tmp_path)))
    total: Counter[str] = Counter()
    for (name, _), count in calls.items():
        total[name] += count
    twice = {name for (name, _), count in calls.items() if count > 1}
    assert twice <= {"differences", "changes"}  # two of the made settings have the same numbers
    assert total == {
        "summarise": 1,
        "paired": 4,  # a setting each
        "differences": 4,
        "changes": 4,
        "data_multiplier": 5,  # a pair in 4 settings and another in 1
        "crossing": 1,
        "protocol_split": 1,
        "errors_of": 3,
        "fit_law": 3,
    }
    calls.clear()
    pictures = dict.fromkeys(figures(made), b'<svg viewBox="0 0 4 3"></svg>')
    assert page(made, pictures)
    assert markdown(made)
    show(Console(file=io.StringIO()), made)
    assert not calls


def test_only_the_analysis_calls_statistics() -> None:
    for file in Path(vision_attn.report.__file__).parent.glob("*.py"):
        functions = {
            f"{node.module}.{name.name}"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith(("vision_attn.stats", "scipy.stats"))
            for name in node.names
            if name.name.islower()  # a class or a name may be there
        }
        assert not functions or file.name in ("analysis.py", "comparison.py", "phase.py"), (
            f"{file.name} imports {functions}"
        )
