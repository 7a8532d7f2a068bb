"""What is attention: by name for models of this package, by their modules for others."""

import pytest

from vision_attn.models.registry import _attends, attends, known_models
from vision_attn.names import has_attention


def test_models_of_this_package() -> None:
    assert {name for name in known_models() if not attends(name)} == {"cnn", "linear"}


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("resnet18", False), ("convnext_atto", False), ("mixer_s32_224", False),
        ("efficientnet_b0", False), ("seresnet18", False), ("poolformer_s12", False),
        ("vit_tiny_patch16_224", True), ("deit_tiny_patch16_224", True),
        ("swin_tiny_patch4_window7_224", True), ("cait_xxs24_224", True),
        ("xcit_nano_12_p8_224", True), ("coatnet_nano_rw_224", True),
        ("eva02_tiny_patch14_224", True), ("efficientvit_b0", True),
        ("halonet26t", True), ("mobilevit_xxs", True),
    ],
)  # fmt: skip
def test_models_of_timm(name: str, has: bool) -> None:
    assert attends(f"timm:{name}") is has


def test_the_names_of_ours_say_what_the_models_hold() -> None:
    for name in known_models():
        assert has_attention(name) is _attends(name)
    assert has_attention("vit", {"mixer": "conv"}) is False
    assert has_attention("timm:resnet18") is None


def test_a_name_that_is_not_registered_attends_to_nothing() -> None:
    assert not attends("vit_of_mine")
    assert not attends("timm:attention_is_all")
