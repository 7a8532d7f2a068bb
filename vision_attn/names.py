"""Names that a user types, and what is near to a mistyped one; nothing heavy is imported."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from vision_attn.errors import UserError

__all__ = ["ARGUMENTS", "MODELS", "SHAPE", "Match", "check_model", "has_attention", "near"]

MODELS = (
    "vit", "cnn", "pixel_vit", "conv_stem_vit", "conv_init_vit", "local_vit", "linear",
)  # fmt: skip
"""Short names of the models of this package, which are registered with timm as `vision_attn_*`."""

SHAPE = ("in_chans", "img_size", "num_classes")
"""Arguments of a model that come from its data."""

_VIT = (
    "patch_size", "global_pool", "embed_dim", "depth", "num_heads", "mlp_ratio", "qkv_bias",
    "qk_norm", "init_values", "pos_embed", "stem", "lsa", "attn_layer", "mixer", "norm", "norm_eps",
    "mimetic_init", "dynamic_img_size", "drop_rate", "pos_drop_rate", "proj_drop_rate",
    "attn_drop_rate", "drop_path_rate", "scale", "projection", "score", "num_registers", "fused",
)  # fmt: skip

ARGUMENTS = {
    "vit": _VIT,
    "cnn": ("widths", "depth", "pool", "drop_rate", "global_pool", "attn_layer"),
    "pixel_vit": _VIT,
    "conv_stem_vit": _VIT,
    "conv_init_vit": (*_VIT, "alpha"),
    "local_vit": (*_VIT, "radius", "dilation"),
    "linear": ("global_pool",),
}
"""Other arguments of each model, whose classes import torch; a test compares them."""

Match = Literal["params", "flops", "both", "none"]


def has_attention(arch: str, args: Mapping[str, Any] | None = None) -> bool | None:
    """Whether a model with these arguments has attention; None where its name does not tell."""
    if (args or {}).get("mixer", "attention") != "attention":
        return False
    return arch not in ("cnn", "linear") if arch in MODELS else None


def near(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`did you mean vit?`, or `choose one of vit, cnn` where nothing is near."""
    names = list(known)
    found = get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"did you mean {found[0]}?" if found else f"choose one of {', '.join(names)}"


def check_model(name: str) -> None:
    """UserError for a model that is neither `timm:NAME` nor one of `MODELS`."""
    if name not in MODELS and not name.startswith("timm:"):
        raise UserError(
            f"model {name!r} is not known; {near(name, MODELS)} (one of timm is timm:NAME)"
        )
