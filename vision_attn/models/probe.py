"""Does a model of another library take these images, and does it look at all of their pixels?"""

from typing import Any

import torch
from timm.layers import to_2tuple
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.state import in_eval

__all__ = ["FAILURES", "check_runs"]

FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError,
             NotImplementedError, RuntimeError, TypeError, ValueError)  # fmt: skip
"""What a model of timm may raise for arguments or images that do not fit it."""


@torch.no_grad()
def check_runs(
    model: nn.Module, *, img_size: tuple[int, int], in_chans: int, num_classes: int
) -> None:
    """Run one blank image (1, C, h, w) in eval mode; nothing of the model changes.

    A row or column of pixels that lies under no kernel of the layers on the image is unseen: a
    patch that does not divide the image leaves the last ones out in silence.

    Raises:
        UserError: images that the model cannot take or does not wholly see, an output that is not
            (1, classes).
    """
    seen = [torch.zeros(size, dtype=torch.bool) for size in img_size]
    kernels: list[Any] = []

    def cut(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Patches cut from a map (TNT): what no patch covers of it is lost too."""
        kernel, step, stride, pad = (
            to_2tuple(x)
            for x in (module.kernel_size, module.dilation, module.stride, module.padding)
        )
        for axis, size in enumerate(args[0].shape[2:]):
            outputs = (size + 2 * pad[axis] - step[axis] * (kernel[axis] - 1) - 1) // stride[
                axis
            ] + 1
            if not _taps(size, outputs, kernel[axis], stride[axis], step[axis], pad[axis]).all():
                raise UserError(
                    f"img_size {img_size[0]} x {img_size[1]}: its patches of {kernel} on a map of"
                    f" {tuple(args[0].shape[2:])} leave pixels unseen; take a size that fits"
                )

    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not args or not isinstance(args[0], Tensor) or args[0].ndim != 4:
            return
        # the image itself, padded by the model or not
        if args[0].shape[1] != in_chans or any(
            got < size for got, size in zip(args[0].shape[2:], img_size, strict=True)
        ):
            return
        kernels.append(module.kernel_size)
        for axis, size in enumerate(args[0].shape[2:]):
            covered = _covered(module, axis, size, output.shape[2 + axis])
            seen[axis] |= covered[: img_size[axis]]

    looks = ((nn.Conv2d, note), (nn.Unfold, cut))
    hooks = [
        m.register_forward_hook(look)
        for m in model.modules()
        for kind, look in looks
        if isinstance(m, kind)
    ]
    try:
        with in_eval(model):
            y = model(torch.zeros(1, in_chans, *img_size))
    except UserError:
        raise
    except FAILURES as e:
        first = next((line.strip() for line in str(e).splitlines() if line.strip()), "")
        raise UserError(
            f"images of {img_size[0]} x {img_size[1]} pixels do not run through it:"
            f" {first or type(e).__name__}"
        ) from e
    finally:
        for hook in hooks:
            hook.remove()
    if kernels:
        for axis, flags in zip(("rows", "columns"), seen, strict=True):
            if lost := int((~flags).sum()):
                raise UserError(
                    f"img_size {img_size[0]} x {img_size[1]}: its first layer, of {kernels[0]}"
                    f" pixels, leaves {lost} {axis} unseen; take a size that it divides"
                )
    if num_classes and (not isinstance(y, Tensor) or y.shape != (1, num_classes)):
        got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise UserError(f"it gives {got} for one image, wanted (1, {num_classes})")


def _covered(conv: nn.Module, axis: int, size: int, outputs: int) -> Tensor:
    """Which of `size` pixels of an axis lie under a tap of a convolution: (size,), bool."""
    assert isinstance(conv, nn.Conv2d)
    stride, step, kernel = conv.stride[axis], conv.dilation[axis], conv.kernel_size[axis]
    if isinstance(conv.padding, str):
        before = step * (kernel - 1) // 2 if conv.padding == "same" else 0
    else:
        before = int(conv.padding[axis])
    return _taps(size, outputs, kernel, stride, step, before)


def _taps(size: int, outputs: int, kernel: int, stride: int, step: int, before: int) -> Tensor:
    """Which of `size` places lie under one of `kernel` taps, for so many outputs: (size,), bool."""
    at = torch.arange(outputs)[:, None] * stride + torch.arange(kernel) * step - before
    at = at[(at >= 0) & (at < size)]
    flags = torch.zeros(size, dtype=torch.bool)
    flags[at] = True
    return flags
