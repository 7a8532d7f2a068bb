"""Attention for feature maps: SAGAN (Zhang et al. 2018), non-local (Wang et al. 2018), multi-head.

The three are one formula, `x + gate(W attend(q, k, v))` with 1 x 1 convolutions q, k, v, W, and
differ in widths, scale, score and gate. The gate is closed at the start: the layer is the identity.
"""

import math
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm as with_spectral_norm
from typing_extensions import TypedDict, Unpack

from vision_attn.errors import UserError
from vision_attn.layers.base import check_heads, check_scale
from vision_attn.layers.modes import in_eval
from vision_attn.ops.attention import attend
from vision_attn.ops.checks import check_arguments, check_flag, check_real, check_whole
from vision_attn.ops.names import plain_names
from vision_attn.ops.tokens import image_to_pixels, pixels_to_image

__all__ = ["SelfAttention2d", "add_attention"]

Kind = Literal["sagan", "nonlocal", "multihead"]
Model = TypeVar("Model", bound=nn.Module)


class KindOptions(TypedDict, total=False):
    """What a kind of `SelfAttention2d` sets, and a call may change; None is what the kind sets.

    num_heads: heads; must divide both widths.
    qk_dim, v_dim: channels of queries and keys, and of values, all heads together. SAGAN's common
        variant has v_dim = C/2.
    bias: bias of the four convolutions.
    scale: factor on q.k; 1 or, for `multihead`, 1/sqrt(head width).
    gate: `gamma`, a scalar; `layer_scale`, a factor a channel (Touvron et al. 2021); `norm`, a
        batch norm.
    """

    num_heads: int | None
    qk_dim: int | None
    v_dim: int | None
    bias: bool | None
    scale: float | None
    gate: Literal["gamma", "layer_scale", "norm"] | None


class _Preset(NamedTuple):
    """What a paper sets: width of q and k, of v, as C divided by it; heads; scale; bias; gate."""

    qk_ratio: int
    v_ratio: int
    num_heads: int
    scale: float | None
    bias: bool
    gate: Literal["gamma", "norm"]


_PRESETS = {
    "sagan": _Preset(8, 8, 1, 1.0, False, "gamma"),
    "nonlocal": _Preset(2, 2, 1, 1.0, True, "norm"),
    "multihead": _Preset(1, 1, 8, None, True, "gamma"),
}


class SelfAttention2d(nn.Module):
    """Self-attention over all pixels of a feature map: (B, C, h, w) -> (B, C, h, w).

    `sagan`: `x_i + gamma W_v sum_j softmax_j((W_f x_j).(W_g x_i)) W_h x_j`, widths C/8, no biases,
    gamma from 0. `nonlocal`: widths C/2, `x_i + BN(W_z y_i)`, the norm's scale from 0, softmax
    (embedded Gaussian) or `score="dot"`. `multihead`: `MultiHeadSelfAttention` on the pixels, times
    gamma.

    Args:
        dim: channels C.
        kind: `sagan`, `nonlocal` or `multihead`.
        pool: 2 x 2 max-pool on keys and values, a quarter of the work; an odd last row or column is
            pooled by itself.
        spectral_norm: on the four convolutions (Miyato et al. 2018).
        score: `softmax`, or `dot`: q.k divided by the number of keys, whose cost is linear.
        attn_drop: dropout on the softmax weights, while training.
        init_values: start of the gate; 0 makes the layer the identity.
        fused: use torch's fused kernel where it can; False can be differentiated twice.
        changes: what differs from the kind; see `KindOptions`.

    Raises:
        UserError: (a ValueError) an unknown kind, score or gate, heads that do not divide a width,
            input of other channels.
    """

    gamma: Tensor | None

    @plain_names
    def __init__(
        self,
        dim: int,
        kind: Kind = "sagan",
        *,
        pool: bool = False,
        spectral_norm: bool = False,
        score: Literal["softmax", "dot"] = "softmax",
        attn_drop: float = 0.0,
        init_values: float = 0.0,
        fused: bool = True,
        **changes: Unpack[KindOptions],
    ) -> None:
        super().__init__()
        check_arguments(self, changes)
        check_whole(dim=dim)
        check_real(0, 1, attn_drop=attn_drop)
        check_real(-math.inf, init_values=init_values)
        check_scale(changes.get("scale"))
        check_flag(pool=pool, spectral_norm=spectral_norm, fused=fused)
        preset = _PRESETS[_known("kind", kind, tuple(_PRESETS))]
        own: KindOptions = {
            "num_heads": preset.num_heads,
            "qk_dim": max(1, dim // preset.qk_ratio),
            "v_dim": max(1, dim // preset.v_ratio),
            "scale": preset.scale,
            "bias": preset.bias,
            "gate": preset.gate,
        }
        setting: Any = own | {k: v for k, v in changes.items() if v is not None}
        self.dim, self.kind, self.pool, self.fused = dim, kind, pool, fused
        self.score = _known("score", score, ("softmax", "dot"))
        self.num_heads, self.scale = setting["num_heads"], setting["scale"]
        head_dim = check_heads(setting["qk_dim"], self.num_heads, "qk_dim")
        check_heads(setting["v_dim"], self.num_heads, "v_dim")
        self.scale = head_dim**-0.5 if self.scale is None else self.scale
        self.attn_drop = nn.Dropout(attn_drop)
        wrap = with_spectral_norm if spectral_norm else nn.Identity()
        qk, width, bias = setting["qk_dim"], setting["v_dim"], setting["bias"]
        self.q = wrap(nn.Conv2d(dim, qk, 1, bias=bias))
        self.k = wrap(nn.Conv2d(dim, qk, 1, bias=bias))
        self.v = wrap(nn.Conv2d(dim, width, 1, bias=bias))
        self.proj = wrap(nn.Conv2d(width, dim, 1, bias=bias))
        gate_name = _known("gate", setting["gate"], ("gamma", "layer_scale", "norm"))
        self.norm: nn.Module = nn.Identity()
        self.gamma = None
        if gate_name == "norm":
            self.norm = nn.BatchNorm2d(dim)
            nn.init.constant_(self.norm.weight, init_values)
        else:
            shape = () if gate_name == "gamma" else (dim, 1, 1)
            self.gamma = nn.Parameter(torch.full(shape, float(init_values)))

    @plain_names
    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h, w)."""
        if x.ndim != 4 or x.shape[1] != self.dim:
            beside = f"; for tokens (B, N, {x.shape[-1]}) use MultiHeadSelfAttention({x.shape[-1]})"
            raise UserError(
                f"x has shape {tuple(x.shape)}, wanted (B, {self.dim}, h, w): this layer has dim"
                f" {self.dim}{beside if x.ndim == 3 else ''}"
            )
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.pool:
            k, v = (F.max_pool2d(t, 2, ceil_mode=True) for t in (k, v))
        q, k, v = (
            image_to_pixels(t).unflatten(2, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, v)
        )
        if self.score == "dot":
            y = q @ (k.mT @ v * (self.scale / k.shape[-2]))
        else:
            drop = self.attn_drop.p if self.training else 0.0
            y = attend(q, k, v, scale=self.scale, dropout_p=drop, fused=self.fused)
        y = pixels_to_image(y.transpose(1, 2).flatten(2), (x.shape[2], x.shape[3]))
        y = self.norm(self.proj(y))
        return x + (y if self.gamma is None else self.gamma * y)


def add_attention(
    model: Model,
    stage: str,
    kind: Kind = "sagan",
    *,
    channels: int | None = None,
    img_size: int | tuple[int, int] = 64,
    **options: Any,
) -> Model:
    """Put a `SelfAttention2d` behind a stage of a ConvNet, in place; returns the model.

    The layer is `self_attention2d` inside the stage, so no other weight changes its name. With the
    gate at 0 the model's output in eval mode stays the same, bit by bit.

    Args:
        model: any network in which the stage gives feature maps (B, C, h, w).
        stage: name of a module, such as `layer3` or `features.4`; see `model.named_modules()`.
        kind, options: see `SelfAttention2d`; an unknown option is refused.
        channels: C of the stage. None: taken from running a black image through the model once.
        img_size: pixels of that image, one number or (height, width).

    Raises:
        UserError: no such stage (near names are listed), a stage that gives no feature map, that
            was not reached, that has such a layer already, or that runs over its children.
    """
    names = dict(model.named_modules())
    if stage not in names or not stage:
        near = get_close_matches(stage, [n for n in names if n], n=5, cutoff=0.4)
        tops = [n for n, _ in model.named_children()]
        raise UserError(f"stage {stage!r} is not in the model; try {', '.join(near or tops)}")
    target = names[stage]
    plain = type(target).forward is nn.Sequential.forward
    if not plain and isinstance(target, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        raise UserError(
            f"stage {stage!r} is a {type(target).__name__} that runs over its children;"
            " name a module inside it or behind it"
        )
    if hasattr(target, "self_attention2d"):
        raise UserError(f"stage {stage!r} has attention already; name another stage")
    if channels is None:
        channels = _find_channels(model, target, stage, img_size)
    layer = SelfAttention2d(channels, kind, **options)
    like = next(target.parameters(), next(model.parameters(), torch.empty(0)))
    target.add_module("self_attention2d", layer.to(like).train(target.training))
    if not plain:
        target.register_forward_hook(_attend_after)
    return model


def _attend_after(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    """Forward hook of a stage; it looks the layer up, so that copies of the model use their own."""
    return module.self_attention2d(output)  # type: ignore[operator]


def _find_channels(
    model: nn.Module, target: nn.Module, stage: str, img_size: int | tuple[int, int]
) -> int:
    """Channels of a stage's output, from one image in eval mode; the model is left as it was."""
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    if first is None:
        raise UserError("the model has no Conv2d that shows its channels; give channels=")
    size = (img_size, img_size) if isinstance(img_size, int) else img_size
    outputs: list[Any] = []
    handle = target.register_forward_hook(lambda module, args, output: outputs.append(output))
    try:
        with in_eval(model), torch.no_grad():
            model(first.weight.new_zeros(1, first.in_channels, *size))
    except (RuntimeError, ValueError, AssertionError) as e:
        raise UserError(f"an image of {size} pixels does not run: {e}; give channels=") from e
    finally:
        handle.remove()
    if not outputs or not isinstance(outputs[0], Tensor) or outputs[0].ndim != 4:
        got = (
            "no call"
            if not outputs
            else f"{getattr(outputs[0], 'shape', type(outputs[0]).__name__)}"
        )
        raise UserError(f"stage {stage!r} gave {got}, wanted one feature map (B, C, h, w)")
    return outputs[0].shape[1]


def _known(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UserError(f"{name}={value!r} is not known; choose one of {', '.join(choices)}")
    return value
