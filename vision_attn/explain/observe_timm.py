"""The queries and keys of a timm ViT, whatever its kind of attention, while it runs.

Its blocks call `F.scaled_dot_product_attention`, which torch's function mode shows. So rotary,
norms, biases and masks are in what is seen.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vision_attn.errors import UserError

__all__ = ["watched_timm"]


class _Calls(TorchFunctionMode):
    """Makes every call of the fused attention, and hands it to `told` with what came out."""

    def __init__(self, told: Callable[..., None]) -> None:
        super().__init__()
        self.told = told

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            self.told(output, *args, **kwargs)
        return output


@contextmanager
def watched_timm(
    blocks: Sequence[nn.Module],
    chosen: Sequence[int],
    tokens: int,
    told: Callable[..., None],
) -> Iterator[None]:
    """Inside it chosen blocks tell, by keyword: layer, q, k, v, y, mask, bias, causal, scale.

    While it lasts blocks use the fused kernel, which can be seen; afterwards what they used before.

    Raises:
        UserError: a block whose attention is not one layer over all the tokens.
    """
    seen: list[int] = []
    inside: list[int] = []  # the block that runs

    def see(
        output: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        **_: Any,
    ) -> None:
        if not inside:  # attention pooling and the like
            return
        i = inside[0]
        whole = query.shape[1] == key.shape[1] and query.shape[-2] == key.shape[-2] == tokens
        if i in seen or not whole:
            raise UserError(
                f"block {i} has attention of {query.shape[-2]} queries to {key.shape[-2]} keys,"
                f" wanted one layer over all {tokens} tokens, as in a plain ViT"
            )
        seen.append(i)
        is_mask = attn_mask is not None and attn_mask.dtype == torch.bool
        told(
            layer=i,
            q=query,
            k=key,
            v=value,
            y=output,
            mask=attn_mask if is_mask else None,
            bias=None if is_mask else attn_mask,
            causal=is_causal,
            scale=query.shape[-1] ** -0.5 if scale is None else scale,
        )

    with ExitStack() as stack:
        for i in chosen:
            block = blocks[i]
            enter = block.register_forward_pre_hook(lambda *_, i=i: inside.append(i))
            leave = block.register_forward_hook(lambda *_: inside.clear())
            stack.callback(enter.remove)
            stack.callback(leave.remove)
            for m in block.modules():
                if getattr(m, "fused_attn", True) is False:
                    m.fused_attn = True  # type: ignore[assignment]
                    stack.callback(setattr, m, "fused_attn", False)
        stack.enter_context(_Calls(see))
        yield
    missing = sorted(set(chosen) - set(seen))
    if missing:
        raise UserError(
            f"block {missing[0]}, a {type(blocks[missing[0]]).__name__}, does not call"
            " F.scaled_dot_product_attention; wanted a plain ViT"
        )
