"""Own images: a folder without a test set is split by what its files hold, and by nothing else."""

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.errors import UserError

H, W = 5, 7


def save(path: Path, number: int) -> Path:
    """An image of one grey level, which no other number has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((H, W), number, np.uint8)).save(path)
    return path


def make(root: Path, n: int = 41, classes: str = "abc") -> Path:
    for i in range(n):
        for j, name in enumerate(classes):
            save(root / name / f"{i}.png", len(classes) * i + j)
    return root


def folder(root: Path, **more: Any) -> Source:
    return load(DataConfig(root=str(root), **more))


def levels(source: Source) -> tuple[set[int], set[int]]:
    """The numbers of the images of train and of test."""
    parts = (source.train_images, source.test_images)
    train, test = ({int(x[0, 0, 0]) for x in p[torch.arange(len(p))]} for p in parts)
    return train, test


@pytest.mark.parametrize("memory_mb", [4096, 0])
@pytest.mark.parametrize("inside", [".", "train"])
def test_case_fh_20_a_folder_without_test_is_split_by_content(
    tmp_path: Path, memory_mb: int, inside: str
) -> None:
    make(tmp_path / "pets" / inside)
    source = folder(tmp_path / "pets", memory_mb=memory_mb)
    train, test = levels(source)
    wanted = {
        i
        for i in range(123)
        if int.from_bytes(
            blake2b(
                (tmp_path / "pets" / inside / "abc"[i % 3] / f"{i // 3}.png").read_bytes(),
                digest_size=16,
            ).digest()[:8],
            "big",
        )
        < 0.2 * 2**64
    }
    assert test == wanted
    assert train == set(range(123)) - wanted
    assert source.classes == ("a", "b", "c")
    assert set(source.test_labels.tolist()) == {0, 1, 2}
    assert source.notes == (
        f"{tmp_path / 'pets'} has no test/: {len(wanted)} of 123 images are the test set, by a"
        " hash of their content (data.test_fraction 0.2)",
    )


def test_case_fh_20_the_split_does_not_hang_on_names_or_on_other_files(tmp_path: Path) -> None:
    train, test = levels(folder(make(tmp_path)))
    for i in range(0, 41, 2):
        (tmp_path / "a" / f"{i}.png").rename(tmp_path / "a" / f"z{i}.png")
    for i in range(123, 251):
        save(tmp_path / "b" / f"{i}.png", i)
    more_train, more_test = levels(folder(tmp_path))
    assert more_train & set(range(123)) == train
    assert more_test & set(range(123)) == test
    assert len(more_train | more_test) == 251


def test_case_fh_20_equal_files_fall_on_one_side(tmp_path: Path) -> None:
    make(tmp_path)
    for i in range(41):
        for name in "abc":
            (tmp_path / name / f"copy{i}.png").write_bytes((tmp_path / f"a/{i}.png").read_bytes())
    train, test = levels(folder(tmp_path))
    assert not train & test


def test_case_fh_20_a_larger_fraction_takes_more_and_keeps_the_rest(tmp_path: Path) -> None:
    make(tmp_path)
    _, small = levels(folder(tmp_path, test_fraction=0.2))
    _, large = levels(folder(tmp_path, test_fraction=0.5))
    assert small < large
    assert 40 < len(large) < 85


def test_case_fh_20_a_class_without_test_images_is_named_with_a_fraction_that_does(
    tmp_path: Path,
) -> None:
    make(tmp_path, n=7)
    with pytest.raises(UserError, match=r"class '.' of .* has 7 images, of which 0 fall") as error:
        folder(tmp_path, test_fraction=0.01)
    fraction = float(str(error.value).split("such as ")[1].split(",")[0])
    source = folder(tmp_path, test_fraction=fraction)
    assert set(source.test_labels.tolist()) == set(source.train_labels.tolist()) == {0, 1, 2}
    save(tmp_path / "d/0.png", 250)
    with pytest.raises(UserError, match=r"class 'd' of .* has 1 image; wanted 3 or more"):
        folder(tmp_path)


def test_case_fh_2_a_root_alone_means_a_folder(tmp_path: Path) -> None:
    make(tmp_path / "my pets")
    source = folder(tmp_path / "my pets")
    assert (source.name, source.label) == ("folder", "my pets")
    assert folder(tmp_path / "my pets", label="pets 2").label == "pets 2"
    again = folder(tmp_path / "my pets", name="folder")
    assert again.fingerprint == source.fingerprint


def test_case_fh_8_a_source_without_a_label_shows_its_name() -> None:
    assert load(DataConfig()).label == load(DataConfig(name="digits")).label == "digits"
