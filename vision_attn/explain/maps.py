"""What each token attends to: the weights of chosen layers, heads and queries, on the image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.explain.observe import (
    Heads,
    Tokens,
    attention_layers,
    layer_numbers,
    observe,
    tokens_of,
)
from vision_attn.ops.masks import row_index

__all__ = ["AttentionMaps", "attention_maps", "query_index"]


@dataclass(frozen=True)
class AttentionMaps:
    """Weights by layer, and where their keys lie.

    Args:
        weights: layer number -> (B, H, Nq, Nk), the heads and queries asked for in their order.
            Keys are a layer's own registers, the class and register tokens, then the grid,
            row-major.
        grid: rows and columns (h, w) of tokens.
        prefix: number of class and register tokens in front of the grid, among the queries too.
        output: what the model answered, the same as without maps.
    """

    weights: dict[int, Tensor]
    grid: tuple[int, int]
    prefix: int
    output: Any

    def image_maps(self) -> dict[int, Tensor]:
        """Layer number -> (B, H, Nq, h, w): the weights on the grid, those of prefixes left out."""
        n = self.grid[0] * self.grid[1]
        return {i: w[..., -n:].unflatten(-1, self.grid) for i, w in self.weights.items()}


@torch.no_grad()
def attention_maps(
    model: nn.Module,
    images: Tensor,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    queries: Sequence[int | tuple[int, int]] | None = None,
) -> AttentionMaps:
    """Attention weights of images (B, C, h, w) in one forward pass, without gradients.

    For the classifiers of this package, `DenseClassifier`'s encoder, and timm's ViTs. Kernels stay
    fused; the weights asked for are computed beside the output, which stays the same to the bit,
    except where a block of timm is set not to use the fused kernel: it is fused meanwhile. The
    model stays in its mode, so call `eval()` first; nothing is left behind. Weights are those
    before dropout. Windows and neighbourhoods have 0 on all keys outside.

    Args:
        layers: numbers of attention layers from the input on; None is all, as below.
        heads: numbers of heads.
        queries: tokens, counted with class and register tokens in front; or (row, column) of the
            grid. Negative numbers count from the end.

    Raises:
        UserError: a layer, head or query that does not exist; a model without attention layers.
    """
    tokens = tokens_of(model, images)
    asked = layer_numbers(layers, len(attention_layers(model)))
    index = None if queries is None else query_index(queries, tokens)
    weights: dict[int, Tensor] = {}

    def keep(layer: Heads) -> None:
        weights[layer.layer] = layer.weights(heads, index)

    output = observe(model, images, keep, layers=asked)
    return AttentionMaps({i: weights[i] for i in asked}, tokens.grid, tokens.prefix, output)


def query_index(queries: Sequence[int | tuple[int, int]], tokens: Tokens) -> list[int]:
    """Token numbers of queries, (row, column) among them.

    Raises:
        UserError: a token that does not exist; a row or column outside the grid, counted from 0.
    """
    h, w = tokens.grid
    index = []
    for query in queries:
        if isinstance(query, int):
            index.append(query)
            continue
        row, col = query
        if not (0 <= row < h and 0 <= col < w):
            raise UserError(
                f"queries has (row {row}, column {col}), but the grid is {h} x {w}; wanted rows 0"
                f" to {h - 1} and columns 0 to {w - 1}"
            )
        index.append(tokens.prefix + row * w + col)
    numbers: list[int] = row_index("queries", index, tokens.count, None).tolist()
    return numbers
