"""How relevance flows from pixels to the answer: attention rollout (Abnar & Zuidema 2020).

With a gradient, each weight counts by how much the class score rises with it (Chefer et al. 2021).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from timm.layers import AttentionPoolLatent
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.explain.observe import Heads, Tokens, observe, tokens_of
from vision_attn.ops.attention import attention_weights

__all__ = ["Rollout", "attention_rollout"]

Fusion = Literal["mean", "max", "min"]
_FUSE: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda w: w.mean(1),
    "max": lambda w: w.amax(1),
    "min": lambda w: w.amin(1),
}


@dataclass(frozen=True)
class Rollout:
    """Relevance of tokens for the answer.

    Args:
        relevance: (B, h, w), float64, at least 0; with `prefix` it sums to 1.
        prefix: relevance of class and register tokens, (B, prefix).
        matrix: (B, N, N), the product over the layers, rows sum to 1; None unless asked for.
        output: what the model answered.
    """

    relevance: Tensor
    prefix: Tensor
    matrix: Tensor | None
    output: Any


def attention_rollout(
    model: nn.Module,
    images: Tensor,
    *,
    head_fusion: Fusion = "mean",
    discard_ratio: float = 0.0,
    gradient: int | Sequence[int] | Literal["predicted"] | None = None,
    return_matrix: bool = False,
) -> Rollout:
    """Product over the layers of (A + I) with rows made to sum to 1; A the weights of fused heads.

    Models with a class token are read at its row; models that take the mean over tokens, and
    `DenseClassifier`, at the mean of the rows of the grid; models that pool by attention (`map`) at
    the rows weighted as the pool weights them, gradient or not. Float64 throughout. Registers
    inside an attention layer, which are no tokens, are left out.

    Args:
        images: (B, C, h, w).
        head_fusion: what one matrix is made of the heads' weights: `mean`, `max` or `min`.
        discard_ratio: share of a row's keys, those of least weight, that count 0; 0 to below 1.
        gradient: a class, one for each image, or `predicted`. A is then the fused max(0, A * dA),
            dA the gradient of that class's score by the weights, divided by its largest row sum, so
            that queries which matter little keep little and the unit of the score does not count.
        return_matrix: also give the whole product, which takes a product of N x N matrices a layer.

    Raises:
        UserError: unknown options, a class that does not exist, a model that pools otherwise.
    """
    if head_fusion not in _FUSE:
        raise UserError(f"head_fusion={head_fusion!r} is not known; choose {', '.join(_FUSE)}")
    if not 0 <= discard_ratio < 1:
        raise UserError(f"discard_ratio is {discard_ratio}; wanted 0 to below 1")
    tokens = tokens_of(model, images)
    pool = _pool_of(model, tokens)
    steps: list[Tensor] = []

    def add(weights: Tensor) -> None:
        steps.append(_step(_FUSE[head_fusion](weights), discard_ratio))

    with _pool_weights(pool) as pooled:
        if gradient is None:
            with torch.no_grad():
                output = observe(model, images, lambda h: add(_on_tokens(h.weights(), tokens)))
        else:
            output = _by_gradient(model, images, tokens, gradient, add)
    if pool is None:
        row = _read_out(model, tokens, images.device).expand(len(images), 1, -1)
    else:
        row = _FUSE[head_fusion](pooled[0].detach().double()).mean(1, keepdim=True)
        row = torch.nn.functional.pad(row, (tokens.count - row.shape[-1], 0))
        row = row / row.sum(-1, keepdim=True)
    matrix = None
    if return_matrix:
        matrix = torch.eye(tokens.count, dtype=torch.float64, device=images.device)
        matrix = matrix.expand(len(images), -1, -1)
    for step in reversed(steps):
        row = row @ step
        matrix = None if matrix is None else matrix @ step
    at, own = row[:, 0].split((tokens.prefix, tokens.count - tokens.prefix), -1)[::-1]
    return Rollout(at.unflatten(-1, tokens.grid), own, matrix, output)


def _on_tokens(weights: Tensor, tokens: Tokens) -> Tensor:
    """(B, H, N, registers + N) -> float64 (B, H, N, N)."""
    return weights[..., weights.shape[-1] - tokens.count :].detach().double()


def _step(fused: Tensor, discard_ratio: float) -> Tensor:
    """Weights (B, N, N), at least 0, to a layer's matrix with its residual; rows sum to 1."""
    drop = int(discard_ratio * fused.shape[-1])
    if drop:
        least = fused.topk(drop, -1, largest=False).indices
        fused = fused.scatter(-1, least, 0.0)
    both = fused + torch.eye(fused.shape[-1], dtype=fused.dtype, device=fused.device)
    return both / both.sum(-1, keepdim=True)


def _pool_of(model: nn.Module, tokens: Tokens) -> nn.Module | None:
    """The module of attention pooling; None for a class token and for the mean."""
    if tokens.pool == "avg" or (tokens.pool == "token" and tokens.prefix):
        return None
    if tokens.pool == "map":
        return next(m for m in model.modules() if isinstance(m, AttentionPoolLatent))
    raise UserError(
        f"global_pool={tokens.pool!r}: rollout needs the mean of the tokens (avg), a class token"
        " (token) or attention (map)"
    )


@contextmanager
def _pool_weights(pool: Any) -> Iterator[list[Tensor]]:
    """Inside it a forward pass adds the pool's weights, (B, H, latents, N)."""
    weights: list[Tensor] = []
    queries: list[Tensor] = []

    def keep(_: nn.Module, args: Any, k: Tensor) -> None:
        weights.append(attention_weights(queries.pop(), k, scale=pool.scale))

    with ExitStack() as stack:
        if pool is not None:
            first = pool.q_norm.register_forward_hook(lambda _, args, q: queries.append(q))
            stack.callback(first.remove)
            stack.callback(pool.k_norm.register_forward_hook(keep).remove)
        yield weights


def _read_out(model: nn.Module, tokens: Tokens, device: torch.device) -> Tensor:
    """The share that each token has in what the head sees: (N,)."""
    read = torch.zeros(tokens.count, dtype=torch.float64, device=device)
    if tokens.pool == "avg":
        read[tokens.prefix :] = 1.0
    else:
        read[: 1 + hasattr(model, "head_dist")] = 1.0  # DeiT's second token has a head as well
    return read / read.sum()


def _by_gradient(
    model: nn.Module,
    images: Tensor,
    tokens: Tokens,
    gradient: int | Sequence[int] | str,
    add: Callable[[Tensor], None],
) -> Any:
    """Adds (B, H, N, N) max(0, A * dA) of each layer; y = A v, so dA is dy v^T."""
    layers: list[Heads] = []
    with torch.enable_grad():
        output = observe(model, images.detach().requires_grad_(), layers.append)
        score = _scores(output, gradient)
        grads = torch.autograd.grad(score.sum(), [heads.y for heads in layers])
    for heads, dy in zip(layers, grads, strict=True):
        with torch.no_grad():
            d = dy.double() @ heads.v[:, :, heads.registers :].double().mT
            part = (_on_tokens(heads.weights(), tokens) * d).clamp_min_(0)
        largest = part.sum(-1).amax((1, 2)).clamp_min(torch.finfo(part.dtype).tiny)
        add(part / largest[:, None, None, None])
    return output.detach()


def _scores(output: Tensor, gradient: int | Sequence[int] | str) -> Tensor:
    """The chosen class's score of each image: (B, classes) -> (B,); pixels' scores are summed."""
    if not isinstance(output, Tensor) or output.ndim not in (2, 4):
        raise UserError("gradient: the model's answer is no scores (B, classes)")
    scores = output if output.ndim == 2 else output.sum((2, 3))
    B, classes = scores.shape
    if gradient == "predicted":
        index = scores.argmax(1)
    elif isinstance(gradient, str):
        raise UserError(f"gradient={gradient!r} is not known; give a class or 'predicted'")
    else:
        chosen = [gradient] * B if isinstance(gradient, int) else [int(c) for c in gradient]
        if len(chosen) != B:
            raise UserError(f"gradient has {len(chosen)} classes for {B} images; give one for each")
        wrong = [c for c in chosen if not 0 <= c < classes]
        if wrong:
            raise UserError(f"gradient: class {wrong[0]} of {classes}; wanted 0 to {classes - 1}")
        index = torch.tensor(chosen, device=scores.device)
    return scores.gather(1, index[:, None])[:, 0]
