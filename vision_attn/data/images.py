"""One image file as uint8 pixels: upright, on white, in 8 bits, grey or in colour."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from vision_attn.errors import UserError

__all__ = ["channels", "decode", "endings", "formats", "named", "upright_size"]

_GREY = {"1", "L", "LA", "La", "I", "F"}  # and I;16 in either order of bytes
_WITH_ALPHA = {"LA", "La", "PA", "RGBA", "RGBa"}
_DEEP_AS_I = {"PPM", "PNG"}
"""Formats whose 16 bits Pillow, or an older one, gives as its mode I, of 32 bits."""

_HEADER_ONLY = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
"""Formats of which Pillow knows the header only, or that another program would have to draw."""

_BITS, _WHITE_IS_ZERO = 258, 262  # tags of TIFF

_TURN = Image.Transpose
_TURNS = {
    2: _TURN.FLIP_LEFT_RIGHT, 3: _TURN.ROTATE_180, 4: _TURN.FLIP_TOP_BOTTOM, 5: _TURN.TRANSPOSE,
    6: _TURN.ROTATE_270, 7: _TURN.TRANSVERSE, 8: _TURN.ROTATE_90,
}  # fmt: skip


@lru_cache
def formats() -> tuple[str, ...]:
    """Names of the formats that Pillow can read here."""
    Image.init()
    return tuple(name for name in Image.OPEN if name not in _HEADER_ONLY)


def endings() -> frozenset[str]:
    """Endings of the files that Pillow can read here, in lower case with their dot."""
    readable = set(formats())
    return frozenset(e for e, name in Image.registered_extensions().items() if name in readable)


def channels(image: Image.Image) -> int:
    """Channels C of an opened image: 1 for grey, 3 for colour and palettes; alpha is none."""
    grey = image.mode in _GREY or image.mode.startswith("I;16") or _stored(image) == "LA;16B"
    return 1 if grey else 3


def _stored(image: Image.Image) -> object:
    """Pillow's name for how the pixels lie in the file, which is known until they are loaded."""
    tiles = getattr(image, "tile", None)
    return tiles[0][3] if tiles else None


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Height and width of an opened image as it is looked at, in pixels."""
    image.load()  # a PNG can have its EXIF block behind the pixels, and Pillow turns TIFF itself
    width, height = image.size
    return (width, height) if _orientation(image) in (5, 6, 7, 8) else (height, width)


def decode(
    path: str, content: bytes, chans: int, img_size: tuple[int, int] | None
) -> NDArray[np.uint8]:
    """The bytes of a file as uint8 (C, h, w), the first frame if there are more.

    EXIF orientation is applied. Transparent pixels lie on white. Grey of 16 bits becomes
    v / 257, rounded; of colour in 16 bits Pillow gives the upper 8. With `img_size` the middle is
    cut to its shape, then resized; without, the size is the image's own.

    Raises:
        UserError: with the path; what is no image, or has more than 16 bits in one channel.
    """
    with named(path), Image.open(BytesIO(content), formats=formats()) as image:
        _scale_key(image)
        image.load()
        flat = _on_white(_in_8_bits(image, path), "L" if chans == 1 else "RGB")
        turn = _TURNS.get(_orientation(image))
    if turn is not None:
        flat = flat.transpose(turn)
    if img_size and flat.size != img_size[::-1]:
        h, w = img_size
        scale = max(w / flat.width, h / flat.height)
        cut_w, cut_h = w / scale, h / scale
        left, top = (flat.width - cut_w) / 2, (flat.height - cut_h) / 2
        box = (left, top, left + cut_w, top + cut_h)
        flat = flat.resize((w, h), Image.Resampling.BICUBIC, box=box)
    array = np.asarray(flat, np.uint8)
    return array[None] if chans == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _orientation(image: Image.Image) -> int:
    """EXIF's 1 to 8 of a loaded image; 1, upright, where a damaged EXIF block says nothing."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except (SyntaxError, struct.error, ValueError, EOFError, TypeError):
        return 1


def _scale_key(image: Image.Image) -> None:
    """A PNG's transparent level in 8 bits, as its pixels will be; Pillow leaves it as stored."""
    key, stored = image.info.get("transparency"), _stored(image)
    if key is not None and stored in ("L;2", "L;4"):
        image.info["transparency"] = key * (85 if stored == "L;2" else 17)
    elif key is not None and stored == "RGB;16B":
        image.info["transparency"] = tuple(level >> 8 for level in key)


def _in_8_bits(image: Image.Image, path: str) -> Image.Image:
    """Grey of 16 bits scaled to 8: Pillow's own conversion clips it. Others as they are."""
    deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format in _DEEP_AS_I)
    if not deep and image.mode in ("I", "F"):
        raise UserError(f"{path} has pixels of 32 bits in one channel; wanted 8 or 16")
    if not deep:
        return image
    levels = np.asarray(image).astype(np.int64)
    tags = getattr(image, "tag_v2", {})  # TIFF has 12 bits too, and white that is 0
    most = 2 ** tags.get(_BITS, (16,))[0] - 1
    if tags.get(_WHITE_IS_ZERO) == 0:
        levels = most - levels
    grey = (510 * levels + most) // (2 * most)
    clear = image.info.get("transparency", -1)
    return Image.fromarray(np.where(levels == clear, 255, grey).astype(np.uint8))


def _on_white(image: Image.Image, mode: str) -> Image.Image:
    """The image as L or RGB; where it is transparent white shows, in part where it is in part."""
    if image.mode not in _WITH_ALPHA and "transparency" not in image.info:
        return image.convert(mode)
    layer = image.convert("LA" if channels(image) == 1 else "RGBA")
    page = Image.new(mode, image.size, "white")
    page.paste(layer.convert(mode), mask=layer.getchannel("A"))
    return page


@contextmanager
def named(path: str) -> Iterator[None]:
    """Turns a decoder's error, which does not say which file it was, into one that does."""
    try:
        yield
    except UserError:
        raise
    except Exception as e:  # whatever it raises
        # Pillow's own text on this names an object in memory
        unknown = isinstance(e, UnidentifiedImageError)
        why = "no format that Pillow knows" if unknown else e
        raise UserError(f"{path} is not an image that can be read: {why}") from e
