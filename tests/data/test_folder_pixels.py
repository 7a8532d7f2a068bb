"""The pixels of a folder, of one size or of many, in memory or streamed; broken files are named."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_images import array_of, folder, make, pixels, save
from PIL import Image
from torch import Tensor
from torch.testing import assert_close

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError


@pytest.mark.parametrize("memory_mb", [4096, 0])
def test_folder_holds_the_pixels_of_its_files_by_sorted_class(
    tmp_path: Path, memory_mb: int
) -> None:
    made = make(tmp_path, 5, 7, 3)
    made["train/a/deeper/x.PNG"] = pixels(5, 7, 3)
    save(tmp_path / "train/a/deeper/x.PNG", made["train/a/deeper/x.PNG"])
    (tmp_path / "train/a/notes.txt").write_text("no image")
    source = folder(tmp_path, memory_mb=memory_mb)
    assert isinstance(source.train_images, Files if memory_mb == 0 else Tensor)
    order = ["a/0.png", "a/1.png", "a/2.png", "a/deeper/x.PNG", "b/0.png", "b/1.png", "b/2.png"]
    wanted = np.stack([made[f"train/{p}"].transpose(2, 0, 1) for p in order])
    np.testing.assert_array_equal(array_of(source.train_images), wanted)
    assert source.train_labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    wanted = np.stack([made[f"test/{p}/0.png"].transpose(2, 0, 1) for p in "ab"])
    np.testing.assert_array_equal(array_of(source.test_images), wanted)
    assert source.test_labels.tolist() == [0, 1]
    assert source.classes == ("a", "b")
    assert source.flip
    assert (source.in_chans, source.img_size) == (3, (5, 7))


def test_grey_folder_has_one_channel(tmp_path: Path) -> None:
    made = make(tmp_path, 7, 5)
    source = folder(tmp_path)
    assert (source.in_chans, source.img_size) == (1, (7, 5))
    np.testing.assert_array_equal(array_of(source.train_images)[3, 0], made["train/b/0.png"])


def test_one_colour_image_makes_all_three_channels(tmp_path: Path) -> None:
    made = make(tmp_path, 7, 5)
    colour = pixels(7, 5, 3)
    save(tmp_path / "test/b/0.png", colour)
    source = folder(tmp_path)
    np.testing.assert_array_equal(array_of(source.test_images)[1], colour.transpose(2, 0, 1))
    grey = np.stack([made["train/a/0.png"]] * 3)
    np.testing.assert_array_equal(array_of(source.train_images)[0], grey)


def test_other_pixel_formats(tmp_path: Path) -> None:
    made = make(tmp_path, 5, 7, 3)
    flat = Image.fromarray(made["train/a/1.png"]).quantize(11)
    flat.save(tmp_path / "train/a/1.png")
    got = array_of(folder(tmp_path).train_images)
    np.testing.assert_array_equal(got[1].transpose(1, 2, 0), np.asarray(flat.convert("RGB")))


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    make(tmp_path, 5, 7)
    path = save(tmp_path / "train/a/0.tif", np.linspace(0, 1, 35, dtype=np.float32).reshape(5, 7))
    with pytest.raises(UserError, match=f"{path} has pixels of 32 bits"):
        folder(tmp_path)


@pytest.mark.parametrize(
    ("sides", "wanted", "more"),
    [([40, 67, 90], 64, ""), ([9, 10, 500], 8, ""), ([3, 5, 7], 5, ""), ([100, 300], 64, " 96"),
     ([1000, 3000, 4000], 64, " 224")],
)  # fmt: skip
def test_case_fh_1_images_of_several_sizes_become_squares_of_64_or_less(
    tmp_path: Path, sides: list[int], wanted: int, more: str
) -> None:
    for i, side in enumerate(sides):
        for place in ("train/a", "train/b", "test/a"):
            path = tmp_path / place / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (side + 3, side)).save(path)
    source = folder(tmp_path)
    assert source.img_size == (wanted, wanted)
    first, last = (tmp_path / "train/a" / f"{i}.png" for i in (0, len(sides) - 1))
    note = (
        f"images differ in size, from {sides[0]} x {sides[0] + 3} pixels ({first}) to"
        f" {sides[-1]} x {sides[-1] + 3} ({last}), and are cut to squares and resized to"
        f" {wanted} x {wanted}"
    )
    hint = f"; more detail, in more time: --data.img_size{more}" if more else ""
    assert [n for n in source.notes if "size" in n] == [note + hint]
    given = folder(tmp_path, img_size=(5, 7))
    assert given.img_size == (5, 7)
    assert not any("size" in n for n in given.notes)


def test_case_fh_1_large_images_of_one_size_are_resized_and_a_note_says_so(tmp_path: Path) -> None:
    make(tmp_path, 96, 96, 3)
    source = folder(tmp_path)
    assert source.img_size == (64, 64)
    assert source.notes == (
        "all images are 96 x 96 pixels and are resized to 64 x 64; more detail, in more time:"
        " --data.img_size 96",
    )
    resized = folder(tmp_path, img_size=64)
    assert resized.fingerprint == source.fingerprint
    assert resized.notes == ()
    assert folder(tmp_path, img_size=96).img_size == (96, 96)


def test_img_size_takes_the_middle(tmp_path: Path) -> None:
    make(tmp_path, 4, 4, 3)
    wide, tall, large = pixels(4, 12, 3), pixels(14, 4, 3), pixels(24, 8, 3)
    for i, array in enumerate((wide, tall, large)):
        save(tmp_path / f"train/a/{i}.png", array)
    got = array_of(folder(tmp_path, img_size=4).train_images).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(got[0], wide[:, 4:8])
    np.testing.assert_array_equal(got[1], tall[5:9])
    half = np.asarray(Image.fromarray(large).resize((4, 12), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(got[2], half[4:8])


def test_streamed_batches_equal_those_in_memory(tmp_path: Path) -> None:
    make(tmp_path, 9, 11, 3, n=13)

    def batches(memory_mb: int) -> list[Any]:
        data = ImageData(
            "folder", root=str(tmp_path), img_size=7, memory_mb=memory_mb, size=10, batch_size=3,
            augment=AugmentConfig(pad=2, flip=True),
        )  # fmt: skip
        loaders = data.train_dataloader(), data.val_dataloader(), data.test_dataloader()
        return [batch for loader in loaders for batch in loader]

    streamed, kept = batches(0), batches(4096)
    assert len(streamed) == 3 + 1 + 1
    assert_close(streamed, kept, rtol=0, atol=0)


def test_fingerprint_is_of_the_pixels_wherever_they_lie(tmp_path: Path) -> None:
    make(tmp_path, 5, 7)
    source = folder(tmp_path)
    parts = [source.train_images, source.train_labels, source.test_images, source.test_labels]
    digest = hashlib.blake2b(digest_size=8)
    for array in map(np.asarray, parts):
        digest.update(str(array.shape).encode() + array.tobytes())
    assert source.fingerprint == digest.hexdigest()
    assert folder(tmp_path, memory_mb=0).fingerprint == source.fingerprint
    path = save(tmp_path / "train/a/0.bmp", np.zeros((5, 7), np.uint8))
    before, size = folder(tmp_path, memory_mb=0).fingerprint, path.stat().st_size
    save(path, pixels(5, 7))  # as large a file
    assert path.stat().st_size == size
    other = folder(tmp_path, memory_mb=0).fingerprint
    assert other == folder(tmp_path).fingerprint != before


def test_pieces_of_a_streamed_folder_are_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 5, 7, 3, n=71)
    wanted = folder(tmp_path)
    monkeypatch.setattr("vision_attn.data.folder._BLOCK", 1)  # an image at a time
    for memory_mb in (0, 4096):
        source = folder(tmp_path, memory_mb=memory_mb)
        assert source.fingerprint == wanted.fingerprint
        np.testing.assert_array_equal(array_of(source.train_images), array_of(wanted.train_images))


def cut(kind: str) -> bytes:
    whole = io.BytesIO()
    Image.fromarray(pixels(31, 37, 3)).save(whole, kind)
    return whole.getvalue()[: len(whole.getvalue()) // 2]


BROKEN = {
    "half.jpg": cut("JPEG"),
    "half.png": cut("PNG"),
    "empty.png": b"",
    "text.png": b"this is no image\n",
    "header.ppm": b"P6\n31",  # Pillow raises a plain ValueError
}


@pytest.mark.parametrize("memory_mb", [4096, 0])
@pytest.mark.parametrize("where", ["train/b", "test/a"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named(tmp_path: Path, name: str, where: str, memory_mb: int) -> None:
    make(tmp_path, 31, 37, 3)
    path = tmp_path / where / name
    path.write_bytes(BROKEN[name])
    with pytest.raises(UserError, match=f"{path} is not an image that can be read"):
        folder(tmp_path, memory_mb=memory_mb)


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    for part in ("train", "test"):
        save(tmp_path / part / "a/1.png", pixels(5, 7))
        save(tmp_path / part / "c/1.png", pixels(5, 7))
    (tmp_path / "train/b").mkdir()
    with pytest.raises(UserError, match=f"class 'b' has no images: {tmp_path}/train/b is empty"):
        folder(tmp_path)
    (tmp_path / "train/b/x.heic").write_bytes(b"0")
    wanted = f"{tmp_path}/train/b is empty; 1 file in {tmp_path}/train/b skipped .*: .heic 1"
    with pytest.raises(UserError, match=wanted):
        folder(tmp_path)


def test_a_folder_with_test_needs_train(tmp_path: Path) -> None:
    make(tmp_path, 5, 7)
    (tmp_path / "train").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"data.root {tmp_path} has no folder train/"):
        folder(tmp_path)


def test_a_class_only_in_test_is_named(tmp_path: Path) -> None:
    make(tmp_path, 5, 7)
    save(tmp_path / "test/zebra/0.png", pixels(5, 7))
    with pytest.raises(UserError, match=f"class 'zebra' is in {tmp_path}/test and not in"):
        folder(tmp_path)


def test_one_class_is_nothing_to_tell_apart(tmp_path: Path) -> None:
    save(tmp_path / "train/a/0.png", pixels(5, 7))
    save(tmp_path / "test/a/0.png", pixels(5, 7))
    with pytest.raises(UserError, match="has 1 class folders; wanted 2 or more"):
        folder(tmp_path)
