"""How far attention looks, by layer and head: distance, entropy, weight on itself, share near by.

The mean attention distance is that of Dosovitskiy et al. 2021, in pixels, so that models of
different patches compare. The N x N matrix is never held.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import lightning as L
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vision_attn.data.batches import ImageBatches
from vision_attn.errors import UserError
from vision_attn.explain.observe import Heads, attention_layers, observe, tokens_of
from vision_attn.layers.state import in_eval
from vision_attn.ops.statistics import attention_statistics

__all__ = ["MEASURES", "attention_measures", "some_images"]

MEASURES = ("distance", "entropy", "self_weight", "field_share", "largest")


def attention_measures(
    model: nn.Module,
    images: Tensor | Iterable[Any],
    *,
    field: int = 3,
    batch_size: int = 64,
    chunk: int | None = None,
) -> pd.DataFrame:
    """Means over images and tokens: columns layer, head, then `MEASURES`; one row a head.

    distance: mean over the weights of the distance between query and key, in pixels.
    entropy: of a row of weights, in nats.
    self_weight: weight of a token on itself; the mean of w_ii.
    field_share: share of the weights inside field x field tokens around the query.
    largest: the largest weight of a row.

    Queries are the tokens of the grid, not class or register tokens, and distance and field count
    only such keys. The model runs in eval mode, without gradients, and is left as it was.

    Args:
        model: one of our vit models, a LightningModule that has one as `model`, or a ViT of timm.
        images: (B, C, h, w) as the model takes them, or a loader of such batches or of
            (images, labels).
        field: side of the field in tokens, odd.
        batch_size: images at a time.
        chunk: queries at a time; see `ops.statistics.attention_statistics`.

    Raises:
        UserError: a model without attention over a grid of tokens, no images, a bad field.
    """
    network = getattr(model, "model", None)
    if isinstance(model, L.LightningModule) and isinstance(network, nn.Module):
        model = network
    attention_layers(model)  # one without any has no tokens either; this says it better
    total: dict[int, Tensor] = {}
    count = 0

    def add(heads: Heads) -> None:
        statistics = attention_statistics(
            heads.q,
            heads.k,
            grid_size=tokens.grid,
            num_prefix_tokens=tokens.prefix,
            num_registers=heads.registers,
            token_size=tokens.size,
            field=field,
            mask=heads.mask,
            bias=heads.bias,
            causal=heads.causal,
            scale=heads.scale,
            score=heads.score,
            chunk=chunk,
        )
        rows = torch.stack([getattr(statistics, name) for name in MEASURES]).cpu()
        mean = rows[..., tokens.prefix :].double().mean(-1).sum(1)  # (measures, H)
        total[heads.layer] = total.get(heads.layer, 0) + mean

    first = next(model.parameters())
    with in_eval(model), torch.no_grad():
        for batch in _batches(images, batch_size):
            x = batch.to(first.device, first.dtype)
            tokens = tokens_of(model, x)
            observe(model, x, add)
            count += len(batch)
    if not count:
        raise UserError("there are no images to measure; wanted at least one")
    rows = [
        {"layer": layer, "head": head, **dict(zip(MEASURES, values, strict=True))}
        for layer, sums in sorted(total.items())
        for head, values in enumerate((sums / count).T.tolist())
    ]
    return pd.DataFrame(rows, columns=["layer", "head", *MEASURES])


def some_images(loader: Iterable[Any], count: int) -> Tensor:
    """Up to `count` images of a loader, the same ones each time: (B, C, h, w).

    From a loader of this package they are spread evenly over the whole set, since a folder's images
    come class by class; from another they are the first of its first batch.
    """
    data = loader.dataset if isinstance(loader, DataLoader) else None
    if isinstance(data, ImageBatches):
        n = len(data.labels)
        return data[(np.linspace(0, n - 1, min(count, n)).astype(np.int64), 0)][0]
    return next(_batches(loader, count))


def _batches(images: Tensor | Iterable[Any], size: int) -> Iterator[Tensor]:
    """Images in pieces of at most `size`, labels dropped."""
    for batch in (images,) if isinstance(images, Tensor) else images:
        x = batch if isinstance(batch, Tensor) else batch[0]
        if x.ndim != 4:
            raise UserError(f"images have shape {tuple(x.shape)}; wanted (B, C, h, w)")
        yield from x.split(size)
