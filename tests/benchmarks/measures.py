"""What the callback that measures attention adds to the time of a training.

    python tests/benchmarks/measures.py

The callback's own time, over the time of the whole `Trainer.fit`, with its defaults: every 200
updates, 16 images. Digits, batch 64, validation once an epoch, one thread; then the same for a ViT
on images of 32 x 32. Wanted: under 2 %.
"""

import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger

from vision_attn.data.module import ImageData
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.explain.callback import AttentionMeasures
from vision_attn.training.classifier import Classifier


class Timed(AttentionMeasures):
    """The callback, with its time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seconds, self.count = 0.0, 0

    def on_validation_epoch_end(self, *args: Any) -> None:
        start, rows = time.perf_counter(), len(self._rows)
        super().on_validation_epoch_end(*args)
        self.seconds += time.perf_counter() - start
        self.count += len(self._rows) - rows


def large(source: Source) -> Source:
    """Digits as 32 x 32 pixels."""

    def grow(x: Any) -> torch.Tensor:
        return x.repeat_interleave(4, -1).repeat_interleave(4, -2)

    return replace(
        source, train_images=grow(source.train_images), test_images=grow(source.test_images)
    )


def share(source: Source, args: dict[str, Any], epochs: int) -> tuple[float, float, int, int]:
    """Seconds of the callback, of the whole fit; measurements; updates."""
    data = ImageData(source=source, batch_size=64)
    module = Classifier("vit", args, img_size=source.img_size, in_chans=1)
    watch = Timed()
    with TemporaryDirectory() as out:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=CSVLogger(Path(out), name="", version=""),
            callbacks=[watch],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        start = time.perf_counter()
        trainer.fit(module, datamodule=data)
        return watch.seconds, time.perf_counter() - start, watch.count, trainer.global_step


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    digits = load(DataConfig())
    cases: list[tuple[str, Callable[[], tuple[float, float, int, int]]]] = [
        ("8 x 8 pixels, 16 tokens, width 64, depth 4", lambda: share(
            digits, {"patch_size": 2, "embed_dim": 64, "num_heads": 4}, 50)),
        ("32 x 32 pixels, 64 tokens, width 96, depth 4", lambda: share(
            large(digits), {"patch_size": 4}, 15)),
    ]  # fmt: skip
    for name, run in cases:
        mine, whole, count, steps = run()
        print(
            f"{name}: {count} measurements in {steps} updates, {1e3 * mine / count:.1f} ms each,"
            f" {100 * mine / whole:.2f} % of {whole:.1f} s"
        )


if __name__ == "__main__":
    main()
