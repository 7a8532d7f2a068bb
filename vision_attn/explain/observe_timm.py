"""The queries and keys of a timm ViT, recorded while it runs, whatever its kind of attention.

Its blocks call `F.scaled_dot_product_attention`, and torch's function mode sees the calls. So
rotary, norms, biases and masks are in what is recorded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vision_attn.errors import UserError

__all__ = ["recorded_timm"]


class _Calls(TorchFunctionMode):
    """Makes every call of the fused attention, and hands output and arguments to `record`."""

    def __init__(self, record: Callable[..., None]) -> None:
        super().__init__()
        self.record = record

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            self.record(output, *args, **kwargs)
        return output


@contextmanager
def recorded_timm(
    blocks: Sequence[nn.Module],
    chosen: Sequence[int],
    tokens: int,
    record: Callable[..., None],
) -> Iterator[None]:
    """Inside it `record` is called for each chosen block, with the fields of `Heads` by keyword.

    Blocks use the fused kernel meanwhile, whose calls are seen; afterwards what they used before.

    Raises:
        UserError: a block whose attention is not one layer over all the tokens.
    """
    done: list[int] = []
    inside: list[int] = []  # the block that runs

    def check(
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
        if i in done or not whole:
            raise UserError(
                f"block {i} has attention of {query.shape[-2]} queries to {key.shape[-2]} keys,"
                f" wanted one layer over all {tokens} tokens, as in a plain ViT"
            )
        done.append(i)
        is_mask = attn_mask is not None and attn_mask.dtype == torch.bool
        record(
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
        stack.enter_context(_Calls(check))
        yield
    missing = sorted(set(chosen) - set(done))
    if missing:
        raise UserError(
            f"block {missing[0]}, a {type(blocks[missing[0]]).__name__}, does not call"
            " F.scaled_dot_product_attention; wanted a plain ViT"
        )
