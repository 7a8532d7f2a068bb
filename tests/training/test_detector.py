"""Training of set prediction: metrics by hand, every layer, a checkpoint, the command line."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from shared import quiet
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import DataLoader

from vision_attn.cli import main
from vision_attn.training.detr import Detector
from vision_attn.training.set_loss import Targets, set_loss

# Lightning's advice on worker counts and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

TINY: dict[str, Any] = {"embed_dim": 12, "depth": 2, "dec_depth": 3, "num_heads": 3}


class Fixed(torch.nn.Module):
    """Answers the same set, whatever the image."""

    def __init__(self, logits: Tensor, boxes: Tensor) -> None:
        super().__init__()
        self.logits, self.boxes = torch.nn.Parameter(logits), torch.nn.Parameter(boxes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits, self.boxes


def test_metrics_by_hand() -> None:
    """Image 0 is answered right. Image 1 has one box wrong and one object more than is there."""
    a, b = [0.2, 0.2, 0.2, 0.2], [0.7, 0.7, 0.2, 0.2]
    sure = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    logits = torch.stack((sure, torch.tensor([[8.0, 0.0, 0.0], [0.0, 9.0, 0.0]])))
    boxes = torch.tensor([[a, b], [b, a]])
    targets = [{"boxes": torch.tensor([a]), "labels": torch.tensor([0])} for _ in range(2)]
    module = Detector(img_size=(4, 4), patch_size=2, num_classes=2, num_queries=2, **TINY)
    module.model = Fixed(logits, boxes)  # type: ignore[assignment]
    loader: Any = DataLoader([(torch.zeros(2, 1, 4, 4), targets)], batch_size=None)  # type: ignore[arg-type, list-item]
    (got,) = quiet().test(module, loader, verbose=False)
    assert_close(got["test_count"], 0.5)
    # class 0, two objects: the surest answer is right, the next is not, so precision is 1 up to
    # recall 1/2 and 0 beyond: 51 of COCO's 101 points. Class 1 has no object and does not count.
    assert_close(got["test_map50"], 51 / 101, rtol=0, atol=1e-4)
    assert_close(got["test_map"], 51 / 101, rtol=0, atol=1e-4)


def squares(n: int = 16) -> tuple[Tensor, Targets]:
    """Images of 8 x 8 with a bright 2 x 2 square in the left half, in the right, both or none."""
    g = torch.Generator().manual_seed(4)
    x, targets = torch.zeros(n, 1, 8, 8), []
    for i in range(n):
        boxes = []
        for side in (0, 4):
            if torch.rand((), generator=g) < 0.6:
                a, b = torch.randint(0, 3, (2,), generator=g).tolist()
                x[i, 0, 2 * a : 2 * a + 2, side + b : side + b + 2] = 1
                boxes.append([(side + b + 1) / 8, (2 * a + 1) / 8, 0.25, 0.25])
        there = torch.tensor(boxes).reshape(-1, 4)
        targets.append({"boxes": there, "labels": (there[:, 0] > 0.5).long()})
    return x, targets


def test_training_learns_and_survives_a_checkpoint(tmp_path: Path) -> None:
    L.seed_everything(0, verbose=False)
    size = {"embed_dim": 16, "depth": 1, "dec_depth": 2, "num_heads": 2, "num_queries": 3}
    module = Detector(img_size=(8, 8), patch_size=2, num_classes=2, lr=1e-2, nothing=0.5, **size)
    batch = squares()
    loader: Any = DataLoader([batch], batch_size=None)  # type: ignore[arg-type, list-item]
    trainer = quiet(max_steps=220, max_epochs=-1)
    before = set_loss(*module(batch[0]), batch[1]).total.detach()
    trainer.fit(module, loader)
    (result,) = trainer.test(module, loader, verbose=False)
    assert result["test_loss"] < 0.15 * float(before)
    assert result["test_map50"] > 0.7
    assert result["test_count"] > 0.7
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = Detector.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert again.weights == module.weights
    assert_close(again.eval()(batch[0]), module.eval()(batch[0]), rtol=0, atol=0)


def test_every_decoder_layer_is_trained() -> None:
    module = Detector(img_size=(8, 8), patch_size=2, num_classes=2, num_queries=3, **TINY)
    x, targets = squares(5)
    loss = module.training_step((x, targets), 0)
    layers = zip(*module.model.decode(module.model.encode(x)), strict=True)
    want = [float(set_loss(a, b, targets).total.detach()) for a, b in layers]
    assert len(want) == 3
    assert_close(float(loss.detach()), sum(want))
    loss.backward()
    for name, p in module.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name


CONFIG = str(Path(__file__).parents[2] / "configs" / "detr.yaml")
SMALL = ["--data.train_scenes", "16", "--data.eval_scenes", "8", "--data.batch_size", "8"]
QUICK = [*SMALL, "--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false"]


def test_the_configuration_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["fit", "--config", CONFIG, *QUICK, "--data.canvas", "[16, 20]"]
    assert main(line) == 0
    assert "val_map50" in capsys.readouterr().out
    assert main([*line, "--model.num_queries", "1"]) == 2
    assert "num_queries is 1" in capsys.readouterr().err
