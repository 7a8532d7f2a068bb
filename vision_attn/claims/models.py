"""The small ViTs that `diagnose` looks into, at the start and after a short training."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn

from vision_attn.claims.common import Settings, one_thread
from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.explain.measures import some_images
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.tokens import image_to_patches, patches_to_image

__all__ = ["WIDTH", "Key", "Models", "permute_patches", "reorder_patches"]

WIDTH, DEPTH, IMAGES = 64, 2, 128


@dataclass(frozen=True, kw_only=True)
class Key:
    """Which model.

    Args:
        heads: head count.
        scale: factor on q.k; None is 1/sqrt(K).
        positions: as `pos_embed` of the ViT.
        shuffled: trained on images whose patches all stand in one random order.
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
        tell: called before each training.

    Raises:
        UserError: images that no patch cuts into 4 to 64 tokens.
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

    def start(self, key: Key) -> VisionTransformer:
        """The model before its first update, in eval mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.seed)
            model = VisionTransformer(
                self.source.img_size,
                self.patch,
                self.source.in_chans,
                len(self.source.classes),
                embed_dim=WIDTH,
                depth=DEPTH,
                num_heads=key.heads,
                scale=key.scale,
                pos_embed=key.positions,  # type: ignore[arg-type]
            )
        return model.to(self.device).eval()

    def trained(self, key: Key) -> tuple[nn.Module, float]:
        """The model after `settings.steps` updates, in eval mode, and its test accuracy."""
        if key not in self._trained:
            scale = "1/sqrt(K)" if key.scale is None else f"{key.scale:g}"
            self.tell(
                f"{self.source.label}: training with {key.heads} heads, scale {scale}, positions"
                f" {key.positions}{', patches shuffled' * key.shuffled}, seed {key.seed}"
            )
            data = self.data(key)
            with one_thread():  # at this size more hardly help
                model = train(self.start(key), self.batches(data), self.settings.steps, self.device)
                self._trained[key] = model, self.accuracy(model, data)
        return self._trained[key]

    def data(self, key: Key) -> ImageData:
        """Its images, shuffled where the key says so."""
        source = permute_patches(self.source, self.order(key.seed)) if key.shuffled else self.source
        return ImageData(
            source=source, batch_size=64, seed=key.seed, batches_per_epoch=self.settings.steps
        )

    def batches(self, data: ImageData) -> list[tuple[Tensor, Tensor]]:
        """Training batches, on the CPU."""
        return list(data.train_dataloader())

    def images(self) -> Tensor:
        """Some test images, the same ones each time, on the device: (B, C, h, w)."""
        data = self.data(Key())
        return some_images(data.test_dataloader(), IMAGES).to(self.device)

    @torch.no_grad()
    def accuracy(self, model: nn.Module, data: ImageData) -> float:
        """Share of test images that are classed right."""
        right = total = 0
        for x, y in data.test_dataloader():
            right += int((model(x.to(self.device)).argmax(1).cpu() == y).sum())
            total += len(y)
        return right / total


def train(
    model: nn.Module,
    batches: list[tuple[Tensor, Tensor]],
    steps: int,
    device: torch.device,
    lr: float = 1e-3,
) -> nn.Module:
    """AdamW with a tenth of warm-up and a cosine, in place; the model in eval mode."""
    skip: set[str] = getattr(model, "no_weight_decay", set)()
    groups = param_groups_weight_decay(model, 0.05, no_weight_decay_list=skip)
    optimizer = torch.optim.AdamW(groups, lr=lr)
    rise = max(steps // 10, 1)
    model.train()
    for i, (x, y) in enumerate(batches):
        rate = min((i + 1) / (rise + 1), 0.5 + 0.5 * math.cos(math.pi * max(i - rise, 0) / steps))
        for group in optimizer.param_groups:
            group["lr"] = lr * rate
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def permute_patches(source: Source, order: Tensor) -> Source:
    """The same images with their patches in another order, the same for all: `order` (N,)."""

    def move(images: Tensor | Files) -> Tensor:
        if isinstance(images, Files):
            raise UserError("images left on disk cannot be permuted; raise data.memory_mb")
        return reorder_patches(images, order)

    return replace(
        source, train_images=move(source.train_images), test_images=move(source.test_images)
    )


def reorder_patches(images: Tensor, order: Tensor) -> Tensor:
    """(B, C, h, w) with their square patches in the order (N,) -> (B, C, h, w)."""
    h, w = images.shape[-2:]
    p = round((h * w / len(order)) ** 0.5)
    return patches_to_image(image_to_patches(images, (p, p))[:, order], (p, p), (h, w))


def _patch(img_size: tuple[int, int]) -> int:
    """The smallest patch from 2 pixels on that leaves 4 to 64 tokens."""
    h, w = img_size
    for p in range(2, min(h, w) + 1):
        if h % p == w % p == 0 and 4 <= h * w // p**2 <= 64:
            return p
    raise UserError(
        f"images of {h} x {w} pixels have no patch that leaves 4 to 64 tokens;"
        " give --data.img_size 32"
    )
