"""The queries and keys of every attention layer of a classifier, seen while it runs as ever.

Our layers tell an observer what they give to `attend`; `observe_timm` sees a timm ViT. Nothing
stays behind, and outputs are the same.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.explain.capture import local_rows
from vision_attn.explain.observe_timm import watched_timm
from vision_attn.layers.heads import HeadedAttention, split_heads
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.ops.attention import Score
from vision_attn.ops.positions import rotate
from vision_attn.ops.statistics import Rows

__all__ = ["Heads", "Pair", "attention_layers", "observe"]

Pair = tuple[int, int]


@dataclass(frozen=True)
class Heads:
    """What the attention of one layer is given, norms and rotary applied.

    layer: its number, from the input on.
    q, k: (B, H, N, K) and (B, H, registers + N, K).
    mask, bias, causal, scale, score: as in `ops.attention.attend`; masks may be made row by row.
    grid_size, num_prefix_tokens, num_registers: what the tokens and keys are.
    token_size: pixels (height, width) of a token.
    """

    layer: int
    q: Tensor
    k: Tensor
    mask: Rows | None
    bias: Rows | None
    causal: bool
    scale: float
    score: Score
    grid_size: Pair
    num_prefix_tokens: int
    num_registers: int
    token_size: Pair


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a model that `observe` sees: our attention layers, or the blocks of a timm ViT.

    Raises:
        UserError: a model without such layers.
    """
    embed, blocks = getattr(model, "patch_embed", None), getattr(model, "blocks", None)
    if embed is not None and isinstance(blocks, nn.Module):
        ours: list[nn.Module] = [m for m in blocks.modules() if isinstance(m, HeadedAttention)]
        if ours or hasattr(model, "num_prefix_tokens"):
            return ours or list(blocks.children())
    raise UserError(
        f"a {type(model).__name__} has no attention layers over a grid of tokens; wanted one of our"
        " vit models or a ViT of timm"
    )


@torch.no_grad()
def observe(model: nn.Module, images: Tensor, see: Callable[[Heads], None]) -> Tensor:
    """The model's output for (B, C, h, w), in eval mode; `see` is called once for each layer.

    Modes are as before afterwards, also after an error.

    Raises:
        UserError: a model without attention layers, or whose layers do not attend over the grid.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    layers = attention_layers(model)
    where = _grid(model, images)
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        with ExitStack() as stack:
            if isinstance(layers[0], HeadedAttention):
                for i, layer in enumerate(layers):
                    stack.enter_context(_watched(layer, i, where, see))
            else:
                more = {"score": "softmax", "num_registers": 0, **where}
                told: Any = lambda **given: see(Heads(**given, **more))  # noqa: E731
                stack.enter_context(watched_timm(layers, _tokens(where), told))
            return model.forward(images)  # not model(images), which may be compiled
    finally:
        for module, mode in modes:
            module.training = mode


def _grid(model: Any, images: Tensor) -> dict[str, Any]:
    """What the tokens are: grid, prefix, pixels."""
    embed = model.patch_embed
    size = (int(images.shape[-2]), int(images.shape[-1]))
    if hasattr(embed, "grid_of"):
        grid = embed.grid_of(images)
        prefix = int(getattr(model, "cls_token", None) is not None)
    else:
        grid, prefix = tuple(embed.dynamic_feat_size(size)), int(model.num_prefix_tokens)
    return {
        "grid_size": grid,
        "num_prefix_tokens": prefix,
        "token_size": tuple(embed.patch_size),
    }


def _tokens(where: dict[str, Any]) -> int:
    """How many there are, prefix included."""
    h, w = where["grid_size"]
    return int(where["num_prefix_tokens"] + h * w)


@contextmanager
def _watched(
    layer: Any, number: int, where: dict[str, Any], see: Callable[[Heads], None]
) -> Iterator[None]:
    """One of our layers with an observer."""
    scale = layer.head_dim**-0.5 if layer.scale is None else layer.scale
    same = {"layer": number, "scale": scale, "score": layer.score, **where}

    def told(**given: Any) -> None:
        see(Heads(num_registers=layer.num_registers, **given, **same))

    def near(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        bound = inspect.signature(layer.forward).bind(*args, **given).arguments
        q, k, _v = split_heads(layer.qkv(bound["x"]), 3, layer.num_heads)
        q, k = layer.q_norm(q), layer.k_norm(k)
        if bound.get("rotary") is not None:
            q, k = rotate(q, bound["rotary"]), rotate(k, bound["rotary"])
        rows = partial(local_rows, layer, bound["grid_size"], device=q.device)
        told(
            q=q,
            k=k,
            mask=lambda part: rows(part)[0],
            bias=None if layer.relative_position_bias_table is None else lambda part: rows(part)[1],
            causal=False,
        )

    if isinstance(layer, (NeighborhoodAttention, WindowAttention)):
        hook = layer.register_forward_pre_hook(near, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()
        return
    layer.observer = told
    try:
        yield
    finally:
        del layer.observer
