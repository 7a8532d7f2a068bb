"""The one reader of checkpoint files: nothing but tensors and plain values is ever unpickled."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["Checkpoint", "read_checkpoint"]

_SOURCES = ("pretrained", "checkpoint", "cache_dir", "hf_hub")


@dataclass(frozen=True)
class Checkpoint:
    """What a Lightning checkpoint holds.

    hparams: arguments of its LightningModule; weights: its state_dict; data: the state of its
    ImageData or SceneData, empty without one; precision: that of its training, None in old files;
    resumable: whether training can go on from it.
    """

    path: Path
    hparams: dict[str, Any]
    weights: dict[str, Tensor]
    data: dict[str, Any]
    precision: str | None
    resumable: bool

    def check_classifier(self) -> None:
        """Refuse what is no `Classifier` on `ImageData`, with its normalisation."""
        wanted = ("name", "img_size", "in_chans", "num_classes")
        missing = [key for key in wanted if key not in self.hparams]
        if missing:
            raise UserError(
                f"{self.path} holds no classifier: its model has no {missing[0]}; give a checkpoint"
                " of a Classifier"
            )
        if not {"classes", "mean", "std"} <= self.data.keys():
            raise UserError(
                f"{self.path} does not say the mean and deviation of its images; it was made by an"
                " older version or without ImageData: train it again"
            )


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file that `fit`, or `compare` with checkpoints, wrote.

    Raises:
        UserError: a file that is no checkpoint, or one whose model would load another file.
    """
    if not path.is_file():
        raise UserError(f"{path} is no file; wanted a checkpoint")
    try:
        saved: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        hparams, weights = dict(saved["hyper_parameters"]), dict(saved["state_dict"])
        states = [v for k, v in saved.items() if k.endswith(("ImageData", "SceneData"))]
        data = dict(states[0]) if states else {}
    except Exception as e:  # whatever a file of another kind makes torch raise
        raise UserError(
            f"{path} is no checkpoint of this program ({type(e).__name__}); give one of `fit`,"
            " or of `compare --checkpoint true`"
        ) from e
    names = _sources(hparams)
    if names:
        raise UserError(
            f"{path}: its model's argument {names[0]} would load another file; a checkpoint has"
            " all weights of its own, and no such argument is taken from one"
        )
    return Checkpoint(
        path, hparams, weights, data, saved.get("precision"), "optimizer_states" in saved
    )


def _sources(args: Any) -> list[str]:
    """Names in arguments, at any depth, by which timm fetches or unpickles other files."""
    if isinstance(args, (list, tuple)):
        return [name for value in args for name in _sources(value)]
    if not isinstance(args, dict):
        return []
    names = [k for k in map(str, args) if k.startswith(_SOURCES) or k.endswith("_overlay")]
    return names + [name for value in args.values() for name in _sources(value)]
