"""This package's attention in a model of timm, with the model's weights."""

import math
import warnings
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from timm.layers import AttentionPoolLatent
from timm.layers.pos_embed_sincos import apply_rot_embed_cat
from timm.models import register_notrace_module
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.base import split_heads

__all__ = ["FromTimm", "is_attention", "replace_attention"]

Model = TypeVar("Model", bound=nn.Module)


def replace_attention(model: Model, *, strict: bool = True) -> Model:
    """Put `MultiHeadSelfAttention` in place of a timm model's attention; returns the model.

    The parameters are the same objects under the same names, so a state or an optimizer of the
    model still fits, and its output stays the same but for rounding. Taken are the self-attention
    of ViT, DeiT, BEiT, EVA, DINO, CLIP, PiT and their like, that in the windows of Swin (1 and 2)
    and DaViT, and the plain one in CAFormer and VOLO. Swin pads and shifts its windows itself, so
    its pads take weight as before. Pooling by `AttentionPoolLatent`, which this package has from
    timm, stays.

    Args:
        model: changed in place; set other image sizes before.
        strict: with False attention that cannot be taken stays, and a warning names it.

    Raises:
        UserError: attention that cannot be taken, each kind with its reason, and nothing is
            changed; a model without any.
    """
    found = {name: m for name, m in model.named_modules() if _is_own_attention(m)}
    reasons = {name: reason for name, m in found.items() if (reason := _refusal(m))}
    if not found:
        raise UserError(f"a {type(model).__name__} has no attention of timm to replace")
    if reasons:
        text = f"of {len(found)} attentions {len(reasons)} cannot be replaced: {_listed(reasons)}"
        if strict or len(reasons) == len(found):
            left = "" if len(reasons) == len(found) else "; strict=False replaces the others"
            raise UserError(text + left)
        warnings.warn(text, stacklevel=2)
    for name in found.keys() - reasons.keys():
        parent, _, child = name.rpartition(".")
        model.get_submodule(parent).register_module(child, _KINDS[_kind(found[name])](found[name]))
    return model


def is_attention(module: nn.Module) -> bool:
    """Timm's name for it, in every family: heads, or queries, keys and values from one layer."""
    heads = getattr(module, "num_heads", None)
    return isinstance(heads, int) or isinstance(getattr(module, "qkv", None), nn.Module)


@register_notrace_module
class FromTimm(MultiHeadSelfAttention):
    """`MultiHeadSelfAttention` of the parts of an attention module of timm, called as in timm.

    Beside its own it has what some of timm's have: biases of queries and values alone, three
    projections in place of one, rotary positions in timm's layout, and a norm before the output
    projection.

    Args:
        source: the module; its parameters, buffers and submodules are taken as they are.
    """

    # parts that a module of timm may have
    qkv: Any
    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    q_bias: Tensor
    k_bias: Tensor
    v_bias: Tensor
    logit_scale: Tensor
    cpb_mlp: nn.Module
    relative_coords_table: Tensor
    relative_position_bias_table: Tensor
    relative_position_index: Tensor

    def __init__(self, source: Any) -> None:
        with torch.device("meta"):
            super().__init__(source.proj.out_features, source.num_heads)
        own, self._modules = self._modules, {}
        for parts in ("_parameters", "_buffers", "_modules"):
            getattr(self, parts).update(getattr(source, parts))  # in their order, for optimizers
        for name, module in own.items():  # timm leaves out what would do nothing
            if name not in self._modules:
                self._modules[name] = None if name == "qkv" else module
        self._non_persistent_buffers_set |= source._non_persistent_buffers_set
        self.num_prefix_tokens = getattr(source, "num_prefix_tokens", 0)
        self.rotate_half = getattr(source, "rotate_half", False)
        self.train(source.training)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        rope: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        **beside: Any,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, D); `rope` as timm has it, the rest as in the base class."""
        return super().forward(x, attn_mask, is_causal, rotary=rope, **beside)

    def project(self, x: Tensor, rotary: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: (B, N, D) -> three times (B, H, N, K)."""
        if self.qkv is None:
            each = (p(x) for p in (self.q_proj, self.k_proj, self.v_proj))
            q, k, v = (split_heads(t, 1, self.num_heads)[0] for t in each)
        else:
            bias = self.qkv.bias
            if self._parameters.get("q_bias") is not None:
                bias = torch.cat((self.q_bias, self.k_bias, self.v_bias))
            q, k, v = split_heads(F.linear(x, self.qkv.weight, bias), 3, self.num_heads)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotary is not None:
            q, k = (self._turned(t, rotary).type_as(v) for t in (q, k))
        return q, k, v

    def join(self, y: Tensor) -> Tensor:
        """(B, N, D) of all heads -> (B, N, D)."""
        norm = self._modules.get("norm")
        return super().join(y if norm is None else norm(y))

    def _turned(self, t: Tensor, rope: Tensor) -> Tensor:
        n = self.num_prefix_tokens
        layout = {"half": True} if self.rotate_half else {}  # older versions of timm have one
        turned = apply_rot_embed_cat(t[:, :, n:], rope, **layout)
        return torch.cat((t[:, :, :n], turned), 2)


class _Plain(FromTimm):
    """Called with a mask in the second place: timm's `Attention`."""

    def forward(  # type: ignore[override]
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, **beside: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, D)."""
        return super().forward(x, None, attn_mask, is_causal, **beside)


class _Biased(FromTimm):
    """With a bias of its own, or one that all blocks share: BEiT and ViTs with relative bias."""

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        shared_rel_pos_bias: Tensor | None = None,
        shared_rel_pos: Tensor | None = None,
        **beside: Any,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, D)."""
        bias = shared_rel_pos_bias if shared_rel_pos is None else shared_rel_pos
        own: Any = self._modules.get("rel_pos")
        if own is not None:
            bias = own.get_bias()
        elif self._parameters.get("relative_position_bias_table") is not None:
            table = _bias(self.relative_position_bias_table, self.relative_position_index)
            bias = table if bias is None else table + bias
        return super().forward(x, attn_mask=bias, **beside)


class _Windows(FromTimm):
    """In windows, where `mask` keeps what the shift brings together apart: Swin."""

    def window_bias(self) -> Tensor:
        """The bias of a window, (1, H, N, N)."""
        return _bias(self.relative_position_bias_table, self.relative_position_index)

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor | None = None, **beside: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B * windows, N, D), mask (windows, N, N) of 0 and -inf -> (B * windows, N, D)."""
        bias = self.window_bias()
        if mask is not None:
            bias = (bias + mask[:, None]).repeat(len(x) // len(mask), 1, 1, 1)
        return super().forward(x, attn_mask=bias, **beside)


class _CosineWindows(_Windows):
    """By the cosine of queries and keys, with a bias that an MLP makes: Swin 2."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.scale = 1.0  # the learned one is in the queries

    def window_bias(self) -> Tensor:
        """The bias of a window, (1, H, N, N)."""
        table = self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)
        return 16 * _bias(table, self.relative_position_index).sigmoid()

    def project(self, x: Tensor, rotary: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: (B, N, D) -> three times (B, H, N, K)."""
        q, k, v = super().project(x, rotary)
        factor = self.logit_scale.clamp(max=math.log(100)).exp()
        return F.normalize(q, dim=-1) * factor, F.normalize(k, dim=-1), v


class _OnMap(FromTimm):
    """On maps with their channels last: VOLO."""

    def forward(self, x: Tensor, **beside: Any) -> Any:  # type: ignore[override]
        """(B, h, w, D) -> (B, h, w, D)."""
        y = super().forward(x.flatten(1, 2), **beside)
        return y if isinstance(y, tuple) else y.view(x.shape)


_KINDS: dict[str, type[FromTimm]] = {
    "attention.Attention": _Plain,
    "vision_transformer.Attention": _Plain,  # where older versions of timm have it
    "attention.AttentionRope": FromTimm,
    "eva.EvaAttention": FromTimm,
    "beit.Attention": _Biased,
    "vision_transformer_relpos.RelPosAttention": _Biased,
    "swin_transformer.WindowAttention": _Windows,
    "swin_transformer_v2.WindowAttention": _CosineWindows,
    "davit.WindowAttention": _Plain,
    "metaformer.Attention": _Plain,
    "volo.Attention": _OnMap,
}


def _bias(table: Tensor, index: Tensor) -> Tensor:
    """(rows, H) at (N, N) -> (1, H, N, N)."""
    return table[index].permute(2, 0, 1)[None]


def _attends(module: nn.Module) -> bool:
    """Whether it is attention, or holds it; positions have heads too."""
    positions = type(module).__module__.startswith("timm.layers.pos_embed")
    return is_attention(module) and not positions


def _is_own_attention(module: nn.Module) -> bool:
    """Attention itself, no block that holds it, and not ours."""
    inside = (m for m in module.modules() if m is not module)
    ours = isinstance(module, MultiHeadSelfAttention | AttentionPoolLatent)
    return not ours and _attends(module) and not any(map(_attends, inside))


def _kind(module: nn.Module) -> str:
    """A class of timm by its file and name."""
    path = f"{type(module).__module__}.{type(module).__qualname__}"
    return ".".join(path.split(".")[-2:]) if path.startswith("timm.") else path


def _refusal(module: Any) -> str | None:
    """Why a module cannot be taken, if it cannot."""
    if _kind(module) not in _KINDS:
        return f"{_kind(module)} is no self-attention known here"
    inner, outer = module.proj.in_features, module.proj.out_features
    if inner != outer or outer % module.num_heads:
        return f"its {module.num_heads} heads are {inner} wide together, its tokens {outer}"
    if getattr(module, "gate", None) is not None:
        return "it has a gate"
    if getattr(module, "num_kv_groups", 1) != 1:
        return "several heads share a key"
    return None


def _listed(reasons: dict[str, str]) -> str:
    """Each reason with the first module that has it, and how many more."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    more = {r: f" and {len(n) - 1} more" if len(n) > 1 else "" for r, n in names.items()}
    return "; ".join(f"{n[0]}{more[r]}: {r}" for r, n in names.items())
