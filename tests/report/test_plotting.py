"""Colours and markers of models, and the ticks of the axes."""

import pytest
from matplotlib.figure import Figure

from vision_attn.report.plotting import log_percent, looks, percent

ARCHS = {"vit_large": "vit", "local_vit_r1": "local_vit"}


def test_looks_do_not_change_when_models_are_added() -> None:
    few = ["vit", "vit_large", "timm:resnet18", "mine"]
    many = [*few, "cnn", "linear", "local_vit_r1", "timm:vit_tiny_patch16_224", "pixel_vit"]
    small, large = looks(few, ARCHS), looks(many, ARCHS)
    assert {m: large[m] for m in few} == small
    assert len(set(large.values())) == len(many)


def test_a_label_looks_like_the_model_that_it_stands_for() -> None:
    def warm(colour: str) -> bool:
        return int(colour[1:3], 16) > int(colour[5:7], 16)  # more red than blue

    archs = {"a": "vit", "b": "cnn", "c": "timm:deit_tiny_patch16_224", "d": "timm:resnet18"}
    look = looks(archs, archs)
    assert [warm(look[m].colour) for m in archs] == [True, False, True, False]


def test_a_tick_between_whole_per_cents_is_not_rounded() -> None:
    axes = Figure().subplots()
    percent(axes, "gap")
    name = axes.yaxis.get_major_formatter()
    assert [name(v) for v in (0.0, 0.575, 0.6, 1.0)] == ["0 %", "57.5 %", "60 %", "100 %"]


@pytest.mark.parametrize(
    ("low", "high", "named"), [(0.1, 0.39, "23456789"), (0.1, 0.99, "23457"), (0.01, 0.99, "25")]
)
def test_the_longer_a_log_axis_the_fewer_ticks_have_names(
    low: float, high: float, named: str
) -> None:
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    log_percent(axes)
    name = axes.yaxis.get_minor_formatter()
    want = [f"{d}0 %" if str(d) in named else "" for d in range(2, 10)]
    assert [name(d / 10) for d in range(2, 10)] == want
