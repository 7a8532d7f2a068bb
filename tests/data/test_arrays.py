"""Arrays, .npz files, data sets of PyTorch, torchvision and Hugging Face become a `Source`."""

import io
import pickle
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from made_images import pixels
from PIL import Image
from torch import Tensor

from vision_attn.data.arrays import Items
from vision_attn.data.augment import AugmentConfig
from vision_attn.data.module import ImageData
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.errors import UserError

TRAIN, TEST = 23, 7
LABELS = np.arange(TRAIN) % 3, np.arange(TEST) % 3


def images(*shape: int) -> tuple[Any, Any]:
    """The same ones for a shape at each call."""
    rng = np.random.default_rng(len(shape))
    x = rng.integers(0, 256, (TRAIN + TEST, *shape), np.uint8)
    return x[:TRAIN], x[TRAIN:]


def same(source: Source, train: Any, test: Any) -> None:
    """The source has these images (n, C, h, w), and `LABELS`."""
    assert isinstance(source.train_images, Tensor)
    assert isinstance(source.test_images, Tensor)
    np.testing.assert_array_equal(source.train_images.numpy(), train)
    np.testing.assert_array_equal(source.test_images.numpy(), test)
    np.testing.assert_array_equal(source.train_labels, LABELS[0])
    np.testing.assert_array_equal(source.test_labels, LABELS[1])
    assert source.train_labels.dtype == np.int64


@pytest.mark.parametrize("kind", ["grey", "last", "first", "tensor"])
def test_arrays(kind: str) -> None:
    shape = {"grey": (5, 8), "last": (5, 8, 3)}.get(kind, (3, 5, 8))
    x, x_test = images(*shape)
    given: Any = (
        (torch.from_numpy(x), torch.from_numpy(x_test)) if kind == "tensor" else (x, x_test)
    )
    source = Source.from_arrays(given[0], LABELS[0], given[1], LABELS[1][:, None], name="mine")
    axes = {"grey": lambda a: a[:, None], "last": lambda a: a.transpose(0, 3, 1, 2)}
    same(source, *(axes.get(kind, lambda a: a)(a) for a in (x, x_test)))
    assert (source.name, source.label, source.classes) == ("mine", "mine", ("0", "1", "2"))
    assert len(source.fingerprint) == 16
    assert ImageData(source=source, size=6, batch_size=3).num_classes == 3


def test_labels_may_be_text_or_any_numbers() -> None:
    x, x_test = images(5, 8)
    words = np.array(["ant", "bee", "cat"])
    source = Source.from_arrays(x, words[LABELS[0]], x_test, words[LABELS[1]])
    same(source, x[:, None], x_test[:, None])
    assert source.classes == ("ant", "bee", "cat")
    source = Source.from_arrays(x, 10 * LABELS[0] - 10, x_test, 10 * LABELS[1] - 10)
    same(source, x[:, None], x_test[:, None])
    assert source.classes == ("-10", "0", "10")
    source = Source.from_arrays(x, LABELS[0], x_test, LABELS[1], classes=["a", "b", "c", "d"])
    same(source, x[:, None], x_test[:, None])
    assert source.classes == ("a", "b", "c", "d")


def test_without_test_images_some_are_held_out_by_their_content() -> None:
    x = pixels(211, 5, 8)
    y = np.arange(211) % 3
    source = Source.from_arrays(x, y, test_fraction=0.3)
    parts = [np.asarray(part) for part in (source.train_images, source.test_images)]
    assert 40 < len(parts[1]) < 85
    assert sorted(map(bytes, np.concatenate(parts))) == sorted(map(bytes, x[:, None]))
    order = np.random.default_rng(1).permutation(211)
    again = Source.from_arrays(x[order], y[order], test_fraction=0.3)
    assert {*map(bytes, np.asarray(again.test_images))} == {*map(bytes, parts[1])}
    assert "no test set" in source.notes[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x_train": np.zeros((TRAIN, 5, 8))}, "images are float64 of shape"),
        ({"x_train": np.zeros((TRAIN, 5), np.uint8)}, "wanted uint8"),
        ({"x_test": np.zeros((TEST, 5, 9), np.uint8)}, r"train and test differ: \(C, h, w\) is"),
        ({"y_train": LABELS[0][1:]}, r"labels are int64 of shape \(22,\) for 23 images"),
        ({"y_test": np.zeros((TEST, 2), int)}, "wanted one whole number or text for each"),
        ({"classes": ["a", "b"]}, "labels are 0 to 2, and there are 2 names"),
        ({"name": "digits"}, "name is 'digits'; wanted"),
    ],
)
def test_arrays_that_are_refused(change: dict[str, Any], said: str) -> None:
    x, x_test = images(5, 8)
    given = {"x_train": x, "y_train": LABELS[0], "x_test": x_test, "y_test": LABELS[1]}
    with pytest.raises(UserError, match=said) as caught:
        Source.from_arrays(**{**given, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "names",
    ["x_train y_train x_test y_test", "train_images train_labels test_images test_labels"],
)
def test_an_npz_file(names: str, tmp_path: Path) -> None:
    x, x_test = images(5, 8, 3)
    arrays = dict(zip(names.split(), (x, LABELS[0], x_test, LABELS[1][:, None]), strict=True))
    np.savez(tmp_path / "flies.npz", **arrays, val_images=x[:2])
    source = load(DataConfig(root=str(tmp_path / "flies.npz")))
    same(source, x.transpose(0, 3, 1, 2), x_test.transpose(0, 3, 1, 2))
    assert (source.name, source.label) == ("npz", "flies")


def test_npz_files_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"

    def said() -> str:
        with pytest.raises(UserError) as caught:
            load(DataConfig(root=str(file)))
        return str(caught.value)

    assert "no .npz file of arrays that can be read" in said()
    file.write_bytes(b"no zip")
    assert "no .npz file of arrays that can be read" in said()
    np.savez(file, x=np.zeros(3))
    assert "has x; wanted x_train, y_train, x_test, y_test" in said()
    np.savez(file, x_train=np.array([{}]), y_train=np.zeros(1))
    assert "cannot be loaded when allow_pickle=False" in said()
    with pytest.raises(UserError, match=r"npz needs data\.root, the file of your arrays"):
        load(DataConfig(name="npz"))


class Pairs:
    """A data set by number, as torchvision's are."""

    classes = ("ant", "bee", "cat")

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if number >= len(self):
            raise IndexError(number)
        return self.images[number], self.labels[number]


@pytest.mark.parametrize("kind", ["Pillow", "uint8", "real", "grey"])
def test_data_sets_of_pytorch(kind: str) -> None:
    x, x_test = images(*((5, 8) if kind == "grey" else (5, 8, 3)))
    as_items: Any = {
        "Pillow": Image.fromarray,
        "uint8": lambda a: torch.from_numpy(a.transpose(2, 0, 1).copy()),
        "real": lambda a: a.astype(np.float32) / 255,
        "grey": lambda a: a,
    }[kind]
    labels = [torch.tensor(n) for n in LABELS[0]], LABELS[1].tolist()
    parts = [Pairs([*map(as_items, a)], y) for a, y in zip((x, x_test), labels, strict=True)]
    source = Source.from_dataset(*parts)
    axes = (lambda a: a[:, None]) if kind == "grey" else (lambda a: a.transpose(0, 3, 1, 2))
    same(source, axes(x), axes(x_test))
    assert source.classes == Pairs.classes


def test_images_of_several_sizes_are_resized_as_a_folders_are() -> None:
    shapes = [(90 + i, 81) for i in range(TRAIN)]
    x = [Image.fromarray(pixels(1, *s, 3)[0]) for s in shapes]
    train = Pairs(x, LABELS[0])
    source = Source.from_dataset(train, Pairs(x[:TEST], LABELS[1]))
    assert source.train_images.shape == (TRAIN, 3, 64, 64)
    assert "images differ in size" in source.notes[0]
    small = Source.from_dataset(train, Pairs(x[:TEST], LABELS[1]), img_size=(7, 11))
    assert small.img_size == (7, 11)


def same_unread(left: Source, read: Source) -> None:
    """The same data set, with images that are decoded when a batch has them."""
    assert isinstance(left.train_images, Items)
    assert isinstance(left.test_images, Items)
    assert (left.fingerprint, left.notes) == (read.fingerprint, read.notes)
    assert left.train_labels.tolist() == read.train_labels.tolist()
    assert left.train_images.shape == read.train_images.shape
    one, other = (
        ImageData(source=s, size=6, batch_size=3, augment=AugmentConfig(pad=2, flip=True))
        for s in (left, read)
    )
    for part in ("train_dataloader", "val_dataloader", "test_dataloader"):
        for (x, y), (x_read, y_read) in zip(
            getattr(one, part)(), getattr(other, part)(), strict=True
        ):
            assert torch.equal(x, x_read)
            assert torch.equal(y, y_read)


@pytest.mark.parametrize("test", [True, False])
def test_items_above_the_memory_that_is_given_are_decoded_by_the_batch(test: bool) -> None:
    x, x_test = images(5, 8, 3)
    train = Pairs([Image.fromarray(i) for i in x], LABELS[0])
    held = Pairs([Image.fromarray(i) for i in x_test], LABELS[1]) if test else None
    given: Any = {"train": train, "test": held, "img_size": (7, 4), "test_fraction": 0.4}
    same_unread(Source.from_dataset(**given, memory_mb=0), Source.from_dataset(**given))


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ((np.full((5, 8), -0.5), 1), "image 3 of train is float64 of shape"),
        ((np.zeros((2, 5, 8), np.uint8), 1), "wanted one of Pillow's"),
        ((np.zeros((5, 8), np.uint8), [0, 1]), r"its label is \[0, 1\]"),
        (5, r"image 3 of train is no pair \(image, label\)"),
    ],
)
def test_items_that_are_refused(item: Any, said: str) -> None:
    items = [(np.zeros((5, 8), np.uint8), 0)] * 3 + [item]
    with pytest.raises(UserError, match=said):
        Source.from_dataset(items, items[:1])


def of_class(*_: Any, **options: Any) -> Any:
    train = options.get("train", options.get("split") == "train")
    x, labels = images(5, 8, 3)[1 - train], LABELS[1 - train]
    return Pairs([Image.fromarray(a) for a in x], labels)


class ByTrain(Pairs):
    def __init__(self, root: str, train: bool = True, download: bool = False) -> None:
        assert download
        vars(self).update(vars(of_class(train=train)))


class BySplit(Pairs):
    def __init__(self, root: str, split: str = "train", download: bool = False) -> None:
        if split not in ("trainval", "val"):
            raise ValueError(f"Unknown value {split!r} for argument split.\nValid are two.")
        vars(self).update(vars(of_class(train=split == "trainval")))


class Whole(Pairs):
    def __init__(self, root: str) -> None:
        super().__init__(pixels(211, 5, 8), np.arange(211) % 3)


class Needy(Pairs):
    def __init__(self, root: str, split: str, year: int) -> None: ...


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes above as torchvision's and as a module of one's own."""
    own = ModuleType("my_own_data")
    for cls in (ByTrain, BySplit, Whole, Needy):
        setattr(own, cls.__name__, cls)
        monkeypatch.setattr(torchvision.datasets, cls.__name__, cls, raising=False)
    own.__dict__["made"] = lambda: Source.from_dataset(
        of_class(train=True), of_class(train=False), name="f"
    )
    monkeypatch.setitem(sys.modules, "my_own_data", own)


@pytest.mark.parametrize("where", ["torchvision:", "my_own_data."])
@pytest.mark.parametrize("cls", ["ByTrain", "BySplit"])
def test_classes_by_name(where: str, cls: str, module: None) -> None:
    source = load(DataConfig(name=where + cls))
    same(source, *(a.transpose(0, 3, 1, 2) for a in images(5, 8, 3)))
    assert source.name == where + cls
    assert source.classes == Pairs.classes


def test_a_class_without_parts_and_a_function(module: None) -> None:
    source = load(DataConfig(name="torchvision:Whole", test_fraction=0.3, img_size=4))
    assert len(source.train_labels) + len(source.test_labels) == 211
    assert source.img_size == (4, 4)
    assert load(DataConfig(name="my_own_data.made")).name == "f"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "torchvision:Nothing"}, "has no attribute 'Nothing'"),
        ({"name": "no_such_package.Data"}, "No module named 'no_such_package'"),
        ({"name": "my_own_data.Needy"}, "needs year, which cannot be given here"),
        ({"name": "torchvision:"}, "is not known"),
        ({"name": "my data.Set"}, "is not known"),
    ],
)
def test_classes_that_are_refused(given: dict[str, Any], said: str, module: None) -> None:
    with pytest.raises(UserError, match=said) as caught:
        load(DataConfig(**given))
    assert "\n" not in str(caught.value)


def test_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra hf is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    x = images(5, 8, 3)
    parts = {}
    for part, a, y in zip(("train", "test"), x, LABELS, strict=True):
        kinds = datasets.Features(
            {
                "image": datasets.Image(),
                "label": datasets.ClassLabel(names=["ant", "bee", "cat"]),
                "note": datasets.Value("string"),
            }
        )
        rows = {"image": [Image.fromarray(i) for i in a], "label": y, "note": ["n"] * len(y)}
        parts[part] = datasets.Dataset.from_dict(rows, features=kinds)
        (tmp_path / "parquet").mkdir(exist_ok=True)
        parts[part].to_parquet(tmp_path / "parquet" / f"{part}-00000-of-00001.parquet")
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "arrow")
    for kind in ("parquet", "arrow"):
        source = load(DataConfig(name="hf:bugs", root=str(tmp_path / kind)))
        same(source, *(a.transpose(0, 3, 1, 2) for a in x))
        left = load(DataConfig(name="hf:bugs", root=str(tmp_path / kind), memory_mb=0))
        same_unread(left, source)
        content = pickle.dumps(left.train_images)  # for the processes of a study
        assert len(content) < 20_000, "the table goes by its file"
        assert torch.equal(pickle.loads(content)[torch.arange(TRAIN)], source.train_images)
        assert (source.name, source.label) == ("hf:bugs", "bugs")
        assert source.classes == ("ant", "bee", "cat")
    two = (
        parts["train"]
        .add_column("image2", parts["train"]["label"])
        .cast_column("image2", datasets.Value("int64"))
    )
    datasets.DatasetDict(train=two.remove_columns("image")).save_to_disk(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    for root, said in (
        ("none", "hf:bugs: no column has the images"),
        ("nothing", "is no folder; wanted parquet or arrow files"),
        ("empty", "data.name hf:bugs cannot be read"),
    ):
        with pytest.raises(UserError, match=said):
            load(DataConfig(name="hf:bugs", root=str(tmp_path / root)))


def test_web_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra hf is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "shards").mkdir()
    for part, x, y in zip(("train", "test"), images(5, 8, 3), LABELS, strict=True):
        with tarfile.open(tmp_path / "shards" / f"{part}-000.tar", "w") as tar:
            for i, (image, label) in enumerate(zip(x, y, strict=True)):
                png = io.BytesIO()
                Image.fromarray(image).save(png, "png")
                for ending, content in (("png", png.getvalue()), ("cls", str(label).encode())):
                    entry = tarfile.TarInfo(f"{i:04}.{ending}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
    source = load(DataConfig(name="hf:shards", root=str(tmp_path / "shards")))
    same(source, *(a.transpose(0, 3, 1, 2) for a in images(5, 8, 3)))


def test_hugging_face_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'vision-attn\[hf\]'"):
        load(DataConfig(name="hf:mnist"))
