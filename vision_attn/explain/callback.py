"""Attention measured while a model trains: means by layer in the log, every head in a table."""

from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.explain.measures import MEASURES, attention_measures, some_images
from vision_attn.explain.observe import attention_layers
from vision_attn.files import write_text
from vision_attn.texts import csv_text

__all__ = ["AttentionMeasures"]


class AttentionMeasures(Callback):
    """Logs `attn_{measure}_l{layer}` at validation, and writes attention.csv beside the log.

    The measures are those of `explain.measures.attention_measures`, on a few validation images that
    stay the same. attention.csv has a row for each step, layer and head. A run's weights and random
    numbers are not touched.

    Args:
        every: updates that must pass between two measurements; the first validation is measured.
        images: number of validation images; where several devices train, on each.
        field: side of the field of `field_share` in tokens, odd.

    Raises:
        UserError: numbers below 1; at the start of a fit, a model without attention over a grid.
    """

    def __init__(self, every: int = 200, images: int = 16, field: int = 3) -> None:
        for name, value in (("every", every), ("images", images), ("field", field)):
            if value < 1 or (name == "field" and value % 2 == 0):
                odd = " and odd" * (name == "field")
                raise UserError(f"{name} is {value}; wanted 1 or more{odd}")
        self.every, self.images, self.field = every, images, field
        self._batch: Tensor | None = None
        self._next = 0
        self._rows: list[pd.DataFrame] = []

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse a model that has no attention to measure; forget an earlier fit."""
        attention_layers(getattr(pl_module, "model", pl_module))
        self._batch, self._next, self._rows = None, 0, []

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure, if enough updates have passed."""
        step = trainer.global_step
        if trainer.state.fn != "fit" or trainer.sanity_checking or step < self._next:
            return
        self._next = step + self.every
        if self._batch is None:
            loaders: Any = trainer.val_dataloaders
            loader = loaders[0] if isinstance(loaders, (list, tuple)) else loaders
            self._batch = some_images(loader, self.images).to(pl_module.device)
        table = attention_measures(pl_module, self._batch, field=self.field)
        means = table.groupby("layer")[list(MEASURES)].mean()
        pl_module.log_dict(
            {
                f"attn_{m}_l{layer}": float(row[m])
                for layer, row in means.iterrows()
                for m in MEASURES
            },
            sync_dist=trainer.world_size > 1,
        )
        table.insert(0, "step", step)
        self._rows.append(table)
        folder = Path(trainer.log_dir or trainer.default_root_dir)  # asked on every device
        if trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / "attention.csv", csv_text(pd.concat(self._rows)))
