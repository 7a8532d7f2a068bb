"""What the overview and the page show: images, answers, rollout, weights, positions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.explain.checkpoint import Trained, load_classifier, read_images
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

__all__ = ["View", "explain"]


@dataclass(frozen=True)
class View:
    """Images under one model, on the CPU.

    pixels: uint8 (n, C, h, w); probabilities: (n, classes); rollout: (n, rows, columns).
    layers, heads: the numbers shown. similarity: cosine of the learned or computed positions of all
    pairs of grid tokens (N, N), or None for a model that adds none.
    """

    trained: Trained
    names: tuple[str, ...]
    pixels: Tensor
    tokens: Tokens
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    probabilities: Tensor
    rollout: Tensor
    similarity: Tensor | None = field(default=None)

    def weights(self, reduce: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """`reduce` of each layer's (n, H, N, grid tokens), N with class and register tokens."""
        found: dict[int, Tensor] = {}
        n = self.tokens.grid[0] * self.tokens.grid[1]

        def keep(layer: Heads) -> None:
            found[layer.layer] = reduce(layer.weights(self.heads)[..., -n:].float().cpu())

        with torch.no_grad():
            x = self.trained.normalise(self.pixels)
            observe(self.trained.model, x, keep, layers=self.layers)
        return [found[i] for i in self.layers]


def explain(
    ckpt: Path,
    images: Sequence[Path],
    out: Path,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    query: tuple[int, int] | None = None,
    overwrite: bool = False,
    convert: bool = False,
) -> list[str]:
    """Write what a checkpoint's model attends to; a picture for .png, a page for .html.

    Args:
        layers, heads: those to show; None is all.
        query: pixel (row, column) of the image as the model takes it, whose token asks. None is
            the class token, or the mean over all tokens in a model without one.
        overwrite: replace `out`.
        convert: see `read_images`.

    Returns:
        Lines to tell the user: what was done to images, and where the result is.

    Raises:
        UserError: whatever is wrong with a file, a layer, a head or the query.
    """
    if out.suffix not in (".png", ".html"):
        raise UserError(f"out {out} ends in {out.suffix or 'nothing'}; wanted .png or .html")
    if not out.parent.is_dir():
        raise UserError(f"out {out}: there is no directory {out.parent}")
    if out.exists() and (out.is_dir() or not overwrite):
        raise UserError(f"out {out} is there already; give another name, or --overwrite true")
    trained = load_classifier(ckpt)
    pixels, notes = read_images(images, trained, convert=convert)
    view = _view(trained, tuple(p.name for p in images), pixels, layers, heads)
    token = None if query is None else _token(query, trained, view.tokens)
    if out.suffix == ".png":
        from vision_attn.explain.overview import draw

        draw(view, out, token)
    else:
        from vision_attn.explain.page import write

        write(view, out, token)
    return [*notes, f"maps of {len(images)} image{'s' * (len(images) > 1)} are in {out}"]


def _view(
    trained: Trained,
    names: tuple[str, ...],
    pixels: Tensor,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
) -> View:
    x = trained.normalise(pixels)
    tokens = tokens_of(trained.model, x)
    every = attention_layers(trained.model)
    shown = layer_numbers(layers, len(every))
    count = min(heads_of(layer) for layer in every)
    asked = row_index("heads", range(count) if heads is None else heads, count, None).tolist()
    found = attention_rollout(trained.model, x)
    return View(
        trained,
        names,
        pixels,
        tokens,
        tuple(shown),
        tuple(dict.fromkeys(asked)),
        found.output.softmax(-1),
        found.relevance,
        _similarity(trained.model, tokens),
    )


def _token(query: tuple[int, int], trained: Trained, tokens: Tokens) -> int:
    """The number of the token over a pixel."""
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
