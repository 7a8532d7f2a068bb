"""Each batch is fixed by data set, draw, size and seed; evaluation sees every image once."""

from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import DataLoader

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.training.classifier import Classifier

pytestmark = [
    pytest.mark.filterwarnings("ignore:::lightning"),  # advice on worker counts and log intervals
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker"),  # on one core
]

H, W, TESTS = 8, 12, 503


def mark(ids: NDArray[Any]) -> NDArray[np.int64]:
    """Grey levels of the two channels that tell an image's number."""
    return np.stack([ids % 251, ids // 251], 1)


def marked(n: int, classes: int = 2) -> Source:
    """n training images and 503 test images, each of one colour that is its number."""
    images = mark(np.arange(n + TESTS)).astype(np.uint8)[:, :, None, None].repeat(H, 2).repeat(W, 3)
    x, y = torch.from_numpy(images), np.arange(n + TESTS) % classes
    names = tuple("abcdefghijk"[:classes])
    return Source("marked", names, True, x[:n], y[:n], x[n:], y[n:], "marked")


def ids(x: Tensor, data: ImageData) -> list[int]:
    """Which images a batch holds, read from their middle pixel."""
    marks = mark(data.subset.train)
    level = x[:, :, H // 2, W // 2].double().numpy()
    level = np.rint(level * np.maximum(marks.std(0), 1) + marks.mean(0)).astype(int)
    return (level[:, 0] + 251 * level[:, 1]).tolist()


def epoch(loader: DataLoader[Any], which: int) -> list[Any]:
    sampler: Any = loader.sampler
    sampler.set_epoch(which)
    return list(loader)


@dataclass(frozen=True)
class Counted(Files):
    """Grey images left on disk, which count how often each is read."""

    reads: list[int] = field(default_factory=list)

    def __getitem__(self, index: Tensor) -> Tensor:
        self.reads.extend(index.tolist())
        return torch.full((len(index), self.chans, *self.img_size), 77, dtype=torch.uint8)


class Seen(Callback):
    """The images of each training batch."""

    def __init__(self, data: ImageData) -> None:
        self.data = data
        self.batches: list[list[int]] = []

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, number: int) -> None:
        self.batches.append(ids(batch[0], self.data))


MODELS: dict[str, dict[str, Any]] = {
    "vit": {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3},
    "cnn": {"widths": [3, 5], "depth": 1},
}


def fit(model: str, root: Path, source: Source, size: int, batch: int) -> tuple[Any, L.Trainer]:
    """Three epochs of a tiny model; the batches it saw and its trainer."""
    data = ImageData(
        source=source, size=size, batch_size=batch, augment=AugmentConfig(pad=1, flip=True)
    )
    seen = Seen(data)
    trainer = L.Trainer(
        default_root_dir=root, accelerator="cpu", devices=1, max_epochs=3, callbacks=[seen],
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    module = Classifier(
        model, MODELS[model], img_size=data.img_size, in_chans=data.in_chans,
        num_classes=data.num_classes,
    )  # fmt: skip
    trainer.fit(module, datamodule=data)
    return seen.batches, trainer


@pytest.mark.parametrize("model", MODELS)
def test_both_models_see_exactly_the_subset_in_the_same_order(model: str, tmp_path: Path) -> None:
    source = marked(59)
    expected = ImageData(source=source, size=20, batch_size=8)
    wanted = [ids(x, expected) for e in range(3) for x, _ in epoch(expected.train_dataloader(), e)]
    batches, _ = fit(model, tmp_path, source, 20, 8)
    assert batches == wanted
    assert set(chain(*batches)) == set(expected.subset.train.tolist())
    assert len(set(chain(*batches))) == 20


@pytest.mark.parametrize(("size", "batch", "sizes"), [(4, 2, [2] * 6), (7, 8, [7] * 3),
                                                      (33, 32, [32] * 3)])  # fmt: skip
def test_small_subsets_train_on_whole_batches_of_the_same_images(
    tmp_path: Path, size: int, batch: int, sizes: list[int]
) -> None:
    batches, trainer = fit("cnn", tmp_path, marked(59), size, batch)
    assert [len(b) for b in batches] == sizes
    assert trainer.global_step == len(sizes)
    assert len(set(chain(*batches))) == size
    assert len({tuple(b) for b in batches}) > 1


def test_fit_never_reads_the_test_images(tmp_path: Path) -> None:
    source = marked(59)
    test = Counted(("",) * TESTS, 2, (H, W))
    source = replace(source, test_images=test)
    _, trainer = fit("cnn", tmp_path, source, 20, 8)
    assert trainer.callback_metrics["val_acc"] >= 0  # what was looked at is validation
    assert test.reads == []
    trainer.test(trainer.lightning_module, ImageData(source=source, size=20), verbose=False)
    assert test.reads == list(range(TESTS))


def test_evaluation_reads_every_image_once_in_order() -> None:
    data = ImageData(source=marked(1301), size=601, batch_size=7, val_fraction=0.4)
    for loader, wanted in (
        (data.clean_train_dataloader(), data.subset.train.tolist()),
        (data.val_dataloader(), data.subset.val.tolist()),
        (data.test_dataloader(), list(range(1301, 1301 + TESTS))),
        (data.predict_dataloader(), list(range(1301, 1301 + TESTS))),
    ):
        batches = list(loader)
        assert [i for x, _ in batches for i in ids(x, data)] == wanted
        assert torch.cat([y for _, y in batches]).tolist() == [i % 2 for i in wanted]
        assert len(loader) == len(batches) == 2


def test_validation_stays_as_it_is_and_training_varies() -> None:
    data = ImageData(
        source=marked(59), size=20, batch_size=20, augment=AugmentConfig(pad=2, flip=True)
    )
    kept, varied = [], []
    train, val = data.train_dataloader(), data.val_dataloader()
    for number in range(5):
        kept.append(next(iter(val)))
        x, y = epoch(train, number)[0]
        order = np.argsort(ids(x, data))
        varied.append(x[order])  # images of one colour: only the crop tells them apart
        assert y[order].tolist() == [i % 2 for i in data.subset.train]
    plain = ImageData(source=data.source, size=20)  # without augmentation
    for again in kept:
        assert_close(again, next(iter(plain.val_dataloader())), rtol=0, atol=0)
    clean = next(iter(data.clean_train_dataloader()))[0]
    assert_close(clean, next(iter(plain.clean_train_dataloader()))[0], rtol=0, atol=0)
    for i, one in enumerate(varied):
        assert all((one != other).any() for other in [clean, *varied[:i]])


def test_augmentation_differs_over_batches_and_follows_the_seed() -> None:
    def zeros(seed: int) -> list[Tensor]:
        """Where each image of 3 epochs of 4 batches was padded."""
        data = ImageData(
            source=marked(59), size=20, batch_size=5, seed=seed, augment=AugmentConfig(pad=2)
        )
        level = mark(data.subset.train)[:, 0]
        black = -level.mean() / level.std()
        loader = data.train_dataloader()
        return [(x[:, 0] - black).abs() < 1e-5 for e in range(3) for x, _ in epoch(loader, e)]

    one = zeros(3)
    assert_close(zeros(3), one, rtol=0, atol=0)
    assert len({z.numpy().tobytes() for z in one}) == 12
    assert len({z.numpy().tobytes() for z in [*one, *zeros(4)]}) == 24


def test_digits_are_not_mirrored() -> None:
    data = ImageData("digits", size=53, batch_size=53, augment=AugmentConfig(flip=True))
    x = next(iter(data.train_dataloader()))[0]
    clean = next(iter(data.clean_train_dataloader()))[0]
    assert_close(x.flatten(1).sort(0).values, clean.flatten(1).sort(0).values, rtol=0, atol=0)


@pytest.mark.parametrize("n", [23, 2503])  # 2503: summed in pieces
def test_statistics_are_of_the_subset_alone(n: int) -> None:
    make = torch.Generator().manual_seed(7)
    images = torch.randint(0, 256, (n + 200, 3, 2, 5), generator=make, dtype=torch.uint8)
    images[:, 2] //= 3
    labels = np.arange(n + 200) % 2
    source = Source("s", ("a", "b"), True, images, labels, images, labels, "s")
    data = ImageData(source=source, size=n - 3, val_fraction=0.07)
    raw = images.numpy()[data.subset.train].astype(np.float64)
    mean, std = raw.mean((0, 2, 3), keepdims=True), raw.std((0, 2, 3), keepdims=True)
    got = torch.cat([x for x, _ in data.clean_train_dataloader()])
    assert_close(got.double(), torch.from_numpy((raw - mean) / std), rtol=1e-5, atol=1e-5)
    test = next(iter(data.test_dataloader()))[0]
    assert_close(test[:11].double(), torch.from_numpy((images[:11].numpy() - mean[0]) / std[0]),
                 rtol=1e-5, atol=1e-5)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, draw = tmp_path_factory.mktemp("images"), np.random.default_rng(23)
    for part, n in (("train", 11), ("test", 2)):
        for name in "ab":
            (root / part / name).mkdir(parents=True)
            for i in range(n):
                pixels = draw.integers(0, 256, (5, 7, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{i}.png")
    return root


def test_workers_change_nothing(folder: Path) -> None:
    def batches(workers: int) -> tuple[list[Any], list[Any]]:
        data = ImageData(
            "folder", root=str(folder), memory_mb=0, size=16, batch_size=4, num_workers=workers,
            augment=AugmentConfig(pad=2, flip=True, mixup=0.5, randaugment="rand-m9-n2-mstd0.5"),
        )  # fmt: skip
        loader = data.train_dataloader()
        assert loader.num_workers == workers
        assert loader.persistent_workers is (workers > 0)
        return epoch(loader, 0), epoch(loader, 1)

    alone, helped = batches(0), batches(2)
    assert [len(e) for e in alone] == [4, 4]
    assert_close(helped, alone, rtol=0, atol=0)
    assert not torch.equal(alone[0][0][0], alone[1][0][0])


def test_images_in_memory_need_no_workers() -> None:
    loader = ImageData(source=marked(59), num_workers=2).train_dataloader()
    assert loader.num_workers == 0


def test_mixed_labels_are_shares() -> None:
    data = ImageData(source=marked(59, 3), size=20, batch_size=10, augment=AugmentConfig(mixup=1.0))
    for x, y in data.train_dataloader():
        assert y.shape == (10, 3)
        assert_close(y.sum(1), torch.ones(10))
        assert x.shape == (10, 2, H, W)
    assert next(iter(data.val_dataloader()))[1].dtype == torch.int64


def test_processes_share_out_each_batch() -> None:
    def batches(rank: int, world: int) -> list[list[int]]:
        data: Any = ImageData(source=marked(59), size=20, batch_size=6, batches_per_epoch=5)
        data.trainer = SimpleNamespace(
            global_rank=rank, world_size=world, overfit_batches=0,
            strategy=SimpleNamespace(root_device=torch.device("cpu")),
            _accelerator_connector=SimpleNamespace(use_distributed_sampler=False),
        )  # fmt: skip
        return [ids(x, data) for part in (data.train_dataloader(), data.val_dataloader())
                for x, _ in part]  # fmt: skip

    whole, even, odd = batches(0, 1), batches(0, 2), batches(1, 2)
    assert len(whole) == 5 + 1
    for all_of_it, first, second in zip(whole, even, odd, strict=True):
        assert first == all_of_it[::2]
        assert second == all_of_it[1::2]


def test_an_epoch_can_be_of_any_length() -> None:
    loader = ImageData(source=marked(59), size=20, batches_per_epoch=13).train_dataloader()
    assert len(loader) == len(list(loader)) == 13


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "data.batch_size is 0; wanted 1 or more"),
        ({"num_workers": -1}, "data.num_workers is -1; wanted 0 or more"),
        ({"seed": -1}, "data.seed is -1; wanted 0 or more"),
        ({"batches_per_epoch": 0}, "data.batches_per_epoch is 0; wanted 1 or more"),
        ({"augment": AugmentConfig(pad=-1)}, "augment.pad is -1"),
        ({"size": 1}, "size 1 is smaller than the 2 classes of marked"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImageData(source=marked(59), **given)
