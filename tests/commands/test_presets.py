"""Configurations that come with the package, by name from any directory."""

from pathlib import Path

import pytest
import yaml
from said import printed, refused

from vision_attn.commands import presets as module
from vision_attn.commands.presets import presets, with_presets

ROOT = Path(__file__).parents[2]


def test_a_name_is_the_file_of_that_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = presets()
    assert {"quick", "digits", "folder", "cifar10_cpu", "dense"} <= files.keys()
    line = ["--config", "quick", "--draws", "2", "--config=cifar10_cpu", "-c", "quick.yaml"]
    made = with_presets(line)
    assert made == [
        "--config", str(files["quick"]), f"--config={files['cifar10_cpu']}",
        "-c", str(files["quick"]), "--draws", "2",
    ]  # fmt: skip
    got = printed("compare --config quick --draws 2", capsys)
    wanted = yaml.safe_load((ROOT / "configs" / "quick.yaml").read_text())
    assert got["sizes"] == wanted["sizes"]
    assert got["draws"] == 2 != wanted["draws"]


def test_a_file_of_that_name_comes_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("quick").write_text("draws: 7\n")
    assert with_presets(["--config", "quick"]) == ["--config", "quick"]
    assert printed("compare --config quick", capsys)["draws"] == 7


@pytest.mark.parametrize("line", ["--draws 3 --config quick", "--config quick --draws 3"])
def test_an_option_overrides_the_file_wherever_it_stands(
    line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    got = printed(f"compare {line}", capsys)
    assert (got["draws"], got["sizes"]) == (3, printed("compare --config quick", capsys)["sizes"])
    fit = line.replace("draws", "trainer.max_epochs").replace("quick", "dense")
    assert printed(f"fit {fit}", capsys)["trainer"]["max_epochs"] == 3


def test_other_words_are_left_to_the_parser(here: Path) -> None:
    for words in (["--config"], ["--config", "a/quick"], ["--config", "{draws: 1}"], ["quick"]):
        assert with_presets(words) == words


def test_an_unknown_name_says_what_is_near(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean cifar10_cpu?" in refused("compare --config cifar_cpu", capsys)
    assert "choose one of cifar10, " in refused("fit --config zzz", capsys)
    assert "config 'zzz.yaml' is no file" in refused("compare --config zzz.yaml", capsys)


def test_an_installed_package_has_them_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the wheel is built: `configs` of the checkout lies in the package."""
    assert '"configs" = "vision_attn/configs"' in (ROOT / "pyproject.toml").read_text()
    (tmp_path / "vision_attn" / "configs").mkdir(parents=True)
    inside = tmp_path / "vision_attn" / "configs" / "mine.yaml"
    inside.touch()
    monkeypatch.setattr(module, "_PACKAGE", tmp_path / "vision_attn")
    assert presets() == {"mine": inside}
