"""Folders of images as people have them: what systems leave in them, and formats of every kind."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_images import array_of, folder, make, pixels, save

from vision_attn.cli import main
from vision_attn.data.module import ImageData
from vision_attn.data.sources import DataConfig, load
from vision_attn.errors import UserError


@pytest.mark.parametrize("memory_mb", [4096, 0])
def test_case_55_names_with_a_dot_are_no_data(tmp_path: Path, memory_mb: int) -> None:
    make(tmp_path)
    wanted = folder(tmp_path, memory_mb=memory_mb)
    for place in ("train", "test", "train/a", "train/a/deeper", "test/b"):
        save(tmp_path / place / ".ipynb_checkpoints/0-checkpoint.png", pixels(3, 2))
        save(tmp_path / place / "__MACOSX/x.png", pixels(3, 2))
        (tmp_path / place / "._0.png").write_bytes(b"resource fork")
        (tmp_path / place / ".DS_Store").write_bytes(b"0")
    got = folder(tmp_path, memory_mb=memory_mb)
    assert got.classes == ("a", "b")
    assert got.notes == wanted.notes == ()
    assert got.fingerprint == wanted.fingerprint
    np.testing.assert_array_equal(array_of(got.train_images), array_of(wanted.train_images))


def test_case_55_a_hidden_folder_above_the_root_matters_not(tmp_path: Path) -> None:
    make(tmp_path / ".cache/images")
    assert folder(tmp_path / ".cache/images").classes == ("a", "b")


def test_case_56_what_is_no_image_is_counted_once(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "train/labels.csv").write_text("0")
    for name in ("Thumbs.db", "a.txt", "b.TXT", "README", "c.heic"):
        (tmp_path / "train/b" / name).write_text("0")
    assert folder(tmp_path).notes == (
        f"6 files in {tmp_path} skipped as no image that Pillow reads: .db 1, .heic 1, .txt 2,"
        " beside the class folders 1, no ending 1",
    )


def test_case_60_test_may_lack_classes_and_is_numbered_by_train(tmp_path: Path) -> None:
    make(tmp_path, classes="abcde", n=4)
    for name in "acd":
        (tmp_path / "test" / name / "0.png").unlink()
    (tmp_path / "test/a").rmdir()
    source = folder(tmp_path)
    assert source.classes == tuple("abcde")
    assert source.test_labels.tolist() == [1, 4]
    assert source.notes == (f"{tmp_path}/test has no images of class a, c, d",)
    for name in "be":
        (tmp_path / "test" / name / "0.png").unlink()
    with pytest.raises(UserError, match=f"{tmp_path}/test has no images of any class"):
        folder(tmp_path)


@pytest.mark.parametrize("memory_mb", [4096, 0])
def test_case_71_names_that_are_no_utf_8(tmp_path: Path, memory_mb: int) -> None:
    make(tmp_path, n=7)
    odd = os.fsencode(tmp_path / "train/a") + b"/caf\xe9.png"
    os.rename(tmp_path / "train/a/0.png", odd)
    for part in (b"train", b"test"):
        here = os.fsencode(tmp_path) + b"/" + part
        os.rename(here + b"/b", here + b"/b\xff")
    (tmp_path / "train/a/x.\udce9").write_text("0")
    source = folder(tmp_path, memory_mb=memory_mb)
    for text in (*source.classes, *source.notes):
        text.encode()
    assert source.classes == ("a", "b\\udcff")
    data = ImageData("folder", root=str(tmp_path), memory_mb=memory_mb, size=10, batch_size=5)
    assert len(list(data.train_dataloader())) == 2
    with open(odd, "wb") as file:
        file.write(b"no image")
    with pytest.raises(UserError, match="caf") as caught:
        folder(tmp_path, memory_mb=memory_mb)
    assert "caf\\udce9.png is not an image that can be read" in str(caught.value)
    str(caught.value).encode()


def test_class_order_is_that_of_bytes(tmp_path: Path) -> None:
    names = ["Zebra", "apple", "äpfel", "zoo", "B", "日本", "10", "9", "a b", "a-b"]
    for name in names:
        save(tmp_path / "train" / name / "0.png", pixels())
        save(tmp_path / "test" / name / "0.png", pixels())
    classes = folder(tmp_path).classes
    assert classes == tuple(sorted(names))
    assert classes == tuple(sorted(names, key=str.encode))


def test_links_are_followed_and_loops_named(tmp_path: Path) -> None:
    make(tmp_path / "here")
    make(tmp_path / "there", n=2)
    wanted = array_of(folder(tmp_path / "here").train_images)
    (tmp_path / "linked").symlink_to(tmp_path / "here")
    np.testing.assert_array_equal(array_of(folder(tmp_path / "linked").train_images), wanted)
    (tmp_path / "here/train/a/more").symlink_to(tmp_path / "there/train/a")
    (tmp_path / "here/train/a/z.png").symlink_to(tmp_path / "there/train/b/0.png")
    source = folder(tmp_path / "here")
    assert np.bincount(source.train_labels).tolist() == [6, 3]
    nowhere = tmp_path / "here/train/a/gone.png"
    nowhere.symlink_to(tmp_path / "not/there.png")
    with pytest.raises(UserError, match=f"{nowhere} is not an image that can be read"):
        folder(tmp_path / "here")
    nowhere.unlink()
    os.mkfifo(tmp_path / "here/train/a/pipe.png")  # would wait for ever
    assert "1 file " in folder(tmp_path / "here").notes[0]
    (tmp_path / "here/train/a/loop").symlink_to(tmp_path / "here/train/a")
    with pytest.raises(UserError, match="a/loop is a link to a folder that it lies in"):
        folder(tmp_path / "here")


@pytest.mark.parametrize("memory_mb", [4096, 0])
def test_equal_files_in_train_and_test_are_counted(tmp_path: Path, memory_mb: int) -> None:
    make(tmp_path, n=5)
    assert folder(tmp_path, memory_mb=memory_mb).notes == ()
    train = tmp_path / "train"
    (tmp_path / "test/b/1.png").write_bytes((train / "b/3.png").read_bytes())
    (tmp_path / "test/b/2.png").write_bytes((train / "b/3.png").read_bytes())
    (train / "a/9.png").write_bytes((train / "a/0.png").read_bytes())  # in one class
    (train / "b/9.png").write_bytes((train / "a/2.png").read_bytes())
    assert folder(tmp_path, memory_mb=memory_mb).notes == (
        "2 of 4 test images are training images too, byte for byte:"
        f" {tmp_path}/test/b/1.png is {train}/b/3.png",
        f"2 of 12 training images are in several classes, byte for byte, as {train}/a/2.png",
    )


def test_roots_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("0")
    for root, what in ((file, "is a file; wanted"), (tmp_path / "not", "does not exist; wanted"),
                       (tmp_path, "has no folders; wanted")):  # fmt: skip
        with pytest.raises(UserError, match=f"data.root {root} {what}"):
            folder(root)
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=f"data.root {tmp_path} has one folder, 'photos'; wanted"):
        folder(tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "test").write_text("0")
    with pytest.raises(UserError, match=f"{tmp_path}/train has 0 class folders"):
        folder(tmp_path)


def test_a_folder_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    scandir = os.scandir

    def refuse(path: str) -> Any:  # root may read everything
        if path.endswith("train/b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=f"{tmp_path}/train/b cannot be read: Permission denied"):
        folder(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory_mb": -5}, "data.memory_mb is -5; wanted 0"),
        ({"val_fraction": float("nan")}, "data.val_fraction nan is not between 0 and 1"),
        ({"val_fraction": 0.0}, "data.val_fraction 0.0 is not"),
        ({"val_fraction": 1.0}, "data.val_fraction 1.0 is not"),
        ({"name": "digits", "root": "/images"},
         "data.root is /images, but digits come .* add --data.name folder"),
        ({"root": ""}, "data.name folder needs data.root"),
        ({"root": "x", "test_fraction": 0.0}, "data.test_fraction 0.0 is not between 0 and 1"),
        ({"root": "x", "label": " "}, "data.label is ' '; wanted printable text"),
        ({"name": "folder", "root": ""}, "data.name folder needs data.root"),
        ({"name": "folder", "root": "x", "img_size": -3}, "data.img_size is -3; wanted 1"),
        ({"name": "folder", "root": "x", "img_size": 100000},
         "data.img_size 100000 makes one colour image of 28,610 MiB, .* at most 18918 pixels"),
    ],
)  # fmt: skip
def test_case_74_and_75_what_cannot_be_meant_is_refused_before_anything_is_read(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load(DataConfig(**given))


def test_case_56_notes_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, n=5)
    (tmp_path / "train/a/notes.txt").write_text("0")
    data = ImageData("folder", root=str(tmp_path))
    assert capsys.readouterr().err == ""
    for _ in range(2):
        data.prepare_data()
    wanted = f"note: 1 file in {tmp_path} skipped as no image that Pillow reads: .txt 1\n"
    assert capsys.readouterr().err == wanted
    ImageData(source=data.source).prepare_data()  # whoever read it has told
    assert capsys.readouterr().err == ""
    shape = ["--data.name", "folder", "--data.root", str(tmp_path), "--models", "linear"]
    assert main(["budget", *shape, "--match", "none", "--sizes", "4"]) == 0
    assert capsys.readouterr().err == wanted
