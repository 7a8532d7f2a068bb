"""The small ViTs that `diagnose` measures, untrained and after a short training."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import lightning as L
import torch
from torch import Tensor, nn

from vision_attn.claims.common import Settings, one_thread
from vision_attn.data.controls import map_images
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.explain.measures import some_images
from vision_attn.ops.tokens import image_to_patches, patches_to_image
from vision_attn.training.classifier import Classifier
from vision_attn.training.run import quiet

__all__ = ["WIDTH", "Key", "Models", "permute_patches", "reorder_patches"]

WIDTH, DEPTH, IMAGES = 64, 2, 128


@dataclass(frozen=True, kw_only=True)
class Key:
    """Which model.

    Args:
        heads: head count.
        scale: factor on q.k; None is 1/sqrt(K).
        positions: as `pos_embed` of the ViT.
        shuffled: trained on images whose patches are all in one random order.
        seed: repeat.
    """

    heads: int = 4
    scale: float | None = None
    positions: str = "learn"
    shuffled: bool = False
    seed: int = 0


class Models:
    """Untrained and trained ViTs of width 64 and depth 2 on one source; each is trained once.

    Args:
        source: images.
        settings: how long a training is.
        device: where models and images are.
        tell: called with a message before each training.

    Raises:
        UserError: no patch cuts the images into 4 to 64 tokens.
    """

    def __init__(
        self,
        source: Source,
        settings: Settings,
        device: torch.device,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.source, self.settings, self.device, self.tell = source, settings, device, tell
        self.patch = _patch(source.img_size)
        self.tokens = math.prod(source.img_size) // self.patch**2
        self._trained: dict[Key, tuple[nn.Module, float]] = {}

    def order(self, seed: int) -> Tensor:
        """The random order of patches of a repeat: (N,)."""
        return torch.randperm(self.tokens, generator=torch.Generator().manual_seed(seed))

    def start(self, key: Key) -> nn.Module:
        """The model before its first update, in eval mode."""
        return self._classifier(key).model.to(self.device).eval()

    def trained(self, key: Key) -> tuple[nn.Module, float]:
        """The model after `settings.steps` updates, in eval mode, and its test accuracy."""
        if key not in self._trained:
            scale = "1/sqrt(K)" if key.scale is None else f"{key.scale:g}"
            self.tell(
                f"{self.source.label}: training with {key.heads} heads, scale {scale}, positions"
                f" {key.positions}{', patches shuffled' * key.shuffled}, seed {key.seed}"
            )
            data, module = self.data(key), self._classifier(key)
            with one_thread(), quiet():  # at this size more threads hardly help
                trainer = L.Trainer(
                    max_steps=self.settings.steps,
                    max_epochs=-1,
                    accelerator=self.device.type,
                    devices=1,
                    logger=False,
                    enable_checkpointing=False,
                    enable_progress_bar=False,
                    enable_model_summary=False,
                )
                trainer.fit(module, data.train_dataloader())
                model = module.model.to(self.device).eval()
                self._trained[key] = model, self.accuracy(model, data)
        return self._trained[key]

    def _classifier(self, key: Key) -> Classifier:
        args = {
            "patch_size": self.patch, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": key.heads,
            "scale": key.scale, "pos_embed": key.positions,
        }  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.seed)
            return Classifier(
                "vit",
                args,
                img_size=self.source.img_size,
                in_chans=self.source.in_chans,
                num_classes=len(self.source.classes),
            )

    def data(self, key: Key) -> ImageData:
        """The images that the key asks for."""
        source = permute_patches(self.source, self.order(key.seed)) if key.shuffled else self.source
        return ImageData(
            source=source, batch_size=64, seed=key.seed, batches_per_epoch=self.settings.steps
        )

    def images(self) -> Tensor:
        """Some test images, the same ones each time, on the device: (B, C, h, w)."""
        data = self.data(Key())
        return some_images(data.test_dataloader(), IMAGES).to(self.device)

    @torch.no_grad()
    def accuracy(self, model: nn.Module, data: ImageData) -> float:
        """Share of test images with the right class."""
        right = total = 0
        for x, y in data.test_dataloader():
            right += int((model(x.to(self.device)).argmax(1).cpu() == y).sum())
            total += len(y)
        return right / total


def permute_patches(source: Source, order: Tensor) -> Source:
    """The same images, the patches of all of them in the order (N,)."""
    return map_images(source, lambda images: reorder_patches(images, order))


def reorder_patches(images: Tensor, order: Tensor) -> Tensor:
    """(B, C, h, w) with their square patches in the order (N,) -> (B, C, h, w)."""
    h, w = images.shape[-2:]
    p = round((h * w / len(order)) ** 0.5)
    return patches_to_image(image_to_patches(images, (p, p))[:, order], (p, p), (h, w))


def _patch(img_size: tuple[int, int]) -> int:
    """The smallest patch, from 2 pixels on, that gives 4 to 64 tokens."""
    h, w = img_size
    for p in range(2, min(h, w) + 1):
        if h % p == w % p == 0 and 4 <= h * w // p**2 <= 64:
            return p
    raise UserError(
        f"images of {h} x {w} pixels have no patch that leaves 4 to 64 tokens;"
        " give --data.img_size 32"
    )
