"""Images and models as they come from files: what is changed is told, what is no use is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from made_model import ARGS, picture, save
from PIL import Image
from shared import TINY_VIT, quiet
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.data.controls import permute
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.explain.checkpoint import (
    IMAGES_OF_A_FOLDER,
    image_files,
    load_classifier,
    read_images,
)
from vision_attn.training.classifier import Classifier

pytestmark = pytest.mark.filterwarnings("ignore:::lightning")  # advice on worker counts and logs


def test_images_are_changed_only_when_asked(tmp_path: Path) -> None:
    save(tmp_path / "m.ckpt", chans=3, **ARGS)
    trained = load_classifier(tmp_path / "m.ckpt")
    large = picture(tmp_path / "l.png", mode="RGB", size=(20, 28))
    pixels, notes = read_images([large], trained)
    assert pixels.shape == (1, 3, 10, 14)
    assert notes == [f"{large}: 20 x 28 pixels cut and resized to 10 x 14"]
    grey = picture(tmp_path / "g.png")
    pixels, notes = read_images([grey], trained, convert=True)
    assert torch.equal(pixels[0, 0], pixels[0, 2])
    assert notes == [f"{grey}: 1 channel (L) converted to 3"]
    assert_close(trained.normalise(pixels), (pixels - 70.0) / 50.0)


def test_a_folder_gives_its_first_images_by_name_and_says_so(tmp_path: Path) -> None:
    many, few, empty = (tmp_path / name for name in ("many", "few", "empty"))
    for folder in (many, few, empty):
        folder.mkdir()
        (folder / "notes.txt").write_text("no image")
    (few / "inner.png").mkdir()
    for i in reversed(range(IMAGES_OF_A_FOLDER + 3)):
        picture(many / f"{i:02}.PNG")
    one = picture(few / "a.png")
    alone = picture(tmp_path / "b.png")
    files, notes = image_files([few, alone, many])
    assert files == [one, alone, *(many / f"{i:02}.PNG" for i in range(IMAGES_OF_A_FOLDER))]
    assert notes == [
        f"{many} has {IMAGES_OF_A_FOLDER + 3} images, of which the first {IMAGES_OF_A_FOLDER} are"
        " shown; for others give files"
    ]
    with pytest.raises(UserError, match="empty is a folder without images"):
        image_files([empty])


def test_a_checkpoint_of_a_run_is_read_back(tmp_path: Path) -> None:
    run = [
        "fit", "--trainer.max_steps", "2", "--trainer.accelerator", "cpu", "--data.size", "50",
        "--model.name", "vit", "--model.args.patch_size", "2", "--model.args.depth", "1",
        "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false",
        "--trainer.logger.init_args.save_dir", str(tmp_path),
    ]  # fmt: skip
    assert main(run) == 0
    (ckpt,) = tmp_path.rglob("last.ckpt")
    trained = load_classifier(ckpt)
    data = ImageData(size=50)
    x, _ = next(iter(data.test_dataloader()))
    assert_close(trained.normalise(data.source.test_images[:500]), x)  # type: ignore[index]
    assert trained.classes == tuple("0123456789")
    stored = torch.load(ckpt, weights_only=True)["state_dict"]
    assert torch.equal(trained.model.state_dict()["head.weight"], stored["model.head.weight"])


def test_case_42_explain_shows_what_a_permuted_model_sees(tmp_path: Path) -> None:
    data = ImageData("digits", size=47, batch_size=13, control="permuted")
    module = Classifier("vit", TINY_VIT, img_size=(8, 8), in_chans=1, num_classes=10)
    trainer = quiet(tmp_path, max_steps=1)
    trainer.fit(module, datamodule=data)
    trainer.save_checkpoint(tmp_path / "permuted.ckpt")
    pixels = np.random.default_rng(3).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    model = load_classifier(tmp_path / "permuted.ckpt")
    shown, notes = read_images([tmp_path / "a.png"], model)
    assert_close(shown, permute(torch.from_numpy(pixels)[None, None], "digits"), rtol=0, atol=0)
    assert "pixels permuted as those of digits" in notes[0]
