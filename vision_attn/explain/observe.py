"""The attention of every layer of a model, recorded during one ordinary forward pass.

Our layers hand an observer what they give to the attention op, and what it gives back;
`observe_timm` records a ViT of timm. Nothing stays behind, and outputs are the same.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.explain.observe_timm import recorded_timm
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.local import LocalAttention
from vision_attn.ops.attention import Score, attention_weights
from vision_attn.ops.masks import row_index
from vision_attn.ops.statistics import Rows

__all__ = ["Heads", "Tokens", "attention_layers", "heads_of", "layer_numbers", "observe",
           "tokens_of"]  # fmt: skip

OURS = (MultiHeadSelfAttention, LocalAttention)
Pair = tuple[int, int]


@dataclass(frozen=True)
class Tokens:
    """How a model cuts images of one size into tokens.

    Args:
        grid: rows and columns (h, w) of tokens.
        prefix: number of class and register tokens in front of them.
        size: pixels (height, width) of a token.
        pool: what the model reads out, `avg` or `token`, or another name of timm's.
    """

    grid: Pair
    prefix: int
    size: Pair
    pool: str

    @property
    def count(self) -> int:
        """All tokens N."""
        return self.prefix + self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class Heads:
    """Input and output of the attention of one layer, norms and rotary applied.

    Args:
        layer: its number, from the input on.
        q: (B, H, N, K).
        k, v: (B, H, registers + N, K).
        y: (B, H, N, K), before the projection.
        mask, bias, causal, scale, score: as in `ops.attention.attend`; mask and bias may be
            functions that make rows.
        registers: number of the layer's own keys, in front.
    """

    layer: int
    q: Tensor
    k: Tensor
    v: Tensor
    y: Tensor
    mask: Rows | None
    bias: Rows | None
    causal: bool
    scale: float
    score: Score = "softmax"
    registers: int = 0

    def weights(
        self, heads: Sequence[int] | None = None, queries: Sequence[int] | None = None
    ) -> Tensor:
        """(B, H, Nq, registers + N), of some heads and queries as in `attention_weights`."""
        q, mask, bias, rows = self._rows(queries)
        return attention_weights(
            q, self.k, mask=mask, bias=bias, causal=self.causal, scale=self.scale,
            score=self.score, heads=heads, queries=rows,
        )  # fmt: skip

    def even(self, queries: Sequence[int] | None = None) -> Tensor:
        """The weights if all keys that a query may attend to weighed the same, summing to 1.

        (1, 1, Nq, registers + N), of the first image and head: masks of images are alike.
        """
        q, mask, bias, rows = self._rows(queries)
        if bias is not None:
            bias = torch.where(bias.isneginf(), bias, 0)
        mask, bias = (t if t is None else t[(slice(1),) * (t.ndim - 2)] for t in (mask, bias))
        q, k = (torch.zeros_like(t[:1, :1]) for t in (q, self.k))
        return attention_weights(q, k, mask=mask, bias=bias, causal=self.causal, queries=rows)

    def _rows(
        self, queries: Sequence[int] | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Sequence[int] | None]:
        """q, mask, bias, and the queries still to be picked of them.

        Where masks are made row by row only the rows of `queries` are, and nothing is left to pick.
        """
        q, mask, bias = self.q, self.mask, self.bias
        if not (callable(mask) or callable(bias)):
            return q, mask, bias, queries
        rows = range(q.shape[-2]) if queries is None else queries
        mask, bias = (t(rows) if callable(t) else t for t in (mask, bias))
        if queries is not None:
            q = q.index_select(-2, row_index("queries", rows, q.shape[-2], q.device))
        return q, mask, bias, None


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The self-attention layers of a model in their order: ours, or the blocks of a ViT of timm.

    Raises:
        UserError: a model without attention, or with a kind that is not known here.
    """
    ours: list[nn.Module] = [m for m in model.modules() if isinstance(m, OURS)]
    if ours:
        return ours
    for owner in model.modules():
        blocks = getattr(owner, "blocks", None)
        if hasattr(owner, "num_prefix_tokens") and isinstance(blocks, nn.Module):
            return list(blocks.children())
    raise UserError(
        f"{type(model).__name__} has no attention layer that can be shown; wanted a model of this"
        " package or a ViT of timm"
    )


def heads_of(layer: nn.Module) -> int:
    """The number of heads of one of `attention_layers`."""
    return next(int(m.num_heads) for m in layer.modules() if hasattr(m, "num_heads"))  # type: ignore[arg-type]


def layer_numbers(layers: Sequence[int] | None, count: int) -> list[int]:
    """Numbers from 0 on of the layers asked for, in that order, each once; None is all.

    Raises:
        UserError: a layer that does not exist.
    """
    asked = range(count) if layers is None else layers
    return list(dict.fromkeys(row_index("layers", asked, count, None).tolist()))


def tokens_of(model: nn.Module, images: Tensor) -> Tokens:
    """Grid, prefix, size and pooling of a model for images (B, C, h, w)."""
    ways = ("grid_of", "dynamic_feat_size")  # of our patch embedding, and of timm's
    owners = (m for m in model.modules()
              if any(hasattr(getattr(m, "patch_embed", None), way) for way in ways))  # fmt: skip
    owner: Any = next(owners, None)
    if owner is None or images.ndim != 4:
        raise UserError(
            f"{type(model).__name__} on images of shape {tuple(images.shape)}: wanted a model with"
            " patch_embed and images (B, C, h, w)"
        )
    embed = owner.patch_embed
    ours = hasattr(embed, "grid_of")
    rows, cols = embed.grid_of(images) if ours else embed.dynamic_feat_size(images.shape[-2:])
    size = embed.patch_size
    covered = (rows * size[0], cols * size[1])
    if not hasattr(embed, "backbone") and any(
        n < whole for n, whole in zip(covered, images.shape[-2:], strict=True)
    ):
        raise UserError(
            f"images of {images.shape[-2]} x {images.shape[-1]} pixels: patches of {size[0]} x"
            f" {size[1]} leave the last ones unseen; take a size that they divide"
        )
    one = int(getattr(owner, "cls_token", None) is not None)
    return Tokens(
        (rows, cols),
        int(getattr(owner, "num_prefix_tokens", one)),
        (size[0], size[1]),
        str(getattr(owner, "global_pool", "")),
    )


def observe(
    model: nn.Module,
    images: Tensor,
    record: Callable[[Heads], None],
    *,
    layers: Sequence[int] | None = None,
) -> Any:
    """The model's output for (B, C, h, w); `record` is called once for each layer asked for.

    Gradients, modes and random numbers are the caller's. A compiled model runs uncompiled. A block
    of timm that is set not to use the fused kernel uses it meanwhile, which changes its output by
    rounding.

    Raises:
        UserError: a model without attention layers, or whose layers do not attend over the grid; a
            layer that does not exist.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    every = attention_layers(model)
    chosen = layer_numbers(layers, len(every))
    with ExitStack() as stack:
        if isinstance(every[0], OURS):
            for i in chosen:
                every[i].observer = _observer(i, every[i], record)  # type: ignore[assignment]
                stack.callback(delattr, every[i], "observer")
        else:
            tokens = tokens_of(model, images).count
            calls = recorded_timm(every, chosen, tokens, lambda **call: record(Heads(**call)))
            stack.enter_context(calls)
        return model.forward(images)  # not model(images), which may be compiled


def _observer(i: int, layer: Any, record: Callable[[Heads], None]) -> Callable[..., None]:
    """The observer of one of our layers, which makes `Heads` of what the layer hands it."""
    same = {
        "scale": layer.head_dim**-0.5 if layer.scale is None else layer.scale,
        "score": layer.score,
        "registers": layer.num_registers,
    }

    def observer(*, grid_size: Pair | None = None, **call: Any) -> None:
        if grid_size is not None:  # the mask and bias that a local layer equals, made row by row
            tabled = layer.relative_position_bias_table is not None
            bias = partial(layer.bias, grid_size) if tabled else None
            call |= {"mask": partial(layer.mask, grid_size), "bias": bias, "causal": False}
        record(Heads(layer=i, **call, **same))

    return observer
