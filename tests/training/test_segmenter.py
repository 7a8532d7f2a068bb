"""Training of one label for every pixel: metrics by hand, a checkpoint, the command line."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from shared import quiet
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import DataLoader

from vision_attn.cli import main
from vision_attn.training.dense import Segmenter

# Lightning's advice on worker counts and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

TINY: dict[str, Any] = {"embed_dim": 12, "depth": 2, "num_heads": 3}


class Fixed(torch.nn.Module):
    """Answers one label map, whatever the image."""

    def __init__(self, labels: Tensor) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(5.0 * F.one_hot(labels, 3).movedim(-1, 1).float())

    def forward(self, x: Tensor) -> Tensor:
        return self.logits


def test_metrics_by_hand() -> None:
    """Two batches of 2 x 3 pixels; IoU is counted over all pixels, then averaged over classes."""
    guess = torch.tensor([[[0, 0, 1], [1, 2, 2]]])
    truths = torch.tensor([[[[0, 1, 1], [1, 2, 0]]], [[[0, 0, 1], [2, 2, 2]]]])
    module = Segmenter(img_size=(2, 3), patch_size=1, num_classes=3, **TINY)
    module.model = Fixed(guess)  # type: ignore[assignment]
    batches = [(torch.zeros(1, 1, 2, 3), y) for y in truths]
    loader: Any = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    (got,) = quiet().test(module, loader, verbose=False)
    # class 0: both say 0 at 1 + 2 pixels, either at 3 + 2; class 1: 2 + 1 of 3 + 2;
    # class 2: 1 + 2 of 2 + 3
    assert_close(got["test_iou"], (3 / 5 + 3 / 5 + 3 / 5) / 3, atol=1e-6, rtol=0)
    assert_close(got["test_acc"], 9 / 12, atol=1e-6, rtol=0)
    right, wrong = (
        5.0 - torch.logsumexp(torch.tensor([5.0, 0, 0]), 0),
        -torch.logsumexp(torch.tensor([5.0, 0, 0]), 0),
    )
    assert_close(got["test_loss"], -float(9 * right + 3 * wrong) / 12, atol=1e-5, rtol=0)


def squares(n: int = 24) -> tuple[Tensor, Tensor]:
    """Images of 6 x 6 with a bright 2 x 2 square of label 1; the rest is 0."""
    g = torch.Generator().manual_seed(4)
    x, y = torch.zeros(n, 1, 6, 6), torch.zeros(n, 6, 6, dtype=torch.long)
    for i, (a, b) in enumerate(torch.randint(0, 5, (n, 2), generator=g).tolist()):
        x[i, 0, a : a + 2, b : b + 2] = 1
        y[i, a : a + 2, b : b + 2] = 1
    return x, y


def test_training_learns_and_survives_a_checkpoint(tmp_path: Path) -> None:
    L.seed_everything(0, verbose=False)
    module = Segmenter(img_size=(6, 6), patch_size=2, num_classes=2, lr=1e-2, **TINY)
    batch = squares()
    loader: Any = DataLoader([batch], batch_size=None)  # type: ignore[arg-type, list-item]
    trainer = quiet(max_steps=60, max_epochs=-1)
    trainer.fit(module, loader)
    (result,) = trainer.test(module, loader, verbose=False)
    assert result["test_iou"] > 0.95
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = Segmenter.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert again.hparams["patch_size"] == 2
    assert_close(again.eval()(batch[0]), module.eval()(batch[0]), rtol=0, atol=0)
    assert_close(module.predict_step(batch, 0), module(batch[0]).max(1).indices)


CONFIG = str(Path(__file__).parents[2] / "configs" / "dense.yaml")
SMALL = ["--data.train_scenes", "16", "--data.eval_scenes", "8", "--data.batch_size", "8"]
QUICK = [*SMALL, "--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false"]


def test_the_configuration_fits_and_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["--config", CONFIG, *QUICK, "--model.depth", "1", "--data.canvas", "[16, 20]"]
    assert main(["fit", *line]) == 0
    assert "val_iou" in capsys.readouterr().out
    (saved,) = tmp_path.glob("runs/**/last.ckpt")
    given = torch.load(saved, weights_only=True)["hyper_parameters"]
    assert (given["depth"], tuple(given["img_size"]), given["num_classes"]) == (1, (16, 20), 11)
    assert main(["test", *line, "--ckpt_path", str(saved)]) == 0
    assert "test_iou" in capsys.readouterr().out
    assert main(["test", *line, "--data.canvas", "[16, 16]", "--ckpt_path", str(saved)]) == 2
    assert "img_size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["fit", "--model.dept", "2"], "dept"),
        (["fit", "--model.num_classes", "3"], "num_classes"),
        (["predict"], "predict"),
    ],
)
def test_mistakes_on_the_command_line(
    more: list[str],
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([more[0], "--config", CONFIG, *QUICK, *more[1:]]) == 2
    assert word in capsys.readouterr().err
