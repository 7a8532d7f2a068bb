"""The command line of explain: mistakes are one line, and nothing is written for them."""

from pathlib import Path

import pytest
import torch
from made_model import ARGS, data_of, picture, save

from vision_attn.cli import main
from vision_attn.explain import page


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every kind."""
    here = tmp_path_factory.mktemp("kinds")
    save(here / "m.ckpt", **ARGS)
    save(here / "cnn.ckpt", "cnn")
    save(here / "resnet.ckpt", "timm:resnet18")
    picture(here / "a.png")
    picture(here / "rgb.png", mode="RGB")
    (here / "broken.png").write_bytes((here / "a.png").read_bytes()[:60])
    (here / "cut.png").write_bytes((here / "a.png").read_bytes()[:90])
    (here / "text.ckpt").write_text("hello")
    (here / "there.png").write_text("mine")
    (here / "empty").mkdir()
    good = torch.load(here / "m.ckpt", weights_only=True)
    torch.save({"state_dict": {}}, here / "no.ckpt")
    torch.save(
        good | {"hyper_parameters": {"patch_size": 2, "img_size": (4, 4)}}, here / "seg.ckpt"
    )
    torch.save({k: v for k, v in good.items() if k != "ImageData"}, here / "old.ckpt")
    torch.save(good | {"state_dict": {}}, here / "empty.ckpt")
    torch.save(good | {"evil": Path("x")}, here / "pickle.ckpt")
    return here


MISTAKES = {
    "--ckpt none.ckpt": "none.ckpt is no file",
    "--ckpt text.ckpt": "text.ckpt is no checkpoint of this program",
    "--ckpt a.png": "a.png is no checkpoint of this program",
    "--ckpt no.ckpt": "no.ckpt is no checkpoint of this program (KeyError)",
    "--ckpt pickle.ckpt": "is no checkpoint of this program (UnpicklingError)",
    "--ckpt seg.ckpt": "seg.ckpt holds no classifier: its model has no name",
    "--ckpt old.ckpt": "does not say the mean and deviation",
    "--ckpt empty.ckpt": "weights do not fit model 'vit'",
    "--ckpt cnn.ckpt": "SmallCNN has no attention layer that can be shown",
    "--ckpt resnet.ckpt": "ResNet has no attention layer that can be shown",
    "--ckpt null": "give one of --ckpt FILE and --model timm:NAME",
    "--model timm:test_vit": "give one of --ckpt FILE and --model timm:NAME",
    "--weights none": "weights is for --model; a checkpoint has its own",
    "--ckpt null --model vit": "model is 'vit'; wanted timm:NAME",
    "--image none.png": "image none.png is no file",
    "--image broken.png": "broken.png",
    "--image a.png cut.png": "cut.png",
    "--image text.ckpt": "image text.ckpt cannot be read",
    "--image rgb.png": "rgb.png has 3 channels (RGB), the model takes 1",
    "--image empty": "image empty is a folder without images",
    "--layers 3": "layers has 3, but there are 3; wanted 0 to 2",
    "--layers 0,9": "layers has 9, but there are 3; wanted 0 to 2",
    "--heads 7": "heads has 7, but there are 2; wanted 0 to 1",
    "--heads one": "heads is 'one'; wanted whole numbers as 0,2",
    "--query 3": "query '3' has 1 numbers; wanted row,column",
    "--query 10,0": "query has row 10; wanted 0 to 9",
    "--query 3,14": "query has column 14; wanted 0 to 13",
    "--query 0,-1": "query has column -1; wanted 0 to 13",
    "--scale log": "scale is log; wanted",
    "--rollout min": "rollout is min; wanted",
    "--laiers 0": "--laiers",
    "--out none/o.png": "there is no directory none",
    "--out o.jpg": "ends in .jpg; wanted .png, .pdf, .svg or .html",
    "--out o": "ends in nothing",
    "--out there.png": "there.png is there already",
}


@pytest.mark.parametrize("more", MISTAKES)
def test_a_mistake_on_the_command_line_is_one_line(
    kinds: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    monkeypatch.chdir(kinds)
    before = {p: p.read_bytes() for p in kinds.iterdir() if p.is_file()}
    args = f"explain --ckpt m.ckpt --image a.png --out o.html {more}"
    assert main(args.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert MISTAKES[more] in said.err
    assert {p: p.read_bytes() for p in kinds.iterdir() if p.is_file()} == before


def test_a_page_too_large_says_what_to_do(
    kinds: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(page, "MAX_BYTES", 8_000)
    monkeypatch.chdir(kinds)
    assert main(["explain", "--ckpt", "m.ckpt", "--image", "a.png", "--out", "o.html"]) == 2
    said = capsys.readouterr().err
    assert "1 images x 3 layers x 2 heads x 35 x 35 weights take" in said
    assert not (kinds / "o.html").exists()


def test_the_command_writes_every_kind(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shots = [str(kinds / "a.png"), str(kinds / "rgb.png")]
    args = ["explain", "--ckpt", str(kinds / "m.ckpt"), "--image", *shots, "--convert", "true"]
    names = {"o.png", "o.html", "o.pdf", "o.svg"}
    for name in names:
        out = str(tmp_path / name)
        for more in (
            ["--layers", "2,0", "--heads", "1", "--query", "3,4"],
            ["--overwrite", "true", "--layers", "1"],
        ):
            assert main([*args, "--out", out, *more]) == 0
            assert capsys.readouterr().out.splitlines() == [
                f"{shots[1]}: 3 channels (RGB) converted to 1",
                f"maps of 2 images are in {out}",
            ]
    assert data_of(tmp_path / "o.html")["layers"] == [1]
    assert {p.name for p in tmp_path.iterdir()} == names
