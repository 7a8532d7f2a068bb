"""Named data sets become exact arrays; what is broken or missing is named before training."""

import hashlib
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor
from torch.testing import assert_close

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.errors import UserError

Pixels = NDArray[np.uint8]
RNG = np.random.default_rng(19)


def pixels(*shape: int) -> Pixels:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, array: NDArray[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return path


def make(root: Path, *shape: int, n: int = 3) -> dict[str, Pixels]:
    """Two classes, n training and one test image each; returns the pixels by path."""
    made = {}
    for name in ("b", "a"):
        for i in range(n):
            made[f"train/{name}/{i}.png"] = pixels(*shape)
        made[f"test/{name}/0.png"] = pixels(*shape)
    for path, array in made.items():
        save(root / path, array)
    return made


def folder(root: Path, **more: Any) -> Source:
    return load(DataConfig(name="folder", root=str(root), **more))


def held(images: Tensor | Files) -> Pixels:
    return images[np.arange(len(images))] if isinstance(images, Files) else images.numpy()


def test_digits_are_scikit_learns_scans_scaled_exactly() -> None:
    raw, source = load_digits(), load(DataConfig())
    levels = [0, 16, 32, 48, 64, 80, 96, 112, 128, 143, 159, 175, 191, 207, 223, 239, 255]
    scaled = np.array(levels, np.uint8)[raw.images.astype(int)][:, None]
    test = [i for i in range(1797) if i % 3 == 2]
    train = [i for i in range(1797) if i % 3 != 2]
    assert isinstance(source.train_images, Tensor)
    assert isinstance(source.test_images, Tensor)
    assert_close(source.train_images, torch.from_numpy(scaled[train]), rtol=0, atol=0)
    assert_close(source.test_images, torch.from_numpy(scaled[test]), rtol=0, atol=0)
    assert source.train_labels.tolist() == raw.target[train].tolist()
    assert source.test_labels.tolist() == raw.target[test].tolist()
    assert source.train_images.shape == (1198, 1, 8, 8)
    assert (source.in_chans, source.img_size) == (1, (8, 8))
    assert source.classes == tuple("0123456789")
    assert not source.flip
    counts = np.bincount(source.train_labels)
    assert (counts.min(), counts.max()) == (111, 129)


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
    np.testing.assert_array_equal(held(source.train_images), wanted)
    assert source.train_labels.tolist() == [0, 0, 0, 0, 1, 1, 1]
    wanted = np.stack([made[f"test/{p}/0.png"].transpose(2, 0, 1) for p in "ab"])
    np.testing.assert_array_equal(held(source.test_images), wanted)
    assert source.test_labels.tolist() == [0, 1]
    assert source.classes == ("a", "b")
    assert source.flip
    assert (source.in_chans, source.img_size) == (3, (5, 7))


def test_grey_folder_has_one_channel(tmp_path: Path) -> None:
    made = make(tmp_path, 7, 5)
    source = folder(tmp_path)
    assert (source.in_chans, source.img_size) == (1, (7, 5))
    np.testing.assert_array_equal(held(source.train_images)[3, 0], made["train/b/0.png"])


def test_one_colour_image_makes_all_three_channels(tmp_path: Path) -> None:
    made = make(tmp_path, 7, 5)
    colour = pixels(7, 5, 3)
    save(tmp_path / "test/b/0.png", colour)
    source = folder(tmp_path)
    np.testing.assert_array_equal(held(source.test_images)[1], colour.transpose(2, 0, 1))
    grey = np.stack([made["train/a/0.png"]] * 3)
    np.testing.assert_array_equal(held(source.train_images)[0], grey)


def test_other_pixel_formats(tmp_path: Path) -> None:
    made = make(tmp_path, 5, 7, 3)
    flat = Image.fromarray(made["train/a/1.png"]).quantize(11)
    flat.save(tmp_path / "train/a/1.png")
    got = held(folder(tmp_path).train_images)
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
    got = held(folder(tmp_path, img_size=4).train_images).transpose(0, 2, 3, 1)
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
        np.testing.assert_array_equal(held(source.train_images), held(wanted.train_images))


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "cifar"}, "data.name 'cifar' is not known; choose one of digits, cifar10,"),
        ({"name": "folder"}, "data.name folder needs data.root"),
        ({"name": "digits", "img_size": 16}, "data.img_size is for folders; digits has"),
        ({"name": "folder", "root": "x", "img_size": 0}, "data.img_size is 0; wanted 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(DataConfig(**given))


TRAIN, TEST = 23, 5
FROM = "made-up.example/"


def fake(name: str, *shape: int, classes: int, **attributes: Any) -> type:
    """A stand-in for torchvision's class: the same attributes, nothing downloaded."""
    parts = {n: pixels(n, *shape) for n in (TRAIN, TEST)}

    def start(self: Any, root: str, *, download: bool, **split: Any) -> None:
        assert download
        n = TRAIN if split in ({"train": True}, {"split": "train"}) else TEST
        self.data = torch.from_numpy(parts[n]) if "MNIST" in name else parts[n]
        labels = np.arange(n)[::-1] % classes
        if name == "SVHN":
            self.labels = labels
        else:
            self.targets = torch.from_numpy(labels.copy()) if "MNIST" in name else labels.tolist()
            self.classes = [f"class {i}" for i in range(classes)]

    return type(name, (), {"__init__": start, "parts": parts, **attributes})


@pytest.mark.parametrize(
    ("name", "cls", "shape", "axes", "size", "classes", "flip"),
    [
        ("cifar10", "CIFAR10", (7, 11, 3), (0, 3, 1, 2), (3, 7, 11), 3, True),
        ("cifar100", "CIFAR100", (7, 11, 3), (0, 3, 1, 2), (3, 7, 11), 5, True),
        ("mnist", "MNIST", (7, 11), (0, 1, 2), (1, 7, 11), 3, False),
        ("fashion_mnist", "FashionMNIST", (7, 11), (0, 1, 2), (1, 7, 11), 3, True),
        ("svhn", "SVHN", (3, 7, 11), (0, 1, 2, 3), (3, 7, 11), 3, False),
    ],
)
def test_torchvisions_layouts_become_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, cls: str, shape: tuple[int, ...],
    axes: tuple[int, ...], size: tuple[int, int, int], classes: int, flip: bool,
) -> None:  # fmt: skip
    made: Any = fake(cls, *shape, classes=classes)
    monkeypatch.setattr(torchvision.datasets, cls, made)
    source = load(DataConfig(name=name, root=str(tmp_path)))
    for n, images, labels in (
        (TRAIN, source.train_images, source.train_labels),
        (TEST, source.test_images, source.test_labels),
    ):
        np.testing.assert_array_equal(held(images), made.parts[n].transpose(axes).reshape(n, *size))
        assert labels.dtype == np.int64
        assert labels.tolist() == [(n - 1 - i) % classes for i in range(n)]
    names = [str(i) if name == "svhn" else f"class {i}" for i in range(classes)]
    assert source.classes == tuple(names)
    assert source.flip is flip
    data = ImageData(source=source)
    assert (data.in_chans, *data.img_size, data.num_classes) == (*size, classes)
    x, y = next(iter(data.train_dataloader()))
    assert (x.dtype, x.shape[1:], y.max().item()) == (torch.float32, size, classes - 1)


def test_real_sets_keep_the_attributes_that_messages_use() -> None:
    sets = torchvision.datasets
    assert sets.CIFAR10.url.endswith(sets.CIFAR10.filename)
    assert sets.CIFAR100.url.endswith(sets.CIFAR100.filename)
    for cls in (sets.MNIST, sets.FashionMNIST):
        assert cls.mirrors
        assert {name.split("-")[0] for name, _ in cls.resources} == {"train", "t10k"}
    for part in ("train", "test"):
        assert sets.SVHN.split_list[part][0].endswith(sets.SVHN.split_list[part][1])


def unreachable(name: str, **attributes: Any) -> type:
    """As torchvision's do, makes its directories before it asks the network."""

    def start(self: Any, root: str, **_: Any) -> None:
        (Path(root) / (f"{name}/raw" if "MNIST" in name else "")).mkdir(parents=True, exist_ok=True)
        raise URLError("no route\nto host")

    return type(name, (), {"__init__": start, **attributes})


OFFLINE = {
    "cifar10": unreachable("CIFAR10", url=FROM + "c.tar.gz", filename="c.tar.gz"),
    "mnist": unreachable("MNIST", mirrors=[FROM], resources=[("t.gz", ""), ("l.gz", "")]),
    "svhn": unreachable("SVHN", split_list={"train": [FROM + "t.mat", "t.mat", ""]}),
}
SAYS = {
    "cifar10": f"cifar10: c.tar.gz from {FROM}c.tar.gz is not under ROOT and",
    "mnist": f"mnist: t.gz, l.gz from {FROM} is not under ROOT/MNIST/raw and",
    "svhn": f"svhn: t.mat from {FROM}t.mat is not under ROOT and",
}


@pytest.mark.parametrize("under", ["", "not/there/yet"])
@pytest.mark.parametrize("name", OFFLINE)
def test_no_download_one_line_and_nothing_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, under: str
) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    root = tmp_path / under
    monkeypatch.setattr(torchvision.datasets, name.upper(), OFFLINE[name])
    with pytest.raises(UserError) as caught:
        load(DataConfig(name=name, root=str(root)))
    message = str(caught.value)
    assert message.startswith(SAYS[name].replace("ROOT", str(root)))
    assert "\n" not in message
    assert "put the file there, or use --data.name folder --data.root DIR" in message
    assert [p.name for p in tmp_path.rglob("*")] == ["mine.txt"]


def test_only_the_files_that_are_missing_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "MNIST/raw").mkdir(parents=True)
    (tmp_path / "MNIST/raw/t.gz").write_bytes(b"downloaded before")
    monkeypatch.setattr(torchvision.datasets, "MNIST", OFFLINE["mnist"])
    with pytest.raises(UserError, match=f"mnist: l.gz from {FROM}"):
        load(DataConfig(name="mnist", root=str(tmp_path)))
    assert (tmp_path / "MNIST/raw/t.gz").exists()


def test_the_test_file_is_named_when_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = {"train": [FROM + "a.mat", "a.mat", ""], "test": [FROM + "b.mat", "b.mat", ""]}

    def half(root: str, *, split: str, download: bool) -> Any:
        if split == "test":
            raise URLError("no route")
        return SimpleNamespace(data=pixels(TRAIN, 3, 5, 7), labels=np.arange(TRAIN) % 3)

    monkeypatch.setattr(half, "split_list", files, raising=False)
    monkeypatch.setattr(torchvision.datasets, "SVHN", half)
    with pytest.raises(UserError, match=f"svhn: b.mat from {FROM}b.mat"):
        load(DataConfig(name="svhn", root=str(tmp_path)))
