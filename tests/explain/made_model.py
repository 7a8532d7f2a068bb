"""A small shaken model in a checkpoint, images for it, and the command that looks inside."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from vision_attn.cli import main
from vision_attn.explain.checkpoint import load_classifier, read_images
from vision_attn.explain.inspection import Inspection, inspect_images
from vision_attn.models.registry import create_model

MEAN, STD = [70.0], [50.0]
ARGS: dict[str, Any] = {"patch_size": 2, "embed_dim": 24, "depth": 3, "num_heads": 2}
SIZE = (10, 14)
GRID = (5, 7)


def save(path: Path, name: str = "vit", *, chans: int = 1, **args: Any) -> nn.Module:
    """A checkpoint as Lightning writes it, of a model shaken so that its maps are not flat."""
    shape: dict[str, Any] = {"img_size": SIZE, "in_chans": chans, "num_classes": 3}
    model = create_model(name, **shape, args=args)
    g = torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=g))
    torch.save(
        {
            "state_dict": {f"model.{k}": v for k, v in model.state_dict().items()},
            "hyper_parameters": {"name": name, "args": args, **shape, "lr": 0.1},
            "ImageData": {"classes": ["ant", "</script><b>", "cat"], "mean": MEAN * chans,
                          "std": STD * chans},
        },
        path,
    )  # fmt: skip
    return model.eval()


def picture(path: Path, *, mode: str = "L", seed: int = 0, size: tuple[int, int] = SIZE) -> Path:
    """An image of noise."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, bands), dtype=np.uint8)
    Image.fromarray(pixels.squeeze()).save(path)
    return path


def normalised(path: Path) -> Tensor:
    """The image as the model takes it: (1, 1, h, w)."""
    x = torch.from_numpy(np.array(Image.open(path)).astype(np.float32))[None, None]
    return (x - MEAN[0]) / STD[0]


def inspect(checkpoint: Path, *images: Path, **options: Any) -> Inspection:
    """What the checkpoint's model makes of images."""
    trained = load_classifier(checkpoint)
    pixels, _ = read_images(images, trained)
    return inspect_images(trained, [p.name for p in images], pixels, **options)


def explain(checkpoint: Path, images: list[Path], out: Path, *options: str) -> None:
    """The command, which must end well."""
    line = ["explain", "--ckpt", str(checkpoint), "--image", *map(str, images), "--out", str(out)]
    assert main([*line, "--overwrite", "true", *options]) == 0


def data_of(page: Path) -> dict[str, Any]:
    """What a page holds."""
    text = re.search(r'id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert text
    return json.loads(text[1])


def numbers(text: str, dtype: str, *shape: int) -> NDArray[Any]:
    """Numbers of a page."""
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)


def page_weights(data: dict[str, Any], image: int) -> NDArray[np.float64]:
    """The weights of an image in a page: (layers, heads, N with tokens in front, N)."""
    cells = data["grid"][0] * data["grid"][1]
    shape = len(data["layers"]), len(data["heads"]), data["prefix"] + cells
    one = data["images"][image]
    levels = numbers(one["weights"], "<u2", *shape, cells) / 65_535
    return levels * numbers(one["tops"], "<f4", *shape)[..., None]
