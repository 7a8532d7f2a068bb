"""What fit, test and predict say at their end, and what they write."""

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from said import refused
from shared import tree

from vision_attn.cli import main
from vision_attn.commands.ends import data_words, find_checkpoint, measures, next_commands
from vision_attn.errors import UserError
from vision_attn.explain.checkpoint import load_classifier

# Lightning's notes on devices and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

LAST = "runs/fit/version_0/checkpoints/last.ckpt"
LINE = "--data.size 40 --trainer.accelerator cpu --trainer.enable_progress_bar false"


def command(line: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that a command prints, to both streams."""
    capsys.readouterr()
    assert main(shlex.split(line)) == 0
    said = capsys.readouterr()
    return (said.err + said.out).splitlines()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which `fit` has trained a CNN of two channels for two epochs."""
    root = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        model = "--model.name cnn --model.args '{widths: [2]}' --trainer.max_epochs 2"
        assert main(shlex.split(f"fit {model} {LINE}")) == 0
    return root


@pytest.fixture
def place(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(fitted)
    return fitted


def test_fit_ends_with_result_checkpoint_and_next_command(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = command(f"fit --ckpt_path last --trainer.max_epochs 3 {LINE}", capsys)
    head, *_, result, saved, test, explain = lines
    new = LAST.replace("_0", "_1")
    assert "Tip" not in "\n".join(lines)
    assert "dirpath" not in "\n".join(lines)
    assert any(line.startswith("cnn: ") and line.endswith(" parameters") for line in lines), head
    values = pd.read_csv("runs/fit/version_1/metrics.csv").dropna(subset="val_acc").iloc[-1]
    assert result == f"val_acc {values['val_acc']:.3f}, val_loss {values['val_loss']:.3f}"
    assert saved == f"checkpoint: {new}"
    assert test == f"next: vision-attn test --ckpt_path {new} --data.size 40"
    assert explain.strip() == f"vision-attn explain --ckpt {new} --image IMAGE --out maps.png"
    assert find_checkpoint("last") == Path(new)  # the newest run's


@pytest.mark.parametrize("word", ["last", "best"])
def test_test_measures_the_newest_and_makes_no_folder(
    place: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    before = tree(place)
    lines = command(f"test --ckpt_path {word} {LINE}", capsys)
    assert any(line.startswith("test_acc 0.") for line in lines)
    assert not [line for line in lines if "0000" in line or "━" in line]  # no table of 17 digits
    named = find_checkpoint(word)
    assert named.name == f"{word}.ckpt"
    assert f"checkpoint: {named}" in lines
    assert tree(place) == before


def test_the_root_directory_is_obeyed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--model.name linear --trainer.max_steps 1 --trainer.default_root_dir other"
    command(f"fit {small} {LINE}", capsys)
    assert Path("other", *Path(LAST).parts[1:]).is_file()
    assert not Path("runs").exists()
    command(f"predict --ckpt_path last --trainer.default_root_dir other {LINE}", capsys)
    assert len(pd.read_csv("other/predictions.csv")) == 599
    assert [p.name for p in here.iterdir()] == ["other"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Grey images in two folders, and what is none."""
    rng = np.random.default_rng(3)
    for name, side in (("b.png", 8), ("a.png", 11), ("deep/c.png", 8), (".hidden/d.png", 8)):
        file = tmp_path / "photos" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (side, side), np.uint8)).save(file)
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    return tmp_path / "photos"


def test_predict_takes_files_without_labels(
    place: Path, photos: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "some.csv"
    one = photos / "b.png"
    lines = command(f"predict --ckpt_path {LAST} --image {photos} {one} --out {out}", capsys)
    table = pd.read_csv(out, dtype={"predicted": str})
    files = [photos / "a.png", one, photos / "deep" / "c.png", one]
    assert table["image"].tolist() == [str(f) for f in files]
    trained = load_classifier(Path(LAST))
    pixels = torch.from_numpy(np.asarray(Image.open(one)).copy())[None, None]
    with torch.no_grad():
        p = trained.model(trained.normalise(pixels)).softmax(-1)[0]
    row = table.iloc[1]
    assert row["predicted"] == trained.classes[int(p.argmax())]
    assert row["probability"] == pytest.approx(float(p.max()), abs=2e-6)
    changed, digest, where = lines
    assert "11 x 11 pixels cut and resized to 8 x 8" in changed
    counts = {part.rpartition(" ")[0]: int(part.rpartition(" ")[2]) for part in digest.split(", ")}
    assert counts == table["predicted"].value_counts().to_dict()
    assert where == f"predictions of 4 images are in {out}"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("--image none.png", "image none.png is no file"),
        ("--image empty", "image empty is a folder without images"),
        ("--image empty --out x.txt", "out x.txt ends in .txt; wanted .csv"),
        ("--image empty --trainer.devices 1", "unrecognized arguments: --trainer.devices"),
    ],
)
def test_predict_refuses_in_one_line(
    fitted: Path, here: Path, capsys: pytest.CaptureFixture[str], line: str, wanted: str
) -> None:
    Path("empty").mkdir()
    assert wanted in refused(f"predict --ckpt_path {fitted / LAST} {line}", capsys)


def test_words_of_the_data_are_typed_again() -> None:
    line = shlex.split("--model.lr 1 --data.root 'my images' --config=a.yaml -c b --trainer.x 2")
    again = ["--data.root", "my images", "--config=a.yaml", "-c", "b"]
    assert data_words(line) == again
    said = next_commands("a b.ckpt", line, "fit", classifier=False)
    assert said == f"next: vision-attn test --ckpt_path 'a b.ckpt' {shlex.join(again)}"
    after = next_commands("c", line, "test", classifier=True).splitlines()
    assert [words.split()[-7 if "maps" in words else -5] for words in after] == [
        "explain",
        "predict",
    ]


def test_measures_have_three_digits() -> None:
    values = {"val_loss": torch.tensor(1.23456), "val_acc": 0.5, "train_loss": 1}
    assert measures(values, "val") == "val_acc 0.500, val_loss 1.235"
    assert measures(values, "test") == ""


def test_a_checkpoint_that_is_not_there_is_said(here: Path) -> None:
    with pytest.raises(UserError, match=r"no run of fit has left one in x/fit; give its file"):
        find_checkpoint("best", "x")
    assert find_checkpoint("some.ckpt") == Path("some.ckpt")
