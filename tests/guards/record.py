"""What the guards compare with, measured from the code as it stands.

Weights or losses that change are other results under the same keys. Where that is meant, record
them again and say why in the commit:

    python tests/guards/record.py
"""

import csv
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from vision_attn.commands.study import study_of
from vision_attn.data.augment import AugmentConfig
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.models.registry import create_model, known_models
from vision_attn.study.cells import plan
from vision_attn.training.dense import Segmenter
from vision_attn.training.detr import Detector
from vision_attn.training.optim import OptimConfig
from vision_attn.training.run import RunConfig, run

RECORDED = Path(__file__).with_name("recorded.json")
CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
SHAPES = {"relational": (18, 4, 200_000, 5_000)}
"""Pixels a side, classes, training and test images."""
SCENES = {"Segmenter": Segmenter, "Detector": Detector}

PATCHES = {"patch_size": 2, "embed_dim": 24, "depth": 2, "num_heads": 3}
KERNEL = {**PATCHES, "embed_dim": 36, "num_heads": 9}
RUNS: dict[str, dict[str, Any]] = {
    "vit": {"model": "vit", "args": PATCHES},
    "cnn": {"model": "cnn", "args": {"widths": [5, 7, 11]}},
    "local_vit": {"model": "local_vit", "args": {**PATCHES, "radius": 1}},
    "conv_init_vit": {"model": "conv_init_vit", "args": KERNEL},
    "conv_stem_vit": {"model": "conv_stem_vit", "args": PATCHES},
    "vit, augmented": {
        "model": "vit",
        "args": {**PATCHES, "drop_path_rate": 0.2},
        "augment": AugmentConfig(pad=1, mixup=0.8, cutmix=1.0),
        "optim": OptimConfig(lr=5e-3, label_smoothing=0.1, ema=0.9),
    },
    "cnn, permuted": {"model": "cnn", "args": {"widths": [5, 7, 11]}, "control": "permuted"},
    "cnn, shuffled": {"model": "cnn", "args": {"widths": [5, 7, 11]}, "control": "shuffled"},
}


def blank(name: str) -> Source:
    """Labels and shapes of a data set, CIFAR-10's if it has none: all black, no memory needed."""
    side, classes, train, test = SHAPES.get(name, (32, 10, 50_000, 10_000))
    labels = np.arange(train) % classes
    black = torch.zeros(1, 3, side, side, dtype=torch.uint8)
    return Source(
        "cifar10" if name not in SHAPES else name, tuple("abcdefghij"[:classes]), True,
        black.expand(train, -1, -1, -1), labels,
        black.expand(test, -1, -1, -1), labels[:test], "black",
    )  # fmt: skip


def models() -> Iterator[tuple[str, nn.Module]]:
    """Every model of every configuration, and each of ours with its defaults, at seed 0."""
    for config in CONFIGS:
        for label, model in _configured(config):
            yield f"{config.stem}: {label}", model
    for name in known_models():
        torch.manual_seed(0)
        yield name, create_model(name, img_size=(32, 32), in_chans=3, num_classes=10)


def _configured(config: Path) -> Iterator[tuple[str, nn.Module]]:
    """Models of a configuration, the CNNs' widths solved as a study solves them."""
    content = yaml.safe_load(config.read_text(encoding="utf-8"))
    if "class_path" in content.get("model", ()):
        cls = SCENES[content["model"]["class_path"].split(".")[-1]]
        args = {k: v for k, v in content["model"]["init_args"].items() if k != "lr"}
        torch.manual_seed(0)
        yield cls.__name__, cls(**args).model
        return
    if "trainer" in content:  # of fit
        model, source = content["model"], blank("cifar10")
        built = [(model["name"], model["name"], model["args"])]
    else:
        root = ["--data.root", "."] if content.get("data", {}).get("name") == "folder" else []
        _, study = study_of("compare", "", ["--config", str(config), *root])
        name = study.data.dataset
        source = load(DataConfig()) if name == "digits" else blank(name)
        arms = plan(study, source).arms.items()
        built = [(label, arm.arch, arm.args) for label, arm in arms]
    for label, arch, args in built:
        torch.manual_seed(0)
        yield (
            label,
            create_model(
                arch,
                img_size=source.img_size,
                in_chans=source.in_chans,
                num_classes=len(source.classes),
                args=args,
            ),
        )


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and batch norm's buffers by name.

    Fixed tables (positions, indices) are left out: they are no weights, whether or not a
    checkpoint holds them.
    """
    norms = [n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    buffers = {k: v for k, v in model.named_buffers() if k.rpartition(".")[0] in norms}
    return dict(sorted({**dict(model.named_parameters()), **buffers}.items()))


def weights() -> dict[str, Any]:
    """Of each model a hash of names and shapes, one of bytes, and one number of all values.

    Another kind of CPU may round a random number otherwise, so bytes are compared only on the kind
    that they were recorded on. The number, a sum of the values times cosines of their places, is
    compared everywhere.
    """
    rows: dict[str, Any] = {}
    for label, model in models():
        names, content, total = hashlib.sha256(), hashlib.sha256(), 0.0
        for name, value in tensors(model).items():
            flat = value.detach().double().flatten()
            names.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            content.update(value.detach().numpy().tobytes())
            total += float(flat @ torch.arange(len(flat)).add(len(name)).double().cos())
        rows[label] = {
            "names": names.hexdigest()[:16],
            "bytes": content.hexdigest()[:16],
            "sum": total,
        }
    return rows


def losses(name: str) -> list[float]:
    """Losses of ten updates on digits by one thread, then of train, validation and test images."""
    fixed: dict[str, Any] = {
        "size": 100, "draw": 1, "seed": 2, "steps": 10, "val_fraction": 0.1, "batch_size": 20,
        "optim": OptimConfig(lr=5e-3), "augment": AugmentConfig(), "precision": "32-true",
        "threads": 1, "rows": 10, "select": "last",
    }  # fmt: skip
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as out:
            result = run(RunConfig(**{**fixed, **RUNS[name]}), load(DataConfig()), Path(out))
            with (Path(out) / "metrics.csv").open(newline="") as log:
                steps = [float(r["train_loss"]) for r in csv.DictReader(log) if r["train_loss"]]
    finally:
        torch.set_num_threads(threads)
    assert len(steps) == 10
    return [*steps, *(result[f"{part}_loss"] for part in ("train", "val", "test"))]


def cpu() -> str:
    """What decides how torch rounds."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"


if __name__ == "__main__":
    recorded = {"cpu": cpu(), "weights": weights(), "losses": {name: losses(name) for name in RUNS}}
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {RECORDED}")
