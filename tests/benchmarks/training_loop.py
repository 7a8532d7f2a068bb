"""Lightning's loop with our module against a bare PyTorch loop: same model, data and updates.

    python tests/benchmarks/training_loop.py

Both run in this process in turns; the ratio is the median over pairs. Batch 64, digits.
"""

import logging
import statistics
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from timm.optim import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler

from vision_attn.data.module import ImageData
from vision_attn.models.registry import create_model
from vision_attn.training.classifier import Classifier

STEPS, PAIRS = 150, 7
MODELS: dict[str, dict[str, Any]] = {
    "vit": {"patch_size": 2, "embed_dim": 64, "depth": 4, "num_heads": 4},
    "cnn": {"widths": [21, 44, 88]},
}


def data() -> ImageData:
    return ImageData("digits", batch_size=64, batches_per_epoch=STEPS)


def bare(name: str) -> float:
    """Forward, backward, AdamW, schedule: what nobody could leave out."""
    d = data()
    model = create_model(name, img_size=(8, 8), in_chans=1, num_classes=10, args=MODELS[name])
    groups = param_groups_weight_decay(model, 0.05)
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    schedule = CosineLRScheduler(
        optimizer, STEPS, warmup_t=15, warmup_lr_init=1e-5, t_in_epochs=False
    )
    model.train()
    start = time.perf_counter()
    for step, (x, y) in enumerate(d.train_dataloader()):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step_update(step + 1)
    return time.perf_counter() - start


def lightning(name: str, out: Path) -> float:
    """The same through Trainer.fit, its set-up and its log included, without validation."""
    module = Classifier(name, MODELS[name], img_size=(8, 8), in_chans=1, num_classes=10)
    trainer = L.Trainer(
        max_steps=STEPS,
        max_epochs=-1,
        accelerator="cpu",
        limit_val_batches=0,
        logger=CSVLogger(out, name="", version=""),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    d = data()
    start = time.perf_counter()
    trainer.fit(module, datamodule=d)
    return time.perf_counter() - start


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {STEPS} updates of batch 64, {PAIRS} pairs, 1 thread")
    for name in MODELS:
        bare(name)
        times = []
        for _ in range(PAIRS):
            with TemporaryDirectory() as out:
                times.append((bare(name), lightning(name, Path(out))))
        ratio = statistics.median(b / a for a, b in times)
        per_step = 1e3 * statistics.median(a for a, _ in times) / STEPS
        print(f"{name}: bare {per_step:.2f} ms a step, Lightning / bare = {ratio:.3f}")


if __name__ == "__main__":
    main()
