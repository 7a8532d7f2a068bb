"""Models of timm from a file, from nothing, or from a hub that cannot be reached."""

import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from made_model import data_of, numbers, page_weights, picture
from safetensors.torch import save_file
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.errors import UserError
from vision_attn.explain import attention_maps, pretrained
from vision_attn.explain.pretrained import load_timm, read_weights

ARCH = "test_vit"  # timm's own for tests, of a few thousand weights


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("weights")
    torch.manual_seed(3)
    model = timm.create_model(ARCH)
    save_file(model.state_dict(), here / "w.safetensors")
    torch.save(model.state_dict(), here / "w.pt")
    few = timm.create_model(ARCH, num_classes=7)
    torch.save({"state_dict": few.state_dict(), "epoch": 3}, here / "few.pth")
    torch.save({"model": few.state_dict()}, here / "model.pth")
    torch.save({"a": Path("x")}, here / "pickle.pt")
    torch.save({"epoch": 3}, here / "none.pt")
    torch.save({"head.weight": torch.zeros(9, 64)}, here / "other.pt")
    (here / "text.safetensors").write_text("hello")
    picture(here / "a.png", mode="RGB", size=(90, 120))
    return here


@pytest.mark.parametrize(
    ("file", "classes"),
    [("w.safetensors", 1000), ("w.pt", 1000), ("few.pth", 7), ("model.pth", 7)],
)
def test_weights_of_a_file_are_in_the_model(stored: Path, file: str, classes: int) -> None:
    trained = load_timm(f"timm:{ARCH}", str(stored / file))
    want = read_weights(stored / file)
    got = trained.model.state_dict()
    assert got.keys() == want.keys()
    for name, tensor in want.items():
        assert_close(got[name], tensor, rtol=0, atol=0)
    assert len(trained.classes) == classes == len(got["head.bias"])
    assert not trained.untrained
    assert not trained.model.training


def test_size_mean_and_deviation_are_those_of_timm(stored: Path) -> None:
    trained = load_timm(f"timm:{ARCH}", "none")
    config = timm.data.resolve_model_data_config(timm.create_model(ARCH))
    assert (trained.in_chans, *trained.img_size) == config["input_size"]
    pixels = torch.randint(0, 256, (1, *config["input_size"]), dtype=torch.uint8)
    mean, std = (torch.tensor(config[k])[:, None, None] for k in ("mean", "std"))
    assert_close(trained.normalise(pixels), (pixels / 255 - mean) / std, rtol=1e-4, atol=1e-5)
    assert trained.untrained
    assert trained.classes[0] == "tench"


REFUSED = {
    "nothing.pt": "weights .*nothing.pt is no file; give a file, --weights FILE",
    "pickle.pt": "cannot be read .UnpicklingError.",
    "text.safetensors": "text.safetensors cannot be read",
    "a.png": "a.png cannot be read",
    "none.pt": "none.pt holds no tensors",
    "other.pt": "other.pt do not fit model 'timm:test_vit'",
}


@pytest.mark.parametrize("file", REFUSED)
def test_a_file_of_another_kind_is_refused(stored: Path, file: str) -> None:
    with pytest.raises(UserError, match=REFUSED[file]) as caught:
        load_timm(f"timm:{ARCH}", str(stored / file))
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vit", "model is 'vit'; wanted timm:NAME"),
        ("timm:test_vitt", "'timm:test_vitt' is not known; try timm:test_vit"),
        ("timm:test_vit.nothing", "Invalid pretrained tag .nothing."),
    ],
)
def test_a_name_that_is_not_timms_is_refused(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_timm(name, "none")


def test_a_model_of_this_package_has_no_trained_weights() -> None:
    with pytest.raises(UserError, match="'timm:vision_attn_vit': timm has no trained weights"):
        load_timm("timm:vision_attn_vit")


class Unreachable:
    def model_info(self, *_: Any, **__: Any) -> None:
        raise OSError("Name or service\nnot known")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "HfApi", Unreachable)
    monkeypatch.setattr(pretrained, "try_to_load_from_cache", lambda *_: None)


@pytest.mark.usefixtures("offline")
def test_without_a_network_one_line_names_the_file_way(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = stored / "o.png"
    line = f"explain --model timm:{ARCH} --image {stored / 'a.png'} --out {out}"
    assert main(line.split()) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert re.search("cannot be fetched .Name or service not known.; .* --weights FILE", said)
    assert not out.exists()


def test_weights_in_the_hubs_cache_are_read_from_there(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "HfApi", Unreachable)
    cache = {"model.safetensors": str(stored / "w.safetensors")}
    monkeypatch.setattr(pretrained, "try_to_load_from_cache", lambda _, file: cache.get(file))
    trained = load_timm(f"timm:{ARCH}")
    want = read_weights(stored / "w.pt")
    assert_close(trained.model.state_dict()["head.weight"], want["head.weight"], rtol=0, atol=0)


def test_the_page_shows_the_weights_of_the_file(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.html"
    line = f"explain --model timm:{ARCH} --weights {stored / 'w.pt'} --image {stored / 'a.png'}"
    assert main([*line.split(), "--out", str(out)]) == 0
    data = data_of(out)
    assert data["model"] == f"timm:{ARCH}"
    trained = load_timm(f"timm:{ARCH}", str(stored / "w.pt"))
    shown = numbers(data["images"][0]["pixels"], "u1", *trained.img_size, 3)
    pixels = torch.from_numpy(shown.copy()).permute(2, 0, 1)[None]
    maps = attention_maps(trained.model, trained.normalise(pixels)).image_maps()
    want = torch.stack([maps[i][0] for i in data["layers"]]).flatten(-2)
    assert_close(torch.from_numpy(page_weights(data, 0)).float(), want, rtol=1e-3, atol=1e-6)


def test_an_untrained_model_says_so(stored: Path, tmp_path: Path) -> None:
    line = f"explain --model timm:{ARCH} --weights none --image {stored / 'a.png'} --out"
    assert main([*line.split(), str(tmp_path / "o.html")]) == 0
    assert data_of(tmp_path / "o.html")["model"] == f"timm:{ARCH}, untrained"
    assert main([*line.split(), str(tmp_path / "o.svg"), "--layers", "0"]) == 0
    assert "<!-- timm:test_vit, untrained, asked by" in (tmp_path / "o.svg").read_text()
