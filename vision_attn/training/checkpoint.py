"""The one reader of checkpoint files; only tensors and plain values are unpickled."""

from collections.abc import Set
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.names import SHAPE
from vision_attn.ops.checks import weight_sources
from vision_attn.training.optim import OptimConfig
from vision_attn.training.set_loss import LossWeights

__all__ = ["Checkpoint", "read_checkpoint"]

_TRAINING = {*LossWeights._fields, *(f.name for f in fields(OptimConfig))}
"""Arguments of a model that its weights do not depend on; a run that goes on may have others."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a Lightning checkpoint.

    Args:
        path: the file.
        hparams: arguments of its LightningModule.
        weights: its state_dict.
        data: state of its ImageData or SceneData, empty without one.
        precision: of its training, None in old files.
        resumable: whether training can go on from it.
    """

    path: Path
    hparams: dict[str, Any]
    weights: dict[str, Tensor]
    data: dict[str, Any]
    precision: str | None
    resumable: bool

    def check_classifier(self) -> None:
        """UserError unless it is a `Classifier` on `ImageData`, with its normalisation."""
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

    def merge(self, typed: dict[str, Any], takes: Set[str]) -> dict[str, Any]:
        """The saved arguments named in `takes`, with the typed ones of training in their place.

        Raises:
            UserError: a typed argument that would build another model.
        """
        saved = {k: v for k, v in self.hparams.items() if k in takes and k not in SHAPE}
        training = {k: v for k, v in typed.items() if k in _TRAINING}
        built = {k: v for k, v in typed.items() if k not in (*_TRAINING, *SHAPE)}
        self.check_same(built, saved)
        return {k: _plain(v) for k, v in {**saved, **training}.items()}

    def check_same(self, typed: dict[str, Any], saved: dict[str, Any], prefix: str = "") -> None:
        """UserError if a typed argument would build another model than the saved one."""
        for key, value in typed.items():
            if _plain(value) != _plain(saved.get(key)):
                was = repr(saved[key]) if key in saved else "as by default"
                raise UserError(
                    f"{self.path}: its model.{prefix}{key} is {was}, not {value!r}; leave it out"
                )


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file that `fit`, or `compare` with checkpoints, wrote.

    Raises:
        UserError: not a checkpoint, or a model that would load another file.
    """
    if not path.is_file():
        raise UserError(f"{path} is no file; wanted a checkpoint")
    try:
        saved: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        hparams, weights = dict(saved["hyper_parameters"]), dict(saved["state_dict"])
        states = [v for k, v in saved.items() if k.endswith(("ImageData", "SceneData"))]
        data = dict(states[0]) if states else {}
    except Exception as e:  # torch raises many kinds on a file that is not its own
        raise UserError(
            f"{path} is no checkpoint of this program ({type(e).__name__}); give one of `fit`,"
            " or of `compare --checkpoint true`"
        ) from e
    names = weight_sources(hparams)
    if names:
        raise UserError(
            f"{path}: its model's argument {names[0]} would load another file; a checkpoint holds"
            " all of its weights, so this argument is not accepted"
        )
    return Checkpoint(
        path, hparams, weights, data, saved.get("precision"), "optimizer_states" in saved
    )


def _plain(value: Any) -> Any:
    """Tuples as lists, as they come from YAML."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
