"""Weights of chosen attention layers out of one forward pass, with hooks that are always removed.

The layers compute their output as ever; the weights asked for are made beside it, from the same
queries and keys.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from timm.models.vision_transformer import Attention
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.ops.attention import attention_weights
from vision_attn.ops.positions import grid_positions, rotate
from vision_attn.ops.rows import row_index

__all__ = ["Tokens", "attention_layers", "local_rows", "tokens_of", "watch"]

KINDS = (MultiHeadSelfAttention, NeighborhoodAttention, WindowAttention, Attention)
Use = Callable[[int, Tensor], None]


@dataclass(frozen=True)
class Tokens:
    """How a model cuts images of one size into tokens.

    grid: rows and columns (h, w) of tokens; prefix: class and register tokens in front of them;
    pool: what the model reads out, `avg` or `token`, or another name of timm's.
    """

    grid: tuple[int, int]
    prefix: int
    pool: str

    @property
    def count(self) -> int:
        """All tokens N."""
        return self.prefix + self.grid[0] * self.grid[1]


def attention_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The self-attention layers of a model by name, in their order.

    Raises:
        UserError: a model without any, or whose attention is of a kind that is not known here.
    """
    found: dict[str, nn.Module] = {
        name: m for name, m in model.named_modules() if isinstance(m, KINDS)
    }
    if not found:
        raise UserError(
            f"{type(model).__name__} has no attention layer that can be shown; wanted a model of"
            " this package or a ViT of timm"
        )
    return found


def tokens_of(model: nn.Module, images: Tensor) -> Tokens:
    """Grid, prefix and pooling of a model for images (B, C, h, w)."""
    owner = next((m for m in model.modules() if isinstance(_patches(m), nn.Module)), None)
    if owner is None or images.ndim != 4:
        raise UserError(
            f"{type(model).__name__} on images of shape {tuple(images.shape)}: wanted a model with"
            " patch_embed and images (B, C, h, w)"
        )
    patch: Any = _patches(owner)
    sides = zip(images.shape[-2:], patch.patch_size, strict=True)
    rows, cols = (-(-n // p) for n, p in sides)  # timm pads where it is told to
    here: Any = owner
    ours = int(getattr(owner, "cls_token", None) is not None)
    return Tokens(
        (rows, cols),
        getattr(here, "num_prefix_tokens", ours),
        str(getattr(here, "global_pool", "")),
    )


@contextmanager
def watch(
    model: nn.Module,
    tokens: Tokens,
    use: Use,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
) -> Iterator[dict[int, nn.Module]]:
    """Inside it each forward pass gives `use(layer, weights)`, weights (B, H, Nq, Nk).

    Gives the layers watched by number, in the order asked for. Nk is N, or registers + N where a
    layer has registers of its own. When it ends, however it ends, no hook is left.

    Args:
        layers: numbers of layers in the order of `attention_layers`; None is all.
        heads, queries: as in `ops.attention.attention_weights`.

    Raises:
        UserError: a layer, head or query that there is not.
    """
    every = list(attention_layers(model).values())
    numbers = range(len(every)) if layers is None else _checked("layers", layers, len(every))
    chosen = {i: every[i] for i in numbers}
    queries = None if queries is None else _checked("queries", queries, tokens.count)
    handles: list[RemovableHandle] = []
    try:
        for i, layer in chosen.items():
            picked = None if heads is None else _checked("heads", heads, int(layer.num_heads))  # type: ignore[arg-type]
            handles += _hook(layer, _once(use, i), tokens, picked, queries)
        yield chosen
    finally:
        for handle in handles:
            handle.remove()


def local_rows(
    layer: NeighborhoodAttention | WindowAttention,
    grid: tuple[int, int],
    queries: Sequence[int] | None,
    device: torch.device,
) -> tuple[Tensor, Tensor | None]:
    """Rows of the mask that a local layer equals, bool (Nq, N), and of its bias (H, Nq, N)."""
    at = grid_positions(grid, device=device)
    rows = slice(None) if queries is None else row_index("queries", queries, len(at), device)
    away = at[rows, None] - at
    if isinstance(layer, NeighborhoodAttention):
        step = torch.tensor(layer.dilation, device=device)
        size = torch.tensor(layer.kernel_size, device=device)
        radius = size // 2
        mask = ((away.abs() <= step * radius) & (away % step == 0)).all(-1)
        away = away.div(step, rounding_mode="floor") + radius
    else:
        small = [n <= m for n, m in zip(grid, layer.window_size, strict=True)]
        covered, whole, cells = _pairs(device, small, grid, layer.window_size)
        window = torch.where(covered, whole, cells)
        shift = torch.tensor(layer.shift_size, device=device).masked_fill(covered, 0)
        home = (at - shift).div(window, rounding_mode="floor")
        mask = (home[rows, None] == home).all(-1)
        size = 2 * torch.tensor(layer.window_size, device=device) - 1
        away = away + size // 2
    table = layer.relative_position_bias_table
    if table is None:
        return mask, None
    index = torch.where(mask, away[..., 0] * size[1] + away[..., 1], 0)
    return mask, table[index].permute(2, 0, 1)


def _patches(module: nn.Module) -> object:
    return getattr(module, "patch_embed", None)


def _pairs(device: torch.device, *pairs: Sequence[int]) -> list[Tensor]:
    return [torch.tensor(pair, device=device) for pair in pairs]


def _checked(name: str, chosen: Sequence[int], count: int) -> list[int]:
    index: list[int] = row_index(name, chosen, count, None).tolist()
    return index


def _once(use: Use, i: int) -> Callable[[Tensor], None]:
    return lambda weights: use(i, weights)


def _hook(
    layer: Any,
    use: Callable[[Tensor], None],
    tokens: Tokens,
    heads: Sequence[int] | None,
    queries: Sequence[int] | None,
) -> list[RemovableHandle]:
    """Hooks that make one layer tell its weights."""
    if isinstance(layer, MultiHeadSelfAttention):
        asked = {"return_weights": True, "weight_heads": heads, "weight_queries": queries}

        def ask(_: nn.Module, args: Any, kwargs: Any) -> Any:
            return args, {**kwargs, **asked}

        def answer(_: nn.Module, args: Any, output: Any) -> Tensor:
            use(output[1])
            return output[0]

        return [
            layer.register_forward_pre_hook(ask, with_kwargs=True),
            layer.register_forward_hook(answer, prepend=True),
        ]
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda module, args, output: seen.__setitem__(name, output)

    def weigh(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        q, k = seen.pop("q"), seen.pop("k")
        use(_weights(layer, q, k, args, kwargs, heads, queries))

    return [
        layer.q_norm.register_forward_hook(keep("q")),
        layer.k_norm.register_forward_hook(keep("k")),
        layer.register_forward_hook(weigh, with_kwargs=True),
    ]


def _weights(
    layer: Any,
    q: Tensor,
    k: Tensor,
    args: Any,
    kwargs: Any,
    heads: Sequence[int] | None,
    queries: Sequence[int] | None,
) -> Tensor:
    """From queries and keys after their norms, as the layer got its other arguments."""
    if isinstance(layer, Attention):
        given: dict[str, Any] = dict(zip(("attn_mask", "is_causal"), args[1:], strict=False))
        given |= kwargs
        mask = given.get("attn_mask")
        added = mask is not None and mask.dtype != torch.bool
        return attention_weights(
            q,
            k,
            mask=None if added else mask,
            bias=mask if added else None,
            causal=bool(given.get("is_causal")),
            scale=layer.scale,
            heads=heads,
            queries=queries,
        )
    rotary = kwargs.get("rotary")
    if rotary is not None:
        q, k = rotate(q, rotary), rotate(k, rotary)
    grid = args[1] if len(args) > 1 else kwargs["grid_size"]
    mask, bias = local_rows(layer, grid, queries, q.device)
    if queries is not None:
        q = q[:, :, queries]
    return attention_weights(
        q, k, mask=mask, bias=bias, scale=layer.scale, score=layer.score, heads=heads
    )
