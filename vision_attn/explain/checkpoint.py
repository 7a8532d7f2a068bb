"""A classifier out of a Lightning checkpoint, and images as it was trained on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from vision_attn.data.augment import Normalise
from vision_attn.data.controls import permute
from vision_attn.data.folder import Files
from vision_attn.data.images import channels, endings, formats, upright_size
from vision_attn.errors import UserError
from vision_attn.models.registry import create_model
from vision_attn.training.checkpoint import read_checkpoint

__all__ = ["IMAGES_OF_A_FOLDER", "Trained", "image_files", "load_classifier", "read_images"]

IMAGES_OF_A_FOLDER = 8


@dataclass(frozen=True)
class Trained:
    """A classifier in eval mode, and what it needs to be shown an image.

    Args:
        model: the network.
        name: as in `models.create_model`.
        classes: their names.
        mean, std: of each channel in grey levels, 0 to 255.
        img_size: (h, w) in pixels.
        in_chans: channels C.
        permuted: the data set in whose order the pixels are; None for images as they are.
        untrained: whether the weights are as they were drawn.
    """

    model: nn.Module
    name: str
    classes: tuple[str, ...]
    mean: Tensor
    std: Tensor
    img_size: tuple[int, int]
    in_chans: int
    permuted: str | None = None
    untrained: bool = False

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 (B, C, h, w) -> float32 (B, C, h, w), as in training."""
        return Normalise(self.mean, self.std)(pixels)


def load_classifier(path: Path) -> Trained:
    """The model of a checkpoint that `fit`, or `compare` with checkpoints, wrote.

    Only tensors and plain values are unpickled (`weights_only`).

    Raises:
        UserError: a file that is no checkpoint, one of another kind of model, weights that do not
            fit their model, or one that does not say how its images were normalised.
    """
    checkpoint = read_checkpoint(path)
    checkpoint.check_classifier()
    hparams, data = checkpoint.hparams, checkpoint.data
    shape = {"img_size": tuple(hparams["img_size"]), "in_chans": hparams["in_chans"]}
    model = create_model(
        hparams["name"], **shape, num_classes=hparams["num_classes"], args=hparams.get("args")
    )
    prefix = "model."
    weights = {
        k.removeprefix(prefix): v for k, v in checkpoint.weights.items() if k.startswith(prefix)
    }
    try:
        model.load_state_dict(weights)
    except RuntimeError as e:
        raise UserError(
            f"checkpoint {path}: its weights do not fit model {hparams['name']!r}: {e}"
        ) from e
    mean, std = (torch.tensor(data[key], dtype=torch.float32) for key in ("mean", "std"))
    permuted = data["name"] if data.get("control") == "permuted" else None
    return Trained(
        model.eval(), hparams["name"], tuple(data["classes"]), mean, std, **shape, permuted=permuted
    )


def image_files(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The files among paths, and the images that lie in the folders among them, by name.

    Of a folder the first `IMAGES_OF_A_FOLDER` are taken, and a line says so.

    Raises:
        UserError: a folder without images.
    """
    files: list[Path] = []
    notes = []
    ends = endings()
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(p for p in path.iterdir() if p.suffix.lower() in ends and p.is_file())
        if not inside:
            raise UserError(f"image {path} is a folder without images; give one that has some")
        if len(inside) > IMAGES_OF_A_FOLDER:
            notes.append(
                f"{path} has {len(inside)} images, of which the first {IMAGES_OF_A_FOLDER} are"
                " shown; for others give files"
            )
        files += inside[:IMAGES_OF_A_FOLDER]
    return files, notes


def read_images(
    paths: Sequence[Path], trained: Trained, *, convert: bool = False
) -> tuple[Tensor, list[str]]:
    """Images as the model takes them, uint8 (n, C, h, w), and a line on each that was changed.

    Another shape is cut in the middle and resized, as the images of a folder are. For a model of
    permuted pixels they are permuted, so that what is shown is what the model sees.

    Args:
        convert: turn colour into grey, or grey into colour.

    Raises:
        UserError: a file that is no image that can be read; other channels, unless `convert`.
    """
    notes: list[str] = []
    wanted = trained.in_chans
    h, w = trained.img_size
    for path in paths:
        if not path.is_file():
            raise UserError(f"image {path} is no file")
        try:
            with Image.open(path, formats=formats()) as image:
                mode, chans, size = image.mode, channels(image), upright_size(image)
        except Exception as e:  # whatever a decoder raises
            raise UserError(f"image {path} cannot be read: {e}") from e
        kind = f"{chans} channel{'s' * (chans != 1)} ({mode})"
        if chans != wanted and not convert:
            raise UserError(
                f"image {path} has {kind}, the model takes {wanted}; give"
                " another image, or --convert true"
            )
        if chans != wanted:
            notes.append(f"{path}: {kind} converted to {wanted}")
        if size != (h, w):
            notes.append(f"{path}: {size[0]} x {size[1]} pixels cut and resized to {h} x {w}")
    files = Files(tuple(map(str, paths)), wanted, (h, w))
    pixels = files[torch.arange(len(paths))]
    if trained.permuted is not None:
        notes.append(f"pixels permuted as those of {trained.permuted} were in training")
        pixels = permute(pixels, trained.permuted)
    return pixels, notes
