"""Augmentation equals a slow version an image at a time; labels stay a distribution."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from vision_attn.data.augment import AugmentConfig, Normalise, augment, crop_flip, mix
from vision_attn.errors import UserError


def images(b: int = 13, c: int = 3, h: int = 5, w: int = 7) -> Tensor:
    make = torch.Generator().manual_seed(3)
    return torch.randint(1, 256, (b, c, h, w), generator=make, dtype=torch.uint8)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slow_crop_flip(x: Tensor, pad: int, flip: bool, draws: torch.Generator) -> Tensor:
    """Zeros all round, a window of the old size, a mirror."""
    b, c, h, w = x.shape
    mirrored = torch.rand(b, 1, generator=draws) < 0.5 if flip else torch.zeros(b, 1)
    top = torch.randint(-pad, pad + 1, (b, 1), generator=draws) + pad if pad else mirrored * 0
    left = torch.randint(-pad, pad + 1, (b, 1), generator=draws) + pad if pad else mirrored * 0
    out = torch.empty_like(x)
    for i in range(b):
        canvas = torch.zeros(c, h + 2 * pad, w + 2 * pad, dtype=x.dtype)
        canvas[:, pad : pad + h, pad : pad + w] = x[i]
        t, s = int(top[i]), int(left[i])
        window = canvas[:, t : t + h, s : s + w]
        out[i] = window.flip(2) if mirrored[i] else window
    return out


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("pad", [0, 1, 2, 11])  # 11: the window may lie wholly outside
def test_crop_flip_equals_an_image_at_a_time(pad: int, flip: bool, c: int) -> None:
    x = images(c=c)
    before = x.clone()
    assert_close(
        crop_flip(x, pad, flip, generator(5)), slow_crop_flip(x, pad, flip, generator(5)),
        rtol=0, atol=0,
    )  # fmt: skip
    assert_close(x, before, rtol=0, atol=0)


def test_nothing_asked_nothing_done() -> None:
    x = images()
    assert_close(crop_flip(x, 0, False, generator(0)), x, rtol=0, atol=0)
    assert augment(x, AugmentConfig(), flip_ok=True, seed=0) is x


def test_every_shift_is_equally_likely_and_half_are_mirrored() -> None:
    x = torch.zeros(3000, 1, 3, 5, dtype=torch.uint8)
    x[:, 0, 1, 2] = 1
    at = crop_flip(x, 1, False, generator(1)).flatten(1).argmax(1)
    seen = Counter(at.tolist())
    assert set(seen) == {r * 5 + c for r in (0, 1, 2) for c in (1, 2, 3)}
    assert all(abs(n - 3000 / 9) < 5 * (3000 / 9) ** 0.5 for n in seen.values())
    x[:, 0, 1] = torch.tensor([1, 0, 0, 0, 0])
    mirrored = crop_flip(x, 0, True, generator(1))[:, 0, 1, 4]
    assert abs(int(mirrored.sum()) - 1500) < 5 * 3000**0.5 / 2


def test_seed_decides() -> None:
    x, config = images(), AugmentConfig(pad=2, flip=True)
    one = augment(x, config, True, 11)
    assert_close(augment(x, config, True, 11), one, rtol=0, atol=0)
    assert (augment(x, config, True, 12) != one).any()
    assert_close(one, slow_crop_flip(x, 2, True, generator(11)), rtol=0, atol=0)


def test_no_mirror_where_it_changes_the_class() -> None:
    x = images()
    assert augment(x, AugmentConfig(flip=True), flip_ok=False, seed=0) is x


def test_normalise_by_hand() -> None:
    x = torch.tensor([[[[0, 100, 255]], [[7, 8, 9]]]], dtype=torch.uint8)
    normalise = Normalise(torch.tensor([100.0, 8.0]), torch.tensor([50.0, 0.25]))
    # a channel that hardly varies is not blown up: its deviation counts as one grey level
    assert_close(normalise(x), torch.tensor([[[[-2.0, 0.0, 3.1]], [[-1.0, 0.0, 1.0]]]]))


def mixed(config: AugmentConfig, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs, the batch mixed, its labels, and the share that stays with each image."""
    x = Normalise(torch.full((3,), 128.0), torch.full((3,), 70.0))(images(6, h=11, w=13))
    y = torch.tensor([0, 1, 2, 3, 4, 1])
    out, soft = mix(x.clone(), y, config, 5, seed)
    assert_close(soft.sum(1), torch.ones(6))
    share = soft.gather(1, y[:, None])[:, 0]
    assert_close(soft.gather(1, y.flip(0)[:, None])[:, 0], 1 - share)
    return x, out, soft, share


def test_mixup_mixes_images_as_it_mixes_labels() -> None:
    x, out, _, share = mixed(AugmentConfig(mixup=0.8), 7)
    lam = share[0].item()
    assert 0.01 < lam < 0.99
    assert_close(share, torch.full((6,), lam))
    assert_close(out, lam * x + (1 - lam) * x.flip(0))


def test_cutmix_pastes_the_share_that_labels_say() -> None:
    x, out, _, share = mixed(AugmentConfig(cutmix=1.0), 7)
    own, other = out == x, out == x.flip(0)
    assert (own | other).all()
    pasted = (~own).any(1).any(0)  # one rectangle for the batch
    rows, cols = pasted.any(1), pasted.any(0)
    assert_close(pasted, rows[:, None] & cols[None])
    assert 0 < pasted.sum() < pasted.numel()
    assert_close(share, torch.full((6,), 1 - pasted.float().mean().item()))


@pytest.mark.parametrize("config", [AugmentConfig(mixup=0.8), AugmentConfig(cutmix=1.0),
                                    AugmentConfig(mixup=0.8, cutmix=1.0)])  # fmt: skip
def test_mixing_follows_its_seed(config: AugmentConfig) -> None:
    _, one, soft, _ = mixed(config, 7)
    _, again, soft_again, _ = mixed(config, 7)
    assert_close((again, soft_again), (one, soft), rtol=0, atol=0)
    assert (mixed(config, 8)[2] != soft).any()


def test_no_mixing_leaves_everything() -> None:
    x, y = images(6).float(), torch.arange(6) % 5
    out, labels = mix(x, y, AugmentConfig(), 5, 0)
    assert out is x
    assert labels is y


@pytest.mark.parametrize("config", [AugmentConfig(mixup=0.8), AugmentConfig(cutmix=1.0)])
def test_an_odd_batch_cannot_be_mixed(config: AugmentConfig) -> None:
    config.check_batch(6)
    AugmentConfig().check_batch(5)
    with pytest.raises(UserError, match="batch of 5 is odd; try 6"):
        config.check_batch(5)


@pytest.mark.parametrize("c", [1, 3])
def test_randaugment_is_timms_and_follows_its_seed(c: int) -> None:
    from timm.data.auto_augment import rand_augment_transform
    from torchvision.transforms.functional import pil_to_tensor, to_pil_image

    x, recipe = images(7, c, 11, 13), "rand-m9-n2-mstd0.5"
    out = augment(x, AugmentConfig(randaugment=recipe), False, 5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    transform = rand_augment_transform(recipe, {"img_mean": (128, 128, 128)})
    for before, after in zip(x, out, strict=True):
        wanted = transform(to_pil_image(before).convert("RGB")).convert("L" if c == 1 else "RGB")
        assert_close(after, pil_to_tensor(wanted), rtol=0, atol=0)
    assert (out != x).any()
    assert (augment(x, AugmentConfig(randaugment=recipe), False, 6) != out).any()


@pytest.mark.parametrize("c", [1, 3])
def test_randaugment_that_never_applies_keeps_every_grey_level(c: int) -> None:
    x = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(2, c, 1, 1)
    assert_close(augment(x, AugmentConfig(randaugment="rand-p0"), False, 0), x, rtol=0, atol=0)


def test_randaugment_comes_before_the_crop() -> None:
    x, recipe = images(7), "rand-m9-n2"
    both = augment(x, AugmentConfig(randaugment=recipe, pad=2), False, 3)
    first = augment(x, AugmentConfig(randaugment=recipe), False, 3)
    assert_close(both, slow_crop_flip(first, 2, False, generator(3)), rtol=0, atol=0)


def test_other_peoples_random_numbers_go_on() -> None:
    x, y = images(6), torch.arange(6) % 5
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    wanted = random.random(), np.random.rand()  # noqa: NPY002
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    augment(x, AugmentConfig(randaugment="rand-m9"), False, 9)
    mix(x.float(), y, AugmentConfig(mixup=1.0), 5, 9)
    assert (random.random(), np.random.rand()) == wanted  # noqa: NPY002


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pad": -1}, r"augment\.pad is -1; wanted 0"),
        ({"mixup": -0.1}, r"augment\.mixup is -0\.1; wanted alpha >= 0"),
        ({"cutmix": -2.0}, r"augment\.cutmix is -2\.0"),
        ({"randaugment": "auto-m9"}, r"augment\.randaugment 'auto-m9' .* try rand-m9"),
        ({"randaugment": "randomly"}, r"augment\.randaugment 'randomly'"),
        ({"randaugment": "rand-q9"}, r"augment\.randaugment 'rand-q9'"),
        ({"randaugment": "rand-m9.x"}, r"augment\.randaugment 'rand-m9\.x'"),
        ({"randaugment": "rand-m9.5"}, r"augment\.randaugment 'rand-m9\.5' is not a recipe"),
        # timm takes each of these for something else, in silence
        ({"randaugment": "rand-foo"}, r"augment\.randaugment 'rand-foo' is not a recipe"),
        ({"randaugment": "rand-mstdinf"}, r"'rand-mstdinf' is not a recipe"),
        ({"randaugment": "rand-m9-m3"}, r"'rand-m9-m3' is not a recipe"),
        ({"randaugment": "rand-"}, r"'rand-' is not a recipe"),
        ({"randaugment": "rand-tother"}, r"'rand-tother' is not a recipe"),
        ({"randaugment": "rand-m99999"}, r"'rand-m99999' has m 99999; wanted 0 to 10"),
        ({"randaugment": "rand-m15-mmax12"}, r"has m 15; wanted 0 to 12"),
        ({"randaugment": "rand-n1000"}, r"'rand-n1000' has n 1000; wanted 0 to 10"),
        ({"randaugment": "rand-p7"}, r"'rand-p7' has p 7; wanted 0 to 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        AugmentConfig(**given).check()


@pytest.mark.parametrize("value", [1e9, -1e-9, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_case_74_alpha_has_a_range(name: str, value: float) -> None:
    with pytest.raises(UserError, match=rf"augment\.{name} is .*; wanted alpha >= 0, at most 100"):
        AugmentConfig(**{name: value}).check()


@pytest.mark.parametrize("pad", [5, 7, 1000])
def test_case_74_padding_leaves_something_of_an_image(pad: int) -> None:
    wanted = f"augment.pad is {pad}, and a crop of 5 x 7 pixels could miss .*; wanted 0 to 4"
    with pytest.raises(UserError, match=wanted):
        AugmentConfig(pad=pad).check_size((5, 7))
    AugmentConfig(pad=4).check_size((5, 7))
    x = torch.full((4096, 1, 5, 7), 9, dtype=torch.uint8)
    assert crop_flip(x, 4, False, generator(0)).flatten(1).any(1).all()


def test_what_can_be_meant_passes() -> None:
    AugmentConfig(pad=4, flip=True, randaugment="rand-m9-n2-mstd0.5", mixup=0.8, cutmix=1).check()
    for recipe in ("rand", "rand-m7-n3-p0.3-mstd101-inc1-tweights", "rand-m15-mmax20", "rand-t3a"):
        AugmentConfig(randaugment=recipe).check()
