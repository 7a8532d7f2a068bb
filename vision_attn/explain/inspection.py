"""What the overview and the page show: images, answers, rollout, weights, positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.explain.checkpoint import Trained
from vision_attn.explain.observe import (
    Heads,
    Tokens,
    attention_layers,
    heads_of,
    layer_numbers,
    observe,
    tokens_of,
)
from vision_attn.explain.rollout import attention_rollout
from vision_attn.ops.masks import row_index

__all__ = ["Inspection", "RolloutKind", "inspect_images", "token_at"]

RolloutKind = Literal["mean", "max", "gradient"]


@dataclass(frozen=True)
class Inspection:
    """Images under one model, on the CPU.

    Args:
        trained: the model.
        names: of the images.
        pixels: uint8 (n, C, h, w).
        tokens: how the model cuts them.
        layers, heads: the numbers shown.
        probabilities: (n, classes).
        rollout: relevance of each token of the grid, over the even share: (n, rows, columns).
        flow: what that relevance is of, for each image.
        similarity: cosine of the learned or computed positions of all pairs of tokens of the grid
            (N, N), or None for a model that adds none.
    """

    trained: Trained
    names: tuple[str, ...]
    pixels: Tensor
    tokens: Tokens
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    probabilities: Tensor
    rollout: Tensor
    flow: tuple[str, ...]
    similarity: Tensor | None = None

    @property
    def title(self) -> str:
        """The model's name, and that it is untrained where it is."""
        return self.trained.name + ", untrained" * self.trained.untrained

    @property
    def unit(self) -> str:
        """What a token of the grid is called: `pixel` where it is one."""
        return "pixel" if self.tokens.grid == tuple(self.pixels.shape[2:]) else "token"

    def weights(self, queries: Sequence[int] | None = None) -> list[tuple[Tensor, Tensor]]:
        """Of each layer the weights on the grid (n, H, Nq, N), and the even shares (Nq, N).

        `queries` are tokens, class and register tokens in front; None is all.
        """
        parts: dict[int, tuple[Tensor, Tensor]] = {}
        n = self.tokens.grid[0] * self.tokens.grid[1]

        def keep(layer: Heads) -> None:
            both = layer.weights(self.heads, queries), layer.even(queries)[0, 0]
            first, second = (w[..., -n:].float().cpu() for w in both)
            parts[layer.layer] = (first, second)

        with torch.no_grad():
            x = self.trained.normalise(self.pixels)
            observe(self.trained.model, x, keep, layers=self.layers)
        return [parts[i] for i in self.layers]

    def ratios(self, token: int | None) -> list[Tensor]:
        """Of each layer the weights over the even share, (n, H, rows, columns).

        Asked by a token; None is the class token, or the mean over all tokens of a model without
        one. 0 where nothing may be attended to.
        """
        if token is None and self.tokens.prefix:
            token = 0
        ratios = []
        for weights, even in self.weights(None if token is None else [token]):
            share = even.mean(0)
            ratio = torch.where(share > 0, weights.mean(2) / share, 0.0)
            ratios.append(ratio.unflatten(-1, self.tokens.grid))
        return ratios


def inspect_images(
    trained: Trained,
    names: Sequence[str],
    pixels: Tensor,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    rollout: RolloutKind = "mean",
) -> Inspection:
    """What a classifier makes of images, uint8 (n, C, h, w).

    Args:
        names: of the images.
        layers, heads: those to show; None is all.
        rollout: heads fused by their `mean` or their `max`, or the `gradient` of the score of the
            class that is most likely.

    Raises:
        UserError: a layer or head that does not exist; a model without attention layers.
    """
    every = attention_layers(trained.model)  # a model without any has no tokens either
    x = trained.normalise(pixels)
    tokens = tokens_of(trained.model, x)
    count = min(heads_of(layer) for layer in every)
    shown = row_index("heads", range(count) if heads is None else heads, count, None).tolist()
    if rollout == "gradient":
        flow = attention_rollout(trained.model, x, gradient="predicted")
    else:
        flow = attention_rollout(trained.model, x, head_fusion=rollout)
    probabilities = flow.output.softmax(-1)
    relevance = flow.relevance / flow.relevance.mean((1, 2), keepdim=True).clamp_min(1e-30)
    best = [trained.classes[i] for i in probabilities.argmax(-1).tolist()]
    of = {"mean": "mean of heads", "max": "largest head"}
    return Inspection(
        trained,
        tuple(names),
        pixels,
        tokens,
        tuple(layer_numbers(layers, len(every))),
        tuple(dict.fromkeys(shown)),
        probabilities,
        relevance,
        tuple(of.get(rollout, f"gradient of {name}") for name in best),
        _similarity(trained.model, tokens),
    )


def token_at(query: tuple[int, int], trained: Trained, tokens: Tokens) -> int:
    """The number of the token over a pixel (row, column) of the image as the model takes it."""
    for what, at, size in zip(("row", "column"), query, trained.img_size, strict=True):
        if not 0 <= at < size:
            raise UserError(f"query has {what} {at}; wanted 0 to {size - 1}, pixels of the image")
    row, col = (
        at * cells // size
        for at, cells, size in zip(query, tokens.grid, trained.img_size, strict=True)
    )
    return tokens.prefix + row * tokens.grid[1] + col


def _similarity(model: nn.Module, tokens: Tokens) -> Tensor | None:
    """Cosine of positions (1, prefix + N, D) or (1, N, D), ours or timm's, on the grid."""
    table = getattr(getattr(model, "positions", model), "pos_embed", None)
    n = tokens.grid[0] * tokens.grid[1]
    if not isinstance(table, Tensor) or table.shape[-2] < n:
        return None
    unit = F.normalize(table.detach()[0, -n:].float(), dim=-1)
    return unit @ unit.mT
