"""What a run logs to beside metrics.csv; its result does not hang on that."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers.logger import DummyLogger
from shared import two_classes

from vision_attn.data.augment import AugmentConfig
from vision_attn.errors import UserError
from vision_attn.training.optim import OptimConfig
from vision_attn.training.run import RunConfig, check_tracker, run

CONFIG = RunConfig(
    model="linear", args={}, size=10, draw=1, seed=0, steps=6, val_fraction=0.2, batch_size=5,
    optim=OptimConfig(), augment=AugmentConfig(), precision="32-true", threads=1, rows=2,
    select="last",
)  # fmt: skip


class Tracker(DummyLogger):
    """Stands for the logger of a package: keeps what it is given."""

    made: list["Tracker"] = []  # noqa: RUF012

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        self.args, self.options, self.rows, self.ends = args, options, [], []
        self.made.append(self)

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:  # type: ignore[override]
        self.rows.append((step, dict(metrics)))

    def finalize(self, status: str) -> None:
        self.ends.append(status)

    @property
    def experiment(self) -> Any:
        return self

    def finish(self) -> None:
        self.ends.append("finished")


def plain(result: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in result.items() if k not in ("seconds", "images_per_second")}


@pytest.mark.parametrize("kind", ["tensorboard", "wandb"])
def test_a_tracker_gets_the_rows_of_metrics_csv(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vision_attn.training.run.TensorBoardLogger", Tracker)
    monkeypatch.setattr("vision_attn.training.run.WandbLogger", Tracker)
    monkeypatch.setattr(Tracker, "made", [])
    images = two_classes(40)
    alone = run(CONFIG, images, tmp_path / "alone")
    assert not Tracker.made
    result = run(CONFIG, images, tmp_path / "both", logger=kind)
    assert plain(result) == plain(alone)
    texts = [(tmp_path / name / "metrics.csv").read_text() for name in ("alone", "both")]
    assert texts[0] == texts[1]
    (tracker,) = Tracker.made
    steps = [step for step, row in tracker.rows if "train_loss" in row]
    assert steps == [2, 5]
    assert tracker.rows[-1] == (6, {k: result[k] for k in ("test_acc", "gap")})
    assert tmp_path / "both" in tracker.args
    assert tracker.ends[-1] == "finished"
    assert kind == "tensorboard" or tracker.options["offline"]
    monkeypatch.setattr("vision_attn.training.run.evaluate", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):  # and it is closed
        run(CONFIG, images, tmp_path / "bad", logger=kind)
    assert Tracker.made[-1].ends == ["success", "finished"]


def test_tensorboard_itself(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra loggers is not installed")
    run(CONFIG, two_classes(40), tmp_path, logger="tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    names = EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"]
    assert {"train_loss", "val_loss", "val_acc", "test_acc", "gap"} <= {*names}
    assert not (tmp_path / "hparams.yaml").exists()


def test_a_tracker_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    check_tracker(None)
    monkeypatch.setattr("vision_attn.training.run.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'vision-attn\[loggers\]'"):
        check_tracker("wandb")
