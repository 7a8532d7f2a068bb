"""Images to tokens and exactly back: pixels and patches, in row-major order, rectangles too.

Images of different sizes share a batch of padded tokens: `pad_images` and `unpad_tokens`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.ops.checks import near_divisors
from vision_attn.ops.positions import grid_positions

__all__ = ["PaddedTokens", "check_patch_size", "image_to_patches", "image_to_pixels", "pad_images",
           "patches_to_image", "pixels_to_image", "unpad_tokens"]  # fmt: skip


def check_patch_size(img_size: tuple[int, int], patch_size: tuple[int, int]) -> tuple[int, int]:
    """The grid (rows, columns) of patches, or a UserError that names what does not divide."""
    for axis, size, patch in zip(("height", "width"), img_size, patch_size, strict=True):
        if patch < 1 or size % patch:
            raise UserError(
                f"patch_size {patch} does not divide the image {axis} {size};"
                f" try {near_divisors(size, patch)}"
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


class PaddedTokens(NamedTuple):
    """What `pad_images` gives; N is the number of tokens of the largest image.

    tokens: (B, N, C*p*q), each image's patches row-major, then zeros.
    key_mask: bool (B, N), True where there is a token; `key_mask` of the attention layers.
    positions: int64 (B, N, 2), row and column of each token, 0 where there is none; what
        `sincos_2d` and `rotary_2d` take in place of a grid.
    grid_sizes: (rows, columns) of each image.
    """

    tokens: Tensor
    key_mask: Tensor
    positions: Tensor
    grid_sizes: list[tuple[int, int]]


def pad_images(images: Sequence[Tensor], patch_size: tuple[int, int] = (1, 1)) -> PaddedTokens:
    """A list of images (C, h*p, w*q), each of its own size -> one batch of tokens.

    An encoder that gets `key_mask` and positions made from `positions` answers for each image as
    for that image alone: padded tokens are never attended to. Pool with `unpad_tokens`.

    Raises:
        UserError: no images, images of different channels, a patch that does not divide one.
    """
    if not images:
        raise UserError("images is empty; wanted at least one image (C, h, w)")
    for i, image in enumerate(images):
        if image.ndim != 3 or image.shape[0] != images[0].shape[0]:
            raise UserError(
                f"image {i} has shape {tuple(image.shape)}, wanted (C, h, w) with"
                f" C = {images[0].shape[0]} as the first has"
            )
    p, q = patch_size
    rows = []
    for i, image in enumerate(images):
        try:
            rows.append(image_to_patches(image[None], patch_size)[0])
        except UserError as e:
            raise UserError(f"image {i}: {e}") from e
    grids = [(image.shape[-2] // p, image.shape[-1] // q) for image in images]
    device = images[0].device
    at = [grid_positions(g, device=device) for g in grids]
    keep = [torch.ones(len(r), dtype=torch.bool, device=device) for r in rows]
    tokens, key_mask, positions = (
        torch.nn.utils.rnn.pad_sequence(t, batch_first=True) for t in (rows, keep, at)
    )
    return PaddedTokens(tokens, key_mask, positions, grids)


def unpad_tokens(tokens: Tensor, key_mask: Tensor) -> list[Tensor]:
    """Each image's own tokens again: (B, N, D), bool (B, N) -> B times (N_i, D)."""
    if key_mask.dtype != torch.bool or key_mask.shape != tokens.shape[:2]:
        raise UserError(
            f"key_mask has dtype {key_mask.dtype} and shape {tuple(key_mask.shape)},"
            f" wanted torch.bool of shape {tuple(tokens.shape[:2])}"
        )
    return [t[keep] for t, keep in zip(tokens, key_mask, strict=True)]
