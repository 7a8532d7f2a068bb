"""Named data sets become exact arrays; what is broken or missing is named before training."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision
from made_images import array_of, pixels
from sklearn.datasets import load_digits
from torch import Tensor
from torch.testing import assert_close

from vision_attn.data.module import ImageData
from vision_attn.data.sources import DataConfig, load
from vision_attn.errors import UserError


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "cifar"}, "data.name 'cifar' is not known; did you mean cifar10"),
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
        np.testing.assert_array_equal(
            array_of(images), made.parts[n].transpose(axes).reshape(n, *size)
        )
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
