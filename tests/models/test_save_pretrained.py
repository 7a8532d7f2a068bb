"""A model as a folder: what is written and what reads it; names that wrappers put before others."""

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn

from vision_attn import SmallCNN, VisionTransformer, WindowAttention
from vision_attn.errors import UserError
from vision_attn.models.base import ImageClassifier
from vision_attn.models.registry import known_models
from vision_attn.training.classifier import Classifier

SMALL: dict[str, Any] = {"img_size": (4, 6), "in_chans": 2, "num_classes": 7}
VIT: dict[str, Any] = {"patch_size": 2, "embed_dim": 12, "depth": 1, "num_heads": 3}
ARGS = {"cnn": {"widths": (3, 5)}, "linear": {}, "conv_stem_vit": {**VIT, "patch_size": 2}}


def model_of(name: str, **args: Any) -> Any:
    torch.manual_seed(3)
    given = {**SMALL, **ARGS.get(name, VIT), **args}
    model = timm.create_model(f"vision_attn_{name}", **given)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return model.eval()


def images() -> torch.Tensor:
    return torch.randn(3, 2, 4, 6, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", known_models())
def test_a_folder_gives_the_model_back(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    model.pretrained_cfg["mean"] = (0.25, 0.75)
    model.reset_classifier(5)
    model.save_pretrained(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    wanted = model(images())
    again = type(model).from_pretrained(tmp_path)
    assert not again.training
    assert torch.equal(again(images()), wanted)
    assert again.pretrained_cfg["mean"] == (0.25, 0.75)
    by_timm = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    assert torch.equal(by_timm(images()), wanted)
    assert tuple(by_timm.pretrained_cfg["mean"]) == (0.25, 0.75)
    again.save_pretrained(tmp_path / "again")
    first, second = ((d / "config.json").read_text() for d in (tmp_path, tmp_path / "again"))
    assert first == second


def test_a_class_of_ones_own(tmp_path: Path) -> None:
    class Mine(VisionTransformer):
        def __init__(self, width: int, **others: Any) -> None:
            super().__init__(embed_dim=width, **others)

    model = copy.deepcopy(Mine(24, num_heads=3, depth=1).eval())
    model.save_pretrained(tmp_path)
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(Mine.from_pretrained(tmp_path)(x), model(x))


def test_what_is_refused(tmp_path: Path) -> None:
    windows = VisionTransformer(depth=1, attn_layer=partial(WindowAttention, window_size=4))
    with pytest.raises(UserError, match=r"has attn_layer, which config\.json cannot hold"):
        windows.save_pretrained(tmp_path / "windows")
    folder = tmp_path / "vit"
    model_of("vit").save_pretrained(folder)
    with pytest.raises(UserError, match="holds vision_attn_vit, not vision_attn_cnn"):
        SmallCNN.from_pretrained(folder)
    with pytest.raises(UserError, match=r"num_classes comes from config\.json"):
        VisionTransformer.from_pretrained(folder, num_classes=3)
    config = json.loads((folder / "config.json").read_text())

    def changed(**args: Any) -> Path:
        text = json.dumps({**config, "model_args": {**config["model_args"], **args}})
        (folder / "config.json").write_text(text)
        return folder

    for source in ("checkpoint_path", "pretrained_cfg_overlay"):
        with pytest.raises(UserError, match=f"argument {source} would load another file"):
            VisionTransformer.from_pretrained(changed(**{source: "evil.pt"}))
    with pytest.raises(UserError, match="weights do not fit") as caught:
        VisionTransformer.from_pretrained(changed(depth=2))
    assert "\n" not in str(caught.value)
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match="names no architecture"):
        VisionTransformer.from_pretrained(folder)


@pytest.mark.parametrize("where", ["no/such/folder", "nobody/nothing"])
def test_no_folder_and_no_network(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"{where} is no folder with config"):
        VisionTransformer.from_pretrained(where, local_files_only=True)


def test_push_to_hub_uploads_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: dict[str, Any] = {}

    class Api:
        def __init__(self, **_: Any) -> None: ...

        def create_repo(self, repo_id: str, **_: Any) -> Any:
            return type("Repo", (), {"repo_id": repo_id})

        def upload_folder(self, folder_path: Path, **_: Any) -> str:
            uploaded.update((p.name, p.read_bytes()) for p in folder_path.iterdir())
            return "url"

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    assert model_of("cnn").push_to_hub("me/cnn") == "url"
    assert json.loads(uploaded["config.json"])["architecture"] == "vision_attn_cnn"
    assert {"README.md", "model.safetensors"} < {*uploaded}


def renamed(model: ImageClassifier, before: str) -> dict[str, torch.Tensor]:
    return {before + name: value for name, value in model.state_dict().items()}


@pytest.mark.parametrize("before", ["_orig_mod.", "model.", "module.", "model._orig_mod."])
@pytest.mark.parametrize("name", ["vit", "cnn"])
def test_names_before_others_are_taken_off(name: str, before: str, tmp_path: Path) -> None:
    model = model_of(name)
    fresh = type(model)(**{**SMALL, **ARGS.get(name, VIT)}).eval()
    fresh.load_state_dict(renamed(model, before))
    assert torch.equal(fresh(images()), model(images()))
    torch.save(renamed(model, before), tmp_path / "weights.pt")
    by_timm = timm.create_model(
        f"vision_attn_{name}", checkpoint_path=str(tmp_path / "weights.pt"),
        **SMALL, **ARGS.get(name, VIT),
    ).eval()  # fmt: skip
    assert torch.equal(by_timm(images()), model(images()))
    module = Classifier(name, ARGS.get(name, VIT), **SMALL)
    if before == "model._orig_mod.":
        module.load_state_dict(renamed(model, before))
        assert torch.equal(module.model.eval()(images()), model(images()))


def test_other_names_are_not(tmp_path: Path) -> None:
    model = model_of("cnn")
    state = renamed(model, "_orig_mod.")
    state["head.bias"] = state.pop("_orig_mod.head.bias")
    with pytest.raises(RuntimeError, match="Unexpected key"):
        model.load_state_dict(state)
