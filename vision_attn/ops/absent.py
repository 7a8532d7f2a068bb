"""What a mask hides is absent: a value there that is not finite reaches no output and no gradient.

The root is that 0 * NaN is NaN: a weight of 0 does not keep a hidden NaN out of `w @ v`, nor out of
the backward pass. So what is not finite is replaced by zeros, and NaN is added at the end to the
rows that may attend to it, or are it: whole rows, infinity too. A row whose output nobody uses then
spoils no gradient either.

On a CPU three sums tell that there is nothing to do. Where Python cannot look at numbers without
waiting for them (other devices) or at all (a compiler, an export, `torch.func`), the replacement is
always done, by operations that a compiler fuses.
"""

import torch
from torch import Tensor

__all__ = ["hide", "present", "surely_finite"]


def surely_finite(*tensors: Tensor) -> bool:
    """Whether it is known that no number is NaN or infinite, at the price of a sum each.

    False may also mean that the numbers cannot be looked at, or that their sum overflows.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    total = 0.0
    for t in tensors:
        plain = type(t) in (Tensor, torch.nn.Parameter) and t.is_cpu
        if not plain or torch._C._functorch.is_functorch_wrapped_tensor(t):
            return False
        total += float(t.detach().sum(dtype=torch.promote_types(t.dtype, torch.float32)))
    return abs(total) < float("inf")  # False for NaN too


def hide(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same q, k, v without what is not finite, and what to add to the rows that see it.

    Args:
        q, k, v: queries (B, H, Nq, K), keys and values; the keys again where there are no values.
        allowed: bool, broadcastable to (B, H, Nq, Nk); None: causal, as many keys as queries.

    Returns:
        q, k and v, all finite, and what to add, (B, H, Nq, 1): NaN or 0. A row with nothing to
        attend to gets 0, whatever its query is.
    """
    whole = q.isfinite().all(-1, keepdim=True)
    q = torch.where(whole, q, 0)
    finite = k.isfinite().all(-1, keepdim=True) & v.isfinite().all(-1, keepdim=True)
    k, v = torch.where(finite, k, 0), torch.where(finite, v, 0)
    spoilt = (~finite).to(torch.promote_types(q.dtype, torch.float32))
    with torch.autocast(q.device.type, enabled=False):
        if allowed is None:
            seen = spoilt.cumsum(-2) > 0
        else:
            allowed = torch.atleast_2d(allowed)
            allowed = allowed.expand(*allowed.shape[:-1], k.shape[-2])
            seen = allowed.to(spoilt.dtype) @ spoilt > 0
            whole = whole | ~allowed.any(-1, keepdim=True)
    return q, k, v, torch.where(whole & ~seen, 0.0, torch.nan).to(q.dtype)


def present(x: Tensor, keep: Tensor) -> Tensor:
    """Tokens (B, N, D) with 0 for what is not finite in those that `keep`, bool (B, N), leaves out.

    For the projections before attention, whose gradients would see it: 0 * NaN again.
    """
    return torch.where(keep[..., None] | x.isfinite(), x, 0)
