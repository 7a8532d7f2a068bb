"""Values of command lines and files, and how they come together."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from said import printed, refused

# Lightning's notes on devices and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")


def test_values_of_yaml(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.yaml").write_text(
        "optim: {lr: 1e-3, weight_decay: 5, warmup: .5}\n"
        "sizes: [20, '50', all]\nbatch_size: 8\ncheckpoint: no\n"
        "args: {vit: {pos_embed: none, qkv_bias: no}}\ndata: {root: 010}\n".replace("010", "'010'")
    )
    got = printed("compare --config good.yaml --optim.label_smoothing 1e-1", capsys)
    optim = got["optim"]
    assert optim["lr"] == 0.001
    assert [type(optim[k]) for k in ("lr", "weight_decay", "warmup")] == [float] * 3
    assert optim["label_smoothing"] == 0.1
    assert got["sizes"] == [20, 50, "all"]
    assert got["checkpoint"] is False
    assert got["args"]["vit"] == {"pos_embed": "none", "qkv_bias": False}
    assert got["data"]["root"] == "010"


@pytest.mark.parametrize(
    ("argv", "models", "sizes"),
    [
        ("--models vit,cnn --sizes 20,all", ["vit", "cnn"], [20, "all"]),
        ("--models=cnn --sizes=50", ["cnn"], [50]),
        ("--models [cnn,vit] --sizes '[20, 50]'", ["cnn", "vit"], [20, 50]),
        ("--models timm:resnet18,vit", ["timm:resnet18", "vit"], None),
    ],
)
def test_lists_on_the_command_line(
    capsys: pytest.CaptureFixture[str], argv: str, models: list[str], sizes: list[Any] | None
) -> None:
    got = printed(f"compare {argv}", capsys)
    assert (got["models"], got["sizes"]) == (models, sizes)


PART = """
models: [vit, cnn, big=vit, cnn_b=cnn]
args: {vit: {depth: 2}, big: {depth: 3}}
match_to: {cnn: vit, cnn_b: big}
augment_of: {big: {mixup: 0.8}, cnn: {pad: 1}}
"""


@pytest.mark.parametrize(
    ("argv", "models", "args", "match_to", "augment_of"),
    [
        ("", ["vit", "cnn", "big=vit", "cnn_b=cnn"], {"vit": 2, "big": 3}, ["cnn", "cnn_b"],
         ["big", "cnn"]),
        ("--models vit,cnn", ["vit", "cnn"], {"vit": 2}, ["cnn"], ["cnn"]),
        ("--models=cnn_b,big", ["cnn_b=cnn", "big=vit"], {"vit": 2, "big": 3}, ["cnn_b"], ["big"]),
        ("--models new=vit --args.new.depth 4", ["new=vit"], {"vit": 2, "new": 4}, [], []),
        ("--models vit,cnn --args.big.depth 4", ["vit", "cnn"], {"vit": 2}, ["cnn"], ["cnn"]),
    ],
)  # fmt: skip
def test_models_on_the_line_pick_from_the_file(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    argv: str,
    models: list[str],
    args: dict[str, int],
    match_to: list[str],
    augment_of: list[str],
) -> None:
    Path("some.yaml").write_text(PART)
    got = printed(f"compare --config some.yaml {argv}", capsys)
    assert got["models"] == models
    assert {name: of["depth"] for name, of in got["args"].items()} == args
    assert list(got["match_to"]) == match_to
    assert list(got["augment_of"]) == augment_of


def test_a_reference_of_the_file_goes_with_its_model(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("some.yaml").write_text("models: [vit, cnn, linear]\nreference: linear\n")
    command = "compare --config some.yaml"
    assert printed(command, capsys)["reference"] == "linear"
    assert printed(f"{command} --models vit,linear", capsys)["reference"] == "linear"
    assert printed(f"{command} --models vit,cnn", capsys)["reference"] is None
    assert printed(f"{command} --models vit,cnn --reference vit", capsys)["reference"] == "vit"


@pytest.mark.parametrize("command", ["compare", "budget", "fit", "test"])
def test_print_config_is_whole_and_loads_again(
    here: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    fit = command in ("fit", "test")
    change = "--model.lr 0.25" if fit else "--optim.lr 0.25"
    got = printed(f"{command} {change}", capsys)
    assert got["model" if fit else "optim"]["lr"] == 0.25
    Path("whole.yaml").write_text(yaml.safe_dump(got))
    assert printed(f"{command} --config whole.yaml", capsys) == got
    Path("part.yaml").write_text("model: {lr: 0.25}" if fit else "optim: {lr: 0.25}")
    assert printed(f"{command} --config part.yaml", capsys) == got


def test_the_command_line_overrides_the_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("some.yaml").write_text("draws: 5\nbatch_size: 7\n")
    got = printed("compare --config some.yaml --draws 2", capsys)
    assert (got["draws"], got["batch_size"]) == (2, 7)


def test_one_argument_of_a_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = {"patch_size": 2, "embed_dim": 64, "depth": 4, "num_heads": 4}
    got = printed("compare --args.vit.depth 7 --args.vit.pos_embed=none --args.cnn.depth 3", capsys)
    assert got["args"] == {"vit": whole | {"depth": 7, "pos_embed": "none"}, "cnn": {"depth": 3}}
    Path("some.yaml").write_text("args: {vit: {embed_dim: 32}, cnn: {widths: [3, 5]}}")
    got = printed("budget --config some.yaml --args.cnn.widths [5,7]", capsys)
    assert got["args"] == {"vit": {"embed_dim": 32}, "cnn": {"widths": [5, 7]}}
    assert "--args.vit.depth" in refused("compare --args.vit.depth", capsys)
