"""Measures of attention while a model trains: logged, written, and the run as it was."""

from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import pytest
import yaml
from lightning.pytorch.loggers import CSVLogger
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.explain.callback import AttentionMeasures
from vision_attn.explain.measures import MEASURES, attention_measures, some_images
from vision_attn.training.classifier import Classifier

# Lightning's notes on devices and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")


def same(got: pd.DataFrame, want: pd.DataFrame, rtol: float = 1e-4) -> None:
    pd.testing.assert_frame_equal(got, want, rtol=rtol, atol=1e-6, check_dtype=False)


def fit(out: Path, callbacks: list[Any], model: str = "vit", **options: Any) -> Classifier:
    L.seed_everything(0, verbose=False)
    args = {"patch_size": 4, "embed_dim": 12, "num_heads": 2, "depth": 2} if model == "vit" else {}
    module = Classifier(model, args, img_size=(8, 8), in_chans=1, num_classes=10)
    trainer = L.Trainer(
        accelerator="cpu",
        logger=CSVLogger(out, name="", version=""),
        callbacks=callbacks,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 4, "num_sanity_val_steps": 1} | options,
    )
    trainer.fit(module, datamodule=ImageData("digits", batches_per_epoch=3))
    return module


def test_callback_logs_and_changes_nothing(tmp_path: Path) -> None:
    plain = fit(tmp_path / "plain", [])
    watched = fit(tmp_path / "watched", [AttentionMeasures(every=5, images=6)])
    assert_close(watched.state_dict(), plain.state_dict(), rtol=0, atol=0)
    table = pd.read_csv(tmp_path / "watched" / "attention.csv")
    assert list(table.columns) == ["step", "layer", "head", *MEASURES]
    assert table["step"].tolist() == [3] * 4 + [9] * 4  # of 3, 6, 9, 12: 5 apart
    log = pd.read_csv(tmp_path / "watched" / "metrics.csv")
    found = log["attn_distance_l1"].dropna()
    for step, value in zip((3, 9), found, strict=True):
        here = table[(table["step"] == step) & (table["layer"] == 1)]
        assert value == pytest.approx(here["distance"].mean(), rel=1e-5)
    names = {f"attn_{m}_l{layer}" for m in MEASURES for layer in (0, 1)}
    assert names <= set(log.columns)
    last = fit(tmp_path / "last", [AttentionMeasures(every=1, images=6)])
    table = pd.read_csv(tmp_path / "last" / "attention.csv")
    images = some_images(ImageData("digits").val_dataloader(), 6)
    got = table[table["step"] == 12].drop(columns="step").reset_index(drop=True)
    same(got, attention_measures(last, images), 1e-5)


def test_callback_refuses() -> None:
    for given, said in (({"every": 0}, "every is 0"), ({"images": 0}, "images is 0"),
                        ({"field": 4}, "field is 4; wanted 1 or more and odd")):  # fmt: skip
        with pytest.raises(UserError, match=said):
            AttentionMeasures(**given)


@pytest.mark.parametrize("name", ["vit", "cnn"])
def test_callback_from_a_configuration(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {
        "model": {"name": name, "args": {"patch_size": 4} if name == "vit" else {}},
        "data": {"batches_per_epoch": 2},
        "trainer": {
            "max_epochs": 1,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "callbacks": [
                {
                    "class_path": "vision_attn.explain.callback.AttentionMeasures",
                    "init_args": {"every": 1, "images": 3},
                }
            ],
        },
    }
    Path("fit.yaml").write_text(yaml.safe_dump(config))
    code = main(["fit", "--config", "fit.yaml"])
    if name == "vit":
        assert code == 0
        assert len(pd.read_csv("runs/fit/version_0/attention.csv")) == 4 * 3
    else:
        assert code == 2
        assert "SmallCNN has no attention layer" in capsys.readouterr().err.splitlines()[-1]
