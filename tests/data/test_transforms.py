"""Transforms of torchvision as augmentation: an image at a time, drawn from the batch's seed."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torchvision.transforms import v2

from vision_attn.data.augment import AugmentConfig, augment, transform_of
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
from vision_attn.errors import UserError

JITTER = {"class_path": "ColorJitter", "init_args": {"brightness": 0.5}}
NESTED = {
    "class_path": "torchvision.transforms.v2.RandomApply",
    "init_args": {"transforms": [JITTER, {"class_path": "RandomGrayscale"}], "p": 0.4},
}


def images() -> Tensor:
    make = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (13, 3, 5, 7), generator=make, dtype=torch.uint8)


def source() -> Source:
    x = images()
    return Source.from_arrays(x, torch.arange(13) % 2, x[:3], torch.arange(3) % 2)


def test_a_class_path_makes_what_the_class_makes_in_python() -> None:
    x, config = images(), AugmentConfig(transforms=[NESTED, {"class_path": "RandomInvert"}])
    config.check()
    made = transform_of(config, x[0])
    jitter, grey = v2.ColorJitter(brightness=0.5), v2.RandomGrayscale()
    theirs = v2.Compose([v2.RandomApply([jitter, grey], p=0.4), v2.RandomInvert()])
    before = torch.random.get_rng_state()
    out = augment(x, config, False, 5, made)
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.random.fork_rng([]):
        torch.manual_seed(5)
        wanted = torch.stack([theirs(i) for i in x])
    assert_close(out, wanted, rtol=0, atol=0)
    changed = (out != x).flatten(1).any(1)
    assert changed.any()  # each image is drawn by itself
    assert not changed.all()


def test_they_come_before_the_crop_and_pass_the_batch_on() -> None:
    x, config = images(), AugmentConfig(pad=1, flip=True)
    invert = v2.RandomInvert(p=1.0)
    assert_close(
        augment(x, config, True, 7, invert), augment(255 - x, config, True, 7), rtol=0, atol=0
    )


@pytest.mark.parametrize("given", [v2.RandomInvert(p=1.0), v2.Compose([v2.RandomInvert(p=1.0)])])
def test_a_transform_is_the_augment_of_image_data(given: Any) -> None:
    data, plain = (ImageData(source=source(), batch_size=5, augment=a) for a in (given, None))
    mean, std = data.mean[:, None, None], data.std[:, None, None]
    for (x, y), (x_plain, y_plain) in zip(
        data.train_dataloader(), plain.train_dataloader(), strict=True
    ):
        assert torch.equal(y, y_plain)
        assert_close(x * std + mean, 255 - (x_plain * std + mean), rtol=1e-4, atol=1e-3)
    for part in ("clean_train_dataloader", "val_dataloader", "test_dataloader"):
        x, x_plain = (next(iter(getattr(d, part)()))[0] for d in (data, plain))
        assert torch.equal(x, x_plain)  # as they are


def test_the_same_by_class_path() -> None:
    entry = {"class_path": "RandomInvert", "init_args": {"p": 1.0}}
    one, other = (
        next(iter(ImageData(source=source(), batch_size=5, augment=a).train_dataloader()))[0]
        for a in (AugmentConfig(transforms=[entry]), v2.RandomInvert(p=1.0))
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("RandomInvert", "has 'RandomInvert'; wanted class_path and init_args"),
        ({"init_args": {}}, "wanted class_path"),
        ({"class_path": "RandomInvert", "p": 1}, "wanted class_path and init_args"),
        ({"class_path": "RandomInvert", "init_args": {"p": v2.Resize}}, "of plain values"),
        ({"class_path": "RandomInverse"}, "RandomInverse: .* no attribute 'RandomInverse'"),
        ({"class_path": "no.such.Thing"}, "no.such.Thing: No module named 'no'"),
        ({"class_path": "RandomInvert", "init_args": {"q": 1}}, "unexpected keyword argument 'q'"),
        ({"class_path": "Resize", "init_args": {"size": [3, 3]}}, r"make uint8 of \(3, 3, 3\) of"),
        ({"class_path": "Normalize", "init_args": {"mean": [0], "std": [1]}}, r"\(3, 5, 7\): .*"),
        ({"class_path": "ToPILImage"}, r"make Image of a uint8 image of \(3, 5, 7\); wanted the"),
    ],
)
def test_what_cannot_be_used_is_refused_before_training(entry: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"augment.transforms.*{message}"):
        ImageData(source=source(), augment=AugmentConfig(transforms=[entry]))
