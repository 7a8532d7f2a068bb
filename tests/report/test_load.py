"""A stored study as tables and figures for a notebook."""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from made_study import UNEVEN, everything, stored
from matplotlib.figure import Figure

import vision_attn
from vision_attn import load_study
from vision_attn.errors import UserError
from vision_attn.report.load import LoadedStudy
from vision_attn.report.write import report


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedStudy:
    return load_study(everything(tmp_path_factory.mktemp("loaded")))


def test_tables_are_those_on_disk(tmp_path: Path) -> None:
    root = stored(tmp_path, UNEVEN)
    report(root, kinds=())
    study = load_study(str(root))
    for name, table in (
        ("summary", study.summary), ("pairs", study.pairs), ("multiplier", study.multiplier),
    ):  # fmt: skip
        file = pd.read_csv(root / f"{name}.csv", keep_default_na=True)
        table = table.replace("", float("nan")) if name == "multiplier" else table
        pd.testing.assert_frame_equal(file, table.reset_index(drop=True), check_dtype=False)
    assert len(study.results) == len(UNEVEN)
    assert study.answers[0].question == "Who is better?"


@pytest.mark.parametrize("name", ["accuracy", "gap", "error", "multiplier"])
def test_a_figure_is_drawn_into_given_axes(loaded: LoadedStudy, name: str) -> None:
    figure = Figure(figsize=(3.3, 2.5))
    axes = figure.subplots()
    assert loaded.plot(name, ax=axes) is figure
    assert axes.get_xlabel()
    assert isinstance(loaded.plot(name), Figure)
    assert plt.get_fignums() == []


def test_only_some_models(loaded: LoadedStudy) -> None:
    axes = Figure().subplots()
    loaded.plot("accuracy", ax=axes, models=["vit_large"])
    legend = axes.get_legend()
    texts = {t.get_text() for t in (*axes.texts, *(legend.texts if legend else ()))}
    assert not {"cnn", "vit"} & texts


def test_a_notebook_shows_answers_and_means(loaded: LoadedStudy) -> None:
    page = loaded._repr_html_()
    assert page.count("<p>") == len(loaded.answers) > 0
    body = page.split("<tbody>")[1]
    assert body.count("<tr>") == len(loaded.summary)
    assert all(f">{model}</t" in body for model in loaded.results["model"].unique())


def test_slips_name_what_there_is(loaded: LoadedStudy) -> None:
    with pytest.raises(UserError, match="acuracy"):
        loaded.plot("acuracy")
    with pytest.raises(UserError, match="vit_large"):
        loaded.plot("accuracy", models=["vit_larg"])
    with pytest.raises(UserError, match="no directory"):
        load_study()


def test_another_reference() -> None:
    root = Path(__file__).parents[2] / "docs" / "results" / "cifar10_attention"
    study = load_study(root, reference="pooled_none")
    assert study.analysis.pair == ("pooled_none", "pooled_attention")  # most arguments in common
    assert set(study.pairs["reference"]) == set(study.multiplier["reference"]) == {"pooled_none"}
    assert "pooled_none" in study.answers[0].answer
    with pytest.raises(UserError, match=r"reference 'pool' is no model .* cnn, .*, pooled_none"):
        load_study(root, reference="pool")


def test_it_is_public() -> None:
    assert "load_study" in vision_attn.__all__
