"""What constructors take: options are declared once, few are named, unknown ones are refused."""

import importlib
import inspect
import pkgutil
from typing import Any

import pytest
from torch import nn

import vision_attn.layers
import vision_attn.models
from vision_attn.errors import UserError
from vision_attn.layers.attention import LocalitySelfAttention, MultiHeadSelfAttention
from vision_attn.layers.base import DEFAULTS, AttentionOptions
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.cross import MultiHeadAttention
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.layers.spatial import SelfAttention2d
from vision_attn.models.dense import DenseClassifier
from vision_attn.models.detr import SetPredictor
from vision_attn.models.local_vit import LocalVisionTransformer
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.checks import arguments_of


def classes() -> list[type]:
    """Every class that the modules of layers and models define."""
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}")
        for package in (vision_attn.layers, vision_attn.models)
        for info in pkgutil.iter_modules(package.__path__)
    ]
    every = {v for m in modules for v in vars(m).values() if inspect.isclass(v)}
    return sorted((c for c in every if c.__module__.startswith("vision_attn")), key=str)


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_constructors_name_at_most_ten_arguments(cls: type) -> None:
    named = [
        p.name
        for p in inspect.signature(cls.__init__).parameters.values()
        if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    assert len(named) <= 10 or cls is VisionTransformer, named


def test_there_are_constructors_to_count() -> None:
    assert {EncoderBlock, VisionTransformer, SetPredictor, SelfAttention2d} <= set(classes())


def test_every_option_of_attention_has_a_default() -> None:
    assert set(DEFAULTS) == set(arguments_of(MultiHeadSelfAttention)) - {"dim", "num_heads"}
    assert AttentionOptions.__total__ is False


@pytest.mark.parametrize(
    ("build", "wrong", "near"),
    [
        (lambda **o: MultiHeadSelfAttention(8, 2, **o), "qkv_bais", "qkv_bias"),
        (lambda **o: LocalitySelfAttention(8, 2, **o), "regsters", "num_registers"),
        (lambda **o: MultiHeadAttention(8, 2, **o), "k_dim", "kdim"),
        (lambda **o: WindowAttention(8, 2, **o), "window", "window_size"),
        (lambda **o: NeighborhoodAttention(8, 2, **o), "kernel", "kernel_size"),
        (lambda **o: EncoderBlock(8, 2, **o), "fusd", "fused"),
        (lambda **o: SelfAttention2d(8, **o), "num_head", "num_heads"),
        (lambda **o: VisionTransformer(8, depth=0, **o), "embed_dm", "embed_dim"),
        (lambda **o: LocalVisionTransformer(8, **o), "radus", "radius"),
        (lambda **o: DenseClassifier(8, **o), "drop_path", "drop_path_rate"),
        (lambda **o: SetPredictor(8, **o), "attn_dropp", "attn_drop"),
    ],
)
def test_an_unknown_argument_is_refused_with_near_names(build: Any, wrong: str, near: str) -> None:
    with pytest.raises(UserError, match=f"no argument '{wrong}'; try .*{near}"):
        build(**{wrong: 1})


def test_a_block_takes_any_attention_and_gives_it_its_options() -> None:
    block = EncoderBlock(12, 3, 2.0, attn_layer=NeighborhoodAttention, kernel_size=5, fused=False)
    assert isinstance(block.attn, NeighborhoodAttention)
    assert (block.attn.kernel_size, block.attn.fused) == ((5, 5), False)
    with pytest.raises(UserError, match="no argument 'kernel_size'"):
        EncoderBlock(12, 3, kernel_size=5)


def test_a_vit_takes_one_attention_or_one_for_each_block() -> None:
    both = [MultiHeadSelfAttention, LocalitySelfAttention]
    model = VisionTransformer(8, embed_dim=12, depth=2, attn_layer=both)
    assert [type(block.attn) for block in model.blocks] == both
    for wrong in (both[:1], "lsa", [None, None]):
        with pytest.raises(UserError, match=r"attn_layer is .*wanted one layer, or 2 in a list"):
            VisionTransformer(8, embed_dim=12, depth=2, attn_layer=wrong)  # type: ignore[arg-type]


def test_a_vit_without_options_has_the_modules_that_it_had() -> None:
    names = {name for name, _ in VisionTransformer(8, embed_dim=12, depth=1).named_parameters()}
    assert "blocks.0.attn.qkv.weight" in names
    assert isinstance(VisionTransformer(8, embed_dim=12, depth=0).blocks, nn.Sequential)
