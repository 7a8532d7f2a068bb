"""What the multi-head layers share: widths, norms, registers, weights, output projection."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import TypedDict

from vision_attn.errors import UserError
from vision_attn.layers.pairs import Chosen, pad_keys
from vision_attn.ops.attention import SCORES, AttendOptions, Pairs, Score, attend, attention_weights
from vision_attn.ops.checks import (
    LARGEST,
    check_choice,
    check_flag,
    check_real,
    check_whole,
    near_divisors,
)
from vision_attn.ops.positions import rotate

__all__ = ["DEFAULTS", "AttentionOptions", "HeadOptions", "HeadedAttention", "PerHeadLinear",
           "check_heads", "check_scale", "check_tokens", "projection_layer",
           "split_heads"]  # fmt: skip


def check_heads(dim: int, num_heads: int, name: str = "dim") -> int:
    """The width of a head, or a UserError that names both numbers and suggests others."""
    check_whole(**{name: dim})
    check_whole(-LARGEST, num_heads=num_heads)  # below 1 is named with numbers that fit
    if num_heads < 1 or dim % num_heads:
        raise UserError(
            f"{name} {dim} is not divisible by num_heads {num_heads};"
            f" try num_heads {near_divisors(dim, num_heads)}"
        )
    return dim // num_heads


def check_tokens(x: Tensor, dim: int, name: str = "tokens") -> None:
    """A UserError unless x is (B, N, D), D the `dim`; for a map it names the layer for maps."""
    if x.ndim == 3 and x.shape[-1] == dim:
        return
    shape, width = tuple(x.shape), x.shape[-1] if x.ndim else 0
    want = f"wanted (B, N, {dim})"
    if x.ndim == 4 and width == dim != shape[1]:
        raise UserError(f"got a map {shape}, {want}: channels are last, so use x.flatten(1, 2)")
    if x.ndim == 4:
        advice = f"for maps (B, C, h, w) use SelfAttention2d({shape[1]}), or x.flatten(2).mT"
        raise UserError(f"got a map {shape}, {want}: {advice}")
    if x.ndim == 2:
        raise UserError(f"{name} of shape {shape} have no batch, {want}; use x[None]")
    raise UserError(
        f"tokens have width {width}, but this layer has dim {dim}; {want}, got {name} of shape"
        f" {shape}"
    )


def check_scale(scale: float | None) -> None:
    """A UserError unless the factor on the scores is None or a finite number."""
    if scale is not None:
        check_real(-math.inf, scale=scale)


def split_heads(x: Tensor, parts: int, num_heads: int) -> tuple[Tensor, ...]:
    """(B, N, parts*D) -> parts of (B, H, N, K). One copy joins the gradients of the parts."""
    B, N, width = x.shape
    split = x.reshape(B, N, parts, num_heads, width // (parts * num_heads))
    return tuple(part.transpose(1, 2) for part in split.unbind(2))


class PerHeadLinear(nn.Module):
    """Projections in which head h sees only its own channels: (B, N, D) -> (B, N, parts*D).

    The output is laid out as that of `nn.Linear(D, parts * D)`. It equals such a layer with
    block-diagonal weights, at 1/H of the parameters. `in_dim` is the width of the input, if not D.
    """

    def __init__(
        self, dim: int, num_heads: int, parts: int, bias: bool = True, *, in_dim: int | None = None
    ) -> None:
        super().__init__()
        width = check_heads(dim, num_heads)
        fan_in = width if in_dim is None else check_heads(in_dim, num_heads, "input width")
        self.weight = nn.Parameter(torch.empty(parts, num_heads, width, fan_in))
        self.bias = nn.Parameter(torch.zeros(parts * dim)) if bias else None
        nn.init.uniform_(self.weight, -(fan_in**-0.5), fan_in**-0.5)  # nn.Linear's own range

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, parts*D)."""
        heads = x.unflatten(-1, (self.weight.shape[1], self.weight.shape[3]))
        y = torch.einsum("bnhk,phjk->bnphj", heads, self.weight).flatten(2)
        return y if self.bias is None else y + self.bias


def projection_layer(
    kind: str, dim: int, num_heads: int, parts: int, bias: bool, in_dim: int | None = None
) -> nn.Module:
    """`full`: a linear layer; `per_head`: a `PerHeadLinear`. Both (B, N, in) -> (B, N, parts*D)."""
    check_choice(("full", "per_head"), projection=kind)
    if kind == "full":
        return nn.Linear(dim if in_dim is None else in_dim, parts * dim, bias=bias)
    return PerHeadLinear(dim, num_heads, parts, bias=bias, in_dim=in_dim)


class HeadOptions(TypedDict, total=False):
    """How heads work, by keyword; `DEFAULTS` has the values of those left out.

    scale: factor on the scores; None is 1/sqrt(K).
    projection: `full`, each head projects the whole token; `per_head`, head h projects its own K
        channels (3 D^2 / H parameters instead of 3 D^2).
    score: `softmax`, `relu` or `sigmoid`; see `ops.attention.attention_weights`.
    num_registers: learned keys and values beside the tokens' own, in each head, which every query
        may attend to whatever the masks say (Sukhbaatar et al. 2019).
    fused: use torch's fused kernel where it can; False can be differentiated twice.
    """

    scale: float | None
    projection: Literal["full", "per_head"]
    score: Score
    num_registers: int
    fused: bool


class AttentionOptions(HeadOptions, total=False):
    """The options of every multi-head layer: those of `HeadOptions`, and

    qkv_bias: bias in the query, key and value projections.
    qk_norm: normalise queries and keys over K with `norm_layer`.
    proj_bias: bias in the output projection.
    attn_drop: dropout on the weights, while training only.
    proj_drop: dropout after the output projection.
    norm_layer: the norm of `qk_norm`.
    """

    qkv_bias: bool
    qk_norm: bool
    proj_bias: bool
    attn_drop: float
    proj_drop: float
    norm_layer: Callable[[int], nn.Module]


DEFAULTS: AttentionOptions = {
    "qkv_bias": False,
    "qk_norm": False,
    "proj_bias": True,
    "attn_drop": 0.0,
    "proj_drop": 0.0,
    "norm_layer": nn.LayerNorm,
    "scale": None,
    "projection": "full",
    "score": "softmax",
    "num_registers": 0,
    "fused": True,
}


class HeadedAttention(nn.Module):
    """From queries, keys and values of heads to the output; a subclass says who attends to whom.

    Args:
        dim, num_heads: width D and heads H.
        inputs: the projections by name, each with how many times D it gives and the width it takes;
            they come first among the parameters.
        options: see `AttentionOptions`.

    Raises:
        UserError: (a ValueError) heads that do not divide a width, an unknown option, which is
            named, or one out of its range.
    """

    qkv: nn.Module  # of the subclasses for self-attention
    registers: Tensor | None
    observer: Callable[..., None] | None = None
    """Called, by keyword, with the arguments and the result of `attend`: q, k, v, y, mask, bias,
    causal; a local layer gives grid_size for the last three. For maps and measures."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        inputs: Mapping[str, tuple[int, int]],
        options: AttentionOptions,
    ) -> None:
        super().__init__()
        self.dim, self.num_heads, self.head_dim = dim, num_heads, check_heads(dim, num_heads)
        settings: AttentionOptions = {**DEFAULTS, **options}
        check_choice(SCORES, score=settings["score"])
        check_scale(settings["scale"])
        check_real(0, 1, attn_drop=settings["attn_drop"], proj_drop=settings["proj_drop"])
        flags = ("qkv_bias", "qk_norm", "proj_bias", "fused")
        check_flag(**{name: settings[name] for name in flags})  # type: ignore[literal-required]
        check_whole(0, num_registers=settings["num_registers"])
        self.scale, self.score, self.fused = settings["scale"], settings["score"], settings["fused"]
        kind, bias = settings["projection"], settings["qkv_bias"]
        for name, (parts, width) in inputs.items():
            layer = projection_layer(kind, dim, num_heads, parts, bias, width)
            self.add_module(name, layer)
        norm = settings["norm_layer"] if settings["qk_norm"] else nn.Identity
        self.q_norm, self.k_norm = norm(self.head_dim), norm(self.head_dim)
        self.attn_drop = nn.Dropout(settings["attn_drop"])
        self.proj = nn.Linear(dim, dim, bias=settings["proj_bias"])
        self.proj_drop = nn.Dropout(settings["proj_drop"])
        self.num_registers = settings["num_registers"]
        self.registers = None
        if self.num_registers:
            shape = (2, num_heads, self.num_registers, self.head_dim)
            self.registers = nn.Parameter(nn.init.trunc_normal_(torch.empty(shape), std=0.02))

    def project(self, x: Tensor, rotary: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of self-attention: (B, N, D) -> three times (B, H, N, K)."""
        q, k, v = split_heads(self.qkv(x), 3, self.num_heads)
        q, k = self.q_norm(q), self.k_norm(k)
        return (q, k, v) if rotary is None else (rotate(q, rotary), rotate(k, rotary), v)

    def join(self, y: Tensor) -> Tensor:
        """The output of all heads side by side to that of the layer: (B, N, D) -> (B, N, D)."""
        return self.proj_drop(self.proj(y))

    @property
    def how(self) -> AttendOptions:
        """How this layer calls `attend`, dropout while training only."""
        drop = self.attn_drop.p if self.training else 0.0
        return {"scale": self.scale, "score": self.score, "dropout_p": drop, "fused": self.fused}

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, pairs: Pairs, return_weights: bool, **which: Chosen
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, H, Nq, K), (B, H, Nk, K) twice, after the norms -> (B, Nq, D), and the weights."""
        if not return_weights and any(chosen is not None for chosen in which.values()):
            raise UserError(
                "weight_heads and weight_queries choose among the weights;"
                " give return_weights=True with them"
            )
        if self.registers is not None:  # in front, so that causal still ends at the last key
            own_k, own_v = self.registers.to(k.dtype).expand(k.shape[0], -1, -1, -1, -1).unbind(1)
            pairs = pad_keys(pairs, k.shape[-2], self.num_registers)
            k, v = torch.cat((self.k_norm(own_k), k), -2), torch.cat((own_v, v), -2)
        y = attend(q, k, v, **pairs, **self.how)
        if self.observer is not None:
            self.observer(q=q, k=k, v=v, y=y, **pairs)
        y = self.join(y.transpose(1, 2).flatten(2))
        if not return_weights:
            return y
        return y, attention_weights(q, k, **pairs, scale=self.scale, score=self.score, **which)
