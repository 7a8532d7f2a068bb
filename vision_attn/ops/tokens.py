"""Images to tokens and exactly back: pixels and patches, in row-major order, rectangles too."""

from einops import rearrange
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["check_patch_size", "image_to_patches", "image_to_pixels", "patches_to_image",
           "pixels_to_image"]  # fmt: skip


def check_patch_size(img_size: tuple[int, int], patch_size: tuple[int, int]) -> tuple[int, int]:
    """The grid (rows, columns) of patches, or a UserError that names what does not divide."""
    for axis, size, patch in zip(("height", "width"), img_size, patch_size, strict=True):
        if patch < 1 or size % patch:
            fits = [d for d in range(1, size + 1) if size % d == 0]
            near = sorted(sorted(fits, key=lambda d: abs(d - patch))[:2])
            raise UserError(
                f"patch_size {patch} does not divide the image {axis} {size};"
                f" try {' or '.join(map(str, near))}"
            )
    return img_size[0] // patch_size[0], img_size[1] // patch_size[1]


def image_to_pixels(x: Tensor) -> Tensor:
    """Every pixel a token: (B, C, h, w) -> (B, h*w, C)."""
    return rearrange(x, "B C h w -> B (h w) C")


def pixels_to_image(x: Tensor, img_size: tuple[int, int]) -> Tensor:
    """Inverse of `image_to_pixels`: (B, h*w, C) -> (B, C, h, w)."""
    h, w = img_size
    if x.shape[1] != h * w:
        raise UserError(f"{x.shape[1]} tokens do not fill an image of {h} x {w} = {h * w} pixels")
    return rearrange(x, "B (h w) C -> B C h w", h=h, w=w)


def image_to_patches(x: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """Patches of p x q pixels: (B, C, h*p, w*q) -> (B, h*w, C*p*q), channels slowest in a token.

    The order inside a token is that of a `Conv2d` weight, so a patch convolution is one matrix.
    """
    p, q = patch_size
    check_patch_size((x.shape[-2], x.shape[-1]), patch_size)
    return rearrange(x, "B C (h p) (w q) -> B (h w) (C p q)", p=p, q=q)


def patches_to_image(x: Tensor, patch_size: tuple[int, int], img_size: tuple[int, int]) -> Tensor:
    """Inverse of `image_to_patches`: (B, h*w, C*p*q) -> (B, C, h*p, w*q)."""
    p, q = patch_size
    h, w = check_patch_size(img_size, patch_size)
    if x.shape[1] != h * w or x.shape[2] % (p * q):
        raise UserError(
            f"tokens of shape {tuple(x.shape)} do not fill {h} x {w} patches of {p} x {q} pixels"
        )
    return rearrange(x, "B (h w) (C p q) -> B C (h p) (w q)", h=h, p=p, q=q)
