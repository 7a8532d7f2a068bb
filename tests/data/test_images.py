"""Image files become pixels: every ending, orientation, transparency, depth and colour space."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from made_images import RNG, H, Pixels, W, array_of, folder, make, pixels, read, save, smooth
from PIL import Image, ImageOps

from vision_attn.data.images import channels, decode, endings, upright_size
from vision_attn.errors import UserError
from vision_attn.explain.checkpoint import Trained, read_images

LOSSLESS = ["png", "bmp", "dib", "tif", "tiff", "ppm", "pnm", "tga", "im", "sgi", "rgb", "PNG",
            "Tga", "apng", "pcx", "qoi"]  # fmt: skip
LOSSY = ["jpg", "jpeg", "jpe", "jfif", "JFIF", "gif", "webp", "jp2", "j2k"]
AVIF = ["avif"] if ".avif" in endings() else []  # a part of some builds of Pillow
LOSSY += AVIF


@pytest.mark.parametrize("ending", [*LOSSLESS, *LOSSY])
def test_case_56_every_ending_that_pillow_reads_is_read(tmp_path: Path, ending: str) -> None:
    array = smooth()
    for place in ("train/a", "train/b", "test/a"):
        save(tmp_path / place / f"x.{ending}", array)
    source = folder(tmp_path)
    got = array_of(source.train_images)[1].transpose(1, 2, 0)
    assert abs(got.astype(int) - array).max() <= (0 if ending in LOSSLESS else 40)
    assert len(source.train_labels) == 2


def test_case_56_a_program_for_printers_is_no_image(tmp_path: Path) -> None:
    make(tmp_path)
    path = tmp_path / "train/a/0.png"  # another program would have to run it
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 7 5\n%%EndComments\nshowpage\n")
    with pytest.raises(UserError, match=f"{path} is not an image that can be read: no format"):
        folder(tmp_path)


def test_case_56_no_ending_of_what_cannot_be_read() -> None:
    known = endings()
    assert {".jpg", ".jfif", ".jpe", ".jp2", ".tga", ".pnm", ".pgm", ".gif"} <= known
    assert not known & {".pdf", ".h5", ".hdf", ".grib", ".eps", ".ps", ".wmf", ".mpg", ".txt", ""}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif", "mpo", *AVIF])
def test_case_57_exif_orientation_is_applied_once(
    tmp_path: Path, ending: str, orientation: int
) -> None:
    array, exif = smooth(), Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / f"x.{ending}", array, exif=exif)
    with Image.open(path) as image:  # Pillow's own turn
        wanted = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    if ending in ("png", "tif"):
        mirrored = array[:, ::-1] if orientation in (2, 4, 5, 7) else array
        turns = {1: 0, 2: 0, 3: 2, 4: 2, 5: 1, 6: 3, 7: 3, 8: 1}
        np.testing.assert_array_equal(wanted, np.rot90(mirrored, turns[orientation]))
    got = read(path)
    np.testing.assert_array_equal(got, wanted.transpose(2, 0, 1))
    with Image.open(path) as image:
        assert upright_size(image) == got.shape[1:]


def late_exif(path: Path, orientation: int) -> None:
    """Move a PNG's EXIF block behind its pixels, where the standard allows it too."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    with Image.open(path) as image:
        image.save(path, exif=exif)
    raw = path.read_bytes()
    at = raw.index(b"eXIf") - 4
    block = raw[at : at + 12 + int.from_bytes(raw[at : at + 4], "big")]
    end = raw.index(b"IEND") - 4
    path.write_bytes(raw[:at] + raw[at + len(block) : end] + block + raw[end:])


@pytest.mark.parametrize("memory_mb", [4096, 0])
def test_case_57_a_folder_of_turned_images_has_one_size(tmp_path: Path, memory_mb: int) -> None:
    make(tmp_path, H, W, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = pixels(W, H, 3)
    save(tmp_path / "train/a/0.png", turned, exif=exif)
    source = folder(tmp_path, memory_mb=memory_mb)
    assert source.img_size == (H, W)
    got = array_of(source.train_images)[0].transpose(1, 2, 0)
    np.testing.assert_array_equal(got, np.rot90(turned, 3))
    late_exif(save(tmp_path / "train/b/1.png", pixels(H, W, 3)), 8)
    source = folder(tmp_path, memory_mb=memory_mb)
    assert source.img_size == (5, 5)
    assert any(f"7 x 5 ({tmp_path / 'train/b/1.png'})" in note for note in source.notes)


@pytest.mark.filterwarnings("ignore:.*EXIF|Truncated File Read")  # Pillow says so, and goes on
def test_case_57_a_damaged_exif_block_turns_nothing(tmp_path: Path) -> None:
    array = smooth()
    exif = Image.Exif()
    exif[0x0112] = 6
    wanted = read(save(tmp_path / "plain.jpg", array))
    raw = save(tmp_path / "x.jpg", array, exif=exif).read_bytes()
    at = raw.index(b"Exif\0\0") + 6
    for damage in (b"XX", b"II", b"MM\0\0", b"MM\0*\xff\xff\xff\xff"):
        path = tmp_path / "damaged.jpg"
        path.write_bytes(raw[:at] + damage + raw[at + len(damage) :])
        np.testing.assert_array_equal(read(path), wanted, err_msg=repr(damage))


def over_white(colour: Pixels, alpha: Pixels) -> Pixels:
    share = alpha[..., None] / 255 if colour.ndim == 3 else alpha / 255
    return colour * share + 255 * (1 - share)


def test_case_58_transparent_pixels_lie_on_white(tmp_path: Path) -> None:
    colour, alpha = pixels(H, W, 3), pixels(H, W)
    alpha[0, :3] = 0, 255, 128
    colour[0, :3] = 255, 0, 0
    for ending in ("png", "webp", "tif", "tga"):
        lossless = {"lossless": True, "exact": True} if ending == "webp" else {}
        path = save(tmp_path / f"x.{ending}", np.dstack([colour, alpha]), **lossless)
        got = read(path).transpose(1, 2, 0)
        np.testing.assert_allclose(got, over_white(colour, alpha), atol=0.51)
        assert got[0, :2].tolist() == [[255, 255, 255], [255, 0, 0]]
    grey = pixels(H, W)
    path = save(tmp_path / "la.png", np.dstack([grey, alpha]))
    with Image.open(path) as image:
        assert (image.mode, channels(image)) == ("LA", 1)
    np.testing.assert_allclose(read(path, 1)[0], over_white(grey, alpha), atol=0.51)
    np.testing.assert_allclose(read(path, 3)[2], over_white(grey, alpha), atol=0.51)


def test_case_58_transparent_colours_of_palettes_and_keys(tmp_path: Path) -> None:
    index = RNG.integers(0, 3, (H, W)).astype(np.uint8)
    palette = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    image = Image.fromarray(index, "L")
    image = image.convert("P")
    image.putdata(index.flatten().tolist())
    image.putpalette([level for colour in palette for level in colour])
    shown = {
        "one.png": (1, [(255, 0, 0), (255, 255, 255), (0, 0, 255)]),
        "one.gif": (1, [(255, 0, 0), (255, 255, 255), (0, 0, 255)]),
        "part.png": (bytes([0, 128, 255]), [(255, 255, 255), (127, 255, 127), (0, 0, 255)]),
    }
    for name, (clear, colours) in shown.items():
        image.save(tmp_path / name, transparency=clear)
        got = read(tmp_path / name).transpose(1, 2, 0)
        np.testing.assert_array_equal(got, np.array(colours)[index])
    grey = pixels(H, W)
    path = save(tmp_path / "grey.png", grey, transparency=int(grey[2, 3]))
    np.testing.assert_array_equal(read(path, 1)[0], np.where(grey == grey[2, 3], 255, grey))
    colour = pixels(H, W, 3)
    path = save(tmp_path / "key.png", colour, transparency=tuple(colour[2, 3].tolist()))
    colour[2, 3] = 255
    np.testing.assert_array_equal(read(path), colour.transpose(2, 0, 1))


LEVELS = (np.arange(H * W) * 1927).astype(np.uint16).reshape(H, W)
LEVELS[0, :5] = 255, 128, 129, 257, 65535


def pgm(path: Path, array: Pixels) -> Path:
    h, w = array.shape
    path.write_bytes(b"P5 %d %d 65535\n" % (w, h) + array.astype(">u2").tobytes())
    return path


def test_case_59_sixteen_bits_become_the_nearest_of_eight(tmp_path: Path) -> None:
    wanted = np.array([[round(v / 257) for v in row] for row in LEVELS.tolist()])
    assert wanted[0, :5].tolist() == [1, 0, 1, 1, 255]
    big = Image.frombytes("I;16B", (W, H), LEVELS.astype(">u2").tobytes())
    big.save(tmp_path / "big.tif")
    big.save(tmp_path / "big.png")
    paths = [
        save(tmp_path / "x.png", LEVELS), save(tmp_path / "x.tif", LEVELS),
        pgm(tmp_path / "x.pgm", LEVELS), tmp_path / "big.tif", tmp_path / "big.png",
        save(tmp_path / "x.jp2", LEVELS),
    ]  # fmt: skip
    for path in paths:
        with Image.open(path) as image:
            assert channels(image) == 1, path
        np.testing.assert_array_equal(read(path, 1)[0], wanted, err_msg=path.name)
        np.testing.assert_array_equal(read(path, 3)[1], wanted, err_msg=path.name)


def test_case_59_sixteen_bits_are_turned_and_transparent_as_eight_are(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.fromarray(LEVELS)
    clear = int(LEVELS[3, 4])
    image.info["transparency"] = clear
    path = tmp_path / "x.png"
    image.save(path, exif=exif, transparency=clear)
    with Image.open(path) as image:
        assert image.info.get("transparency") == clear
    wanted = np.rint(LEVELS / 257)
    wanted[3, 4] = 255
    np.testing.assert_array_equal(read(path, 1)[0], np.rot90(wanted, 3))


def test_case_59_a_folder_of_sixteen_bits_is_grey(tmp_path: Path) -> None:
    make(tmp_path, H, W)
    pgm(tmp_path / "train/a/9.pgm", LEVELS)
    Image.frombytes("I;16B", (W, H), LEVELS.tobytes()).save(tmp_path / "train/b/9.tif")
    assert folder(tmp_path).in_chans == 1


def png(bits: int, kind: int, row: bytes, width: int, key: bytes = b"") -> bytes:
    """A PNG of one row, of a kind that Pillow does not write."""

    def block(name: bytes, content: bytes) -> bytes:
        sum_of_it = zlib.crc32(name + content).to_bytes(4, "big")
        return len(content).to_bytes(4, "big") + name + content + sum_of_it

    head = width.to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes([bits, kind, 0, 0, 0])
    parts = [(b"IHDR", head), (b"tRNS", key), (b"IDAT", zlib.compress(b"\0" + row)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(block(*p) for p in parts if p[1] or p[0] == b"IEND")


def deep(*levels: int) -> bytes:
    return np.array(levels, ">u2").tobytes()


@pytest.mark.parametrize(
    ("content", "chans", "wanted"),
    [
        (png(2, 0, b"\x1b", 4, deep(1)), 1, [0, 255, 170, 255]),
        (png(4, 0, b"\x0f\x3a", 4, deep(3)), 1, [0, 255, 255, 170]),
        (png(1, 0, b"\x50", 4, deep(0)), 1, [255, 255, 255, 255]),
        (png(16, 0, deep(513, 514, 65535), 3, deep(513)), 1, [255, 2, 255]),
        (png(16, 4, deep(25700, 65535, 25700, 0, 0, 65535), 3), 1, [100, 255, 0]),
        (png(16, 2, deep(300, 400, 500, 65535, 0, 0), 2, deep(300, 400, 500)), 3,
         [255, 255, 255, 0, 255, 0]),
        (png(16, 6, deep(65535, 0, 257, 65535, 65535, 0, 0, 0), 2), 3, [255, 255, 0, 255, 1, 255]),
    ],
)  # fmt: skip
def test_case_58_and_59_other_depths(content: bytes, chans: int, wanted: list[int]) -> None:
    with Image.open(io.BytesIO(content)) as image:
        assert channels(image) == chans
    assert decode("x", content, chans, None).flatten().tolist() == wanted


def tiff(bits: int, photometric: int, data: bytes, width: int) -> bytes:
    """One row of grey."""
    tags = {256: width, 257: 1, 258: bits, 259: 1, 262: photometric, 273: 0, 277: 1, 278: 1,
            279: len(data)}  # fmt: skip
    tags[273] = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, n, 0) for tag, n in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + b"\0\0\0\0" + data


def test_case_59_twelve_bits_and_white_that_is_zero() -> None:
    twelve = bytes.fromhex("000001800fff")
    assert decode("x", tiff(12, 1, twelve, 4), 1, None).flatten().tolist() == [0, 0, 128, 255]
    sixteen = np.array([0, 255, 65535], "<u2").tobytes()
    assert decode("x", tiff(16, 1, sixteen, 3), 1, None).flatten().tolist() == [0, 1, 255]
    assert decode("x", tiff(16, 0, sixteen, 3), 1, None).flatten().tolist() == [255, 254, 0]


@pytest.mark.parametrize(
    ("name", "array"),
    [("x.tif", np.ones((H, W), np.int32)), ("y.tif", np.ones((H, W), np.float32)),
     ("x.pfm", np.ones((H, W), np.float32))],
)  # fmt: skip
def test_case_59_more_than_sixteen_bits_are_refused(
    tmp_path: Path, name: str, array: Pixels
) -> None:
    make(tmp_path, H, W)
    path = save(tmp_path / "train/a" / name, array)
    with pytest.raises(UserError, match=f"{path} has pixels of 32 bits in one channel; wanted 8"):
        folder(tmp_path)


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "LAB", "1", "P", "RGBX"])
def test_other_colour_spaces_are_read(tmp_path: Path, mode: str) -> None:
    array = smooth()
    image = Image.fromarray(array)
    if mode == "LAB":
        from PIL import ImageCms

        profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        image = ImageCms.profileToProfile(image, *profiles, outputMode="LAB")
    else:
        image = image.convert(mode)
    image.save(tmp_path / "x.tif")
    with Image.open(tmp_path / "x.tif") as again:
        assert channels(again) == (1 if mode == "1" else 3)
        wanted = np.asarray(again.convert("RGB"))
    np.testing.assert_array_equal(read(tmp_path / "x.tif").transpose(1, 2, 0), wanted)
    if mode in ("CMYK", "YCbCr", "RGBX"):
        assert abs(wanted.astype(int) - array).max() <= 3


def test_the_first_of_several_frames_is_read_and_they_are_counted(tmp_path: Path) -> None:
    make(tmp_path, 8, 8)
    frames = [Image.fromarray(np.full((8, 8), level, np.uint8)) for level in (10, 200, 90)]
    for name in ("x.gif", "y.png", "z.tif"):
        path = tmp_path / "train/b" / name
        frames[0].save(path, save_all=True, append_images=frames[1:])
    source = folder(tmp_path)
    np.testing.assert_array_equal(array_of(source.train_images)[-3:], 10)
    wanted = f"3 files with several frames, of which the first is read, as {path.parent}/x.gif"
    assert source.notes == (wanted,)


@pytest.mark.parametrize("chans", [1, 3])
def test_explain_reads_images_as_a_folder_does(tmp_path: Path, chans: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    alpha = pixels(W, H)
    if chans == 1:
        save(tmp_path / "a.png", np.dstack([pixels(W, H), alpha]), exif=exif)
        Image.frombytes("I;16B", (W, H), LEVELS.tobytes()).save(tmp_path / "b.tif")
        pgm(tmp_path / "c.pgm", LEVELS)
    else:
        save(tmp_path / "a.png", np.dstack([pixels(W, H, 3), alpha]), exif=exif)
        Image.fromarray(smooth(H, W)).quantize(5).save(tmp_path / "b.png")
        save(tmp_path / "c.jfif", pixels(H, W, 3))
    paths = sorted(tmp_path.iterdir())
    level = torch.zeros(chans)
    trained = Trained(torch.nn.Identity(), "x", ("a", "b"), level, level, (H, W), chans)
    got, notes = read_images(paths, trained)
    assert notes == []
    for path, array in zip(paths, got.numpy(), strict=True):
        np.testing.assert_array_equal(array, read(path, chans))
    other = Trained(torch.nn.Identity(), "x", ("a", "b"), level, level, (H, W), 4 - chans)
    with pytest.raises(UserError, match=f"a.png has {chans} channels? .*takes {4 - chans}"):
        read_images(paths, other)
