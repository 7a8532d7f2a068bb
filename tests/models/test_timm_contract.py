"""Every registered model keeps timm's contract: its description, heads, features, tracing."""

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.data import resolve_model_data_config
from timm.models import FeatureInfo, get_notrace_functions, get_notrace_modules, save_for_hf
from timm.optim import param_groups_layer_decay
from torch import Tensor, nn
from torch.testing import assert_close
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from vision_attn.errors import UserError
from vision_attn.models.base import ImageClassifier
from vision_attn.models.cnn import SmallCNN
from vision_attn.models.linear import LinearClassifier
from vision_attn.models.registry import known_models

SIZE = (12, 20)
VIT: dict[str, Any] = {"embed_dim": 36, "depth": 3}
ARGS: dict[str, dict[str, Any]] = {
    "cnn": {"widths": (3, 5, 7)},
    "linear": {},
    "pixel_vit": {**VIT, "img_size": (4, 6)},
}
NAMES = known_models()
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "class token": ("vit", {"global_pool": "token", "pos_embed": "rel_bias"}),
    "map": ("vit", {"global_pool": "map", "stem": "pooled", "pos_embed": "rotary"}),
    "batch norm": ("vit", {"norm": "batch", "mixer": "conv", "dynamic_img_size": True}),
    "shifted": ("vit", {"stem": "shifted", "lsa": True, "num_registers": 2}),
    "max pools": ("cnn", {"pool": "max", "depth": 1}),
    "tables": ("local_vit", {"pos_embed": "rel_bias", "global_pool": "map"}),
}
EVERY = [*NAMES, *MORE]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def make(name: str, **args: Any) -> Any:
    """A small model of 2 channels in eval mode by timm, its zero weights drawn."""
    model, more = MORE.get(name, (name, {}))
    given = {"img_size": SIZE, "in_chans": 2, "num_classes": 7}
    given |= ARGS.get(model, VIT) | more | args
    return drawn(timm.create_model(f"vision_attn_{model}", **given).eval())


def drawn(model: Any) -> Any:
    for p in model.parameters():
        if p.abs().max() < 1e-4:
            nn.init.normal_(p, std=0.3)
    return model


def images(model: Any, b: int = 2) -> Tensor:
    return torch.randn(b, *model.pretrained_cfg["input_size"])


@pytest.mark.parametrize("name", EVERY)
def test_the_description_is_that_of_the_model(name: str) -> None:
    model = make(name)
    want = (2, *ARGS.get(name, {}).get("img_size", SIZE))
    told = resolve_model_data_config(model)
    assert told["input_size"] == want
    assert len(told["mean"]) == len(told["std"]) == 2
    assert model.default_cfg == model.pretrained_cfg
    assert model.pretrained_cfg["num_classes"] == model.num_classes == 7
    names = model.state_dict().keys()
    first = model.pretrained_cfg["first_conv"]
    for end in (model.pretrained_cfg["classifier"], *([first] if first else [])):
        assert f"{end}.weight" in names
    if first:
        seen = model.get_submodule(first)
        width = seen.in_channels if isinstance(seen, nn.Conv2d) else seen.in_features
        assert width % 2 == 0


def test_a_model_built_by_its_class_is_described_too() -> None:
    model = LinearClassifier((3, 5), 4)
    assert resolve_model_data_config(model)["input_size"] == (4, 3, 5)
    assert resolve_model_data_config(model)["mean"] == (0.5,) * 4
    stated = make("vit", pretrained_cfg_overlay={"mean": (0.1, 0.2), "std": (0.3, 0.4)})
    assert resolve_model_data_config(stated)["mean"] == (0.1, 0.2)


def test_a_registered_name_has_a_configuration() -> None:
    for name in NAMES:
        assert timm.get_pretrained_cfg_value(f"vision_attn_{name}", "input_size") == (3, 32, 32)
    assert not timm.list_pretrained("vision_attn_*")
    with pytest.raises(UserError, match=r"no trained weights; .*pretrained_cfg_overlay"):
        timm.create_model("vision_attn_cnn", pretrained=True)


@pytest.mark.parametrize("name", EVERY)
def test_checkpointing_changes_neither_output_nor_gradients(name: str) -> None:
    model = make(name).train()
    x = images(model)
    runs = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        y = model(x)
        y.square().mean().backward()
        runs.append((y.detach(), [p.grad.clone() for p in model.parameters()]))
    assert runs[0][0].isfinite().all()
    assert_close(*runs)


@pytest.mark.parametrize("name", EVERY)
def test_heads_come_and_go(name: str) -> None:
    model = make(name)
    x = images(model)
    features = model.forward_features(x)
    pooled = model.forward_head(features, pre_logits=True)
    assert features.shape[1 if features.ndim == 4 else -1] == model.num_features
    assert pooled.shape == (2, model.head_hidden_size)
    assert_close(model(x), model.get_classifier()(pooled))
    model.double().train().reset_classifier(11)
    assert model.head.weight.dtype == torch.float64
    assert model.head.training
    assert model.float().eval()(x).shape == (2, 11)
    model.reset_classifier(0)
    assert (model.num_classes, isinstance(model.head, nn.Identity)) == (0, True)
    assert_close(model(x), pooled)
    model.reset_classifier(0, "")
    assert_close(model(x), features)
    bare = make(name, num_classes=0, global_pool="")
    assert bare(x).shape == features.shape or "token" in str(MORE.get(name))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("vit", (0, "map"), "'map' needs parameters that this model has not"),
        ("vit", (0, "token"), "'token' needs parameters that this model has not"),
        ("vit", (5, ""), "wanted num_classes=0 with it"),
        ("cnn", (0, "max"), "'max' is not known; choose one of avg"),
        ("local_vit", (0, "token"), "'token'"),
    ],
)
def test_a_head_that_cannot_be_is_refused(name: str, change: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make(name).reset_classifier(*change)


def test_pooling_may_change_to_what_needs_no_parameters() -> None:
    model = make("class token")
    tokens = model.forward_features(images(model))
    model.reset_classifier(0, "avg")
    assert_close(model.forward_head(tokens), tokens[:, 1:].mean(1))
    model = make("map")
    model.reset_classifier(3, "avg")
    assert model.attn_pool is None
    assert model(images(model)).shape == (2, 3)


def hooked(model: Any, x: Tensor) -> list[Tensor]:
    """What the modules that `feature_info` names give, recorded by hooks."""
    outputs: list[Tensor] = []
    handles = [
        model.get_submodule(info["module"]).register_forward_hook(
            lambda module, args, output: outputs.append(output)
        )
        for info in model.feature_info
    ]
    model.forward_features(x)
    for handle in handles:
        handle.remove()
    return outputs


def as_map(y: Tensor, prefix: int, grid: Any) -> Tensor:
    return y if y.ndim == 4 else y[:, prefix:].transpose(1, 2).reshape(len(y), -1, *grid)


@pytest.mark.parametrize("name", [n for n in EVERY if n != "linear"])
def test_intermediates_are_the_layers_outputs(name: str) -> None:
    model = make(name)
    x = images(model)
    grid = None if isinstance(model, SmallCNN) else model.patch_embed.grid_size
    prefix = model.num_prefix_tokens
    final, maps = model.forward_intermediates(x)
    assert_close(final, model.forward_features(x))
    layers = hooked(model, x)
    assert_close(maps, [as_map(y, prefix, grid) for y in layers])
    info = FeatureInfo(model.feature_info, (0, 1, 2))
    for y, width, stride in zip(maps, info.channels(), info.reduction(), strict=True):
        assert y.shape[1] == width
        assert y.shape[2:] == tuple(math.ceil(side / stride) for side in x.shape[2:])
    flat = model.forward_intermediates(x, [0, -1], output_fmt="NLC", intermediates_only=True)
    assert_close(flat, [maps[i].flatten(2).mT for i in (0, 2)])
    last = model.forward_intermediates(x, 1, norm=True, intermediates_only=True)
    assert_close(last[0], as_map(final, prefix, grid))
    early = model.forward_intermediates(x, [1], stop_early=True, intermediates_only=True)
    assert_close(early, [maps[1]])
    assert_close(model.get_intermediate_layers(x, [0, 2], reshape=True), [maps[0], maps[2]])
    model.set_grad_checkpointing()
    assert_close(model.forward_intermediates(x)[1], maps)


def test_intermediates_give_the_class_token_beside_the_map() -> None:
    model = make("class token")
    x = images(model)
    (_, token), (_, last) = model.get_intermediate_layers(x, 2, return_prefix_tokens=True)
    layers = hooked(model, x)
    assert_close([token, last], [layers[1][:, :1], layers[2][:, :1]])
    with pytest.raises(UserError, match="output_fmt='NHWC' is not known; choose one of NCHW, NLC"):
        model.forward_intermediates(x, output_fmt="NHWC")
    with pytest.raises(UserError, match="VisionTransformer has 3 layers: feature index 5 is out"):
        model.forward_intermediates(x, [5])


@pytest.mark.parametrize("name", [n for n in EVERY if n != "linear"])
@pytest.mark.parametrize("wanted", [{}, {"out_indices": (1,)}])
def test_features_only_gives_the_same_maps(name: str, wanted: dict[str, Any]) -> None:
    whole = make(name)
    net = make(name, features_only=True, **wanted)
    left = {k: v for k, v in whole.state_dict().items() if k in net.model.state_dict()}
    net.model.load_state_dict(left)
    assert len(net.model.layers) == (2 if wanted else 3)
    x = torch.randn(2, *net.pretrained_cfg["input_size"])
    maps = whole.forward_intermediates(x, intermediates_only=True)
    assert_close(net(x), maps[1:2] if wanted else maps)
    assert net.feature_info.channels() == [y.shape[1] for y in net(x)]
    assert "head.weight" not in net.model.state_dict()


def test_a_model_without_layers_says_so() -> None:
    with pytest.raises(UserError, match="LinearClassifier has 0 layers"):
        make("linear", features_only=True)


@pytest.mark.parametrize("name", ["cnn", "class token"])
def test_pruning_takes_off_what_is_behind(name: str) -> None:
    model = make(name)
    x, before = images(model), sum(p.numel() for p in model.parameters())
    want = model.forward_intermediates(x, [0, 1], intermediates_only=True)
    assert model.prune_intermediate_layers([0, -2], prune_norm=True) == [0, 1]
    assert_close(model.forward_intermediates(x, intermediates_only=True), want)
    assert len(model.feature_info) == 2
    assert sum(p.numel() for p in model.parameters()) < before
    assert not [n for n, _ in model.named_parameters() if n.startswith(("norm", "head"))]
    assert not [n for n, _ in model.named_parameters() if ".2." in n[:11]] or name == "cnn"


@pytest.mark.parametrize("name", [n for n in EVERY if n != "batch norm"])
def test_traced_by_fx_it_is_the_same(name: str) -> None:
    model = make(name)
    options: Any = {
        "leaf_modules": get_notrace_modules(),
        "autowrap_functions": get_notrace_functions(),
        "param_shapes_constant": True,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # train and eval graphs differ in dropout
        train, evaluated = get_graph_node_names(model, tracer_kwargs=options)
        nodes = {"train_return_nodes": train[-1:], "eval_return_nodes": evaluated[-1:]}
        traced = create_feature_extractor(model, **nodes, tracer_kwargs=options)
    x = images(model, 3)
    (y,) = traced(x).values()
    assert_close(y, model(x), rtol=0, atol=0)
    (y,) = traced.train()(x).values()
    y.square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_images_of_another_size_are_refused_by_a_traced_model_too() -> None:
    for name in ("vit", "linear"):
        model = make(name)
        options: Any = {"leaf_modules": get_notrace_modules()}
        traced = create_feature_extractor(model, ["head"], tracer_kwargs=options)
        with pytest.raises(UserError, match=r"images of shape \(2, 12, 8\) .* this model takes"):
            traced(torch.randn(1, 2, 12, 8))


@pytest.mark.parametrize("name", [n for n in EVERY if n != "linear"])
def test_layer_decay_slows_each_layer_more_than_the_next(name: str) -> None:
    model: ImageClassifier = make(name)
    groups = param_groups_layer_decay(model, 0.1, model.no_weight_decay(), layer_decay=0.5)
    names = {id(p): n for n, p in model.named_parameters()}
    scale = {names[id(p)]: g["lr_scale"] for g in groups for p in g["params"]}
    assert scale.keys() == set(names.values())
    part = model.layer_names[0]
    for i in range(3):
        own = {v for n, v in scale.items() if n.startswith((f"{part}.{i}.", f"rel_bias.{i}."))}
        assert own == {0.5 ** (3 - i)}, i
    assert scale["head.weight"] == 1
    if not isinstance(model, SmallCNN):
        assert scale["norm.weight"] == 0.5  # timm counts it to the last block
        assert {v for n, v in scale.items() if n.startswith("patch_embed")} == {0.5**4}


@pytest.mark.parametrize("name", NAMES)
def test_saved_for_the_hub_and_built_again(name: str, tmp_path: Path) -> None:
    model = make(name)
    save_for_hf(model, tmp_path)
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    x = images(model)
    assert_close(again(x), model(x))
    assert type(again) is type(model)
