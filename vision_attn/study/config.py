"""The configuration of a study, its rules, and the checks of its values.

How near a matched CNN must come is TOLERANCE, beside the solver in `models`.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from vision_attn.data.config import AugmentConfig, Control, DataConfig
from vision_attn.errors import UserError
from vision_attn.names import MODELS, Match, near
from vision_attn.training.optim import OptimConfig

__all__ = [
    "Budget", "Control", "Protocol", "Study", "Tuning", "arch_of", "label_of", "most_processes",
]  # fmt: skip

DEFAULT_STEPS = 400
"""Updates of a run where the study does not say how long a model trains."""

FITTED = 0.99
"""Train accuracy from which a run counts as fitted."""

MEASURED_IMAGES = 256
"""Test images on which the distance of attention is measured."""

MOST_STEPS = 10**9
"""Updates of a run. Like the limits below, far above any real study: more is a typing error."""

MOST_CELLS = 100_000

MOST_ROWS = 10_000

SUPPORTED_PRECISION = ("32-true", "bf16-mixed", "16-mixed", "bf16-true")

Protocol = Literal["steps", "epochs"]


@dataclass(kw_only=True)
class Budget:
    """How long a model trains; both together are two protocols, side by side in one study.

    Args:
        steps: the same number of updates at every size; 400 where neither is given.
        epochs: passes over the subset, so that small subsets get few updates.
    """

    steps: int | None = None
    epochs: int | None = None

    def protocols(self, size: int, batch_size: int) -> dict[Protocol, int]:
        """Updates for a subset of this size, under each protocol of the study."""
        self.check()
        updates: dict[Protocol, int] = {}
        if self.steps is not None or self.epochs is None:
            updates["steps"] = self.steps or DEFAULT_STEPS
        if self.epochs is not None:
            updates["epochs"] = math.ceil(self.epochs * size / min(batch_size, size))
        for name, count in updates.items():
            if count > MOST_STEPS:
                raise UserError(
                    f"budget.{name} asks for {count:,} updates at {size} images; wanted at most"
                    f" {MOST_STEPS:,}"
                )
        return updates

    def updates(self, size: int, batch_size: int) -> dict[int, tuple[Protocol, ...]]:
        """Numbers of updates, each with all protocols that give it: one run serves them all."""
        protocols = self.protocols(size, batch_size)
        return {
            steps: tuple(name for name, count in protocols.items() if count == steps)
            for steps in protocols.values()
        }

    def check(self) -> None:
        """Raise UserError on a length out of range."""
        for name, value in (("steps", self.steps), ("epochs", self.epochs)):
            if value is not None and not 1 <= value <= MOST_STEPS:
                raise UserError(f"budget.{name} is {value}; wanted 1 to {MOST_STEPS:,}")


@dataclass(kw_only=True)
class Tuning:
    """Settings that `tune` tries in these ranges.

    Args:
        sampler: tpe, half of the tries spread evenly, the same for all models, then Optuna's
            estimates of where each does best (extra `tune`); halton, all of them spread evenly.
        lr: lowest and highest learning rate, on a log scale.
        weight_decay: lowest and highest weight decay, on a log scale.
        augment: augmentations to choose from, weak to strong; empty keeps the study's own.
    """

    sampler: Literal["tpe", "halton"] = "tpe"
    lr: tuple[float, float] = (3e-4, 6e-3)
    weight_decay: tuple[float, float] = (0.005, 0.5)
    augment: list[AugmentConfig] = field(default_factory=list)

    def check(self) -> None:
        """Raise UserError on values out of range."""
        for name in ("lr", "weight_decay"):
            low, high = getattr(self, name)
            if not 0 < low <= high < math.inf:
                raise UserError(f"tuning.{name} is {low} to {high}; wanted 0 < low <= high")
        for config in self.augment:
            config.check()


@dataclass(kw_only=True)
class Study:
    """A comparison of models on nested subsets of growing size.

    Args:
        data: which images.
        models: vit, pixel_vit, cnn, ... or timm:NAME; LABEL=NAME is a model under another name, so
            that a study can hold it twice, with other arguments.
        args: arguments of each model, by its label; null follows the images: a patch that makes
            36 to 64 tokens.
        match: what of a CNN is made equal to the model it is matched to: params, flops, both, none.
        match_to: the model whose cost a CNN's widths are solved for, or one for each CNN's label;
            null is the first of `models` that is no CNN.
        reference: the model that the report compares the others with, by its label; null is `cnn`,
            or the first CNN.
        sizes: numbers of training images; `all` is every image outside validation; null is 20, 50,
            100, 200 ... up to that.
        draws: how many subsets of each size.
        first_draw: number of the first, so that several machines can divide a study; `--draws 3-5`
            is short for `--first_draw 3 --draws 3`.
        seeds: how many initialisations of each draw.
        budget: how long a model trains.
        batch_size: images an update, no more than the subset has; null is 64, or 32 where images
            have more than 32 x 32 pixels.
        optim: optimiser and schedule.
        augment: augmentation of the training images.
        augment_of: that of single models in its place, by label; not with `tune`.
        controls: none; permuted, pixels in another, fixed order; shuffled, labels at random.
        tune: tries for each model and size, the best chosen on validation images; 0 is no tuning.
        tuning: the settings to try.
        precision: Lightning's, e.g. 32-true or bf16-mixed.
        select: last, the weights of the last update; best, of the lowest validation loss.
        rows: how many times a run measures validation and writes its log.
        threads: CPU threads of a run; part of a result, since sums depend on it in the last digit.
        checkpoint: keep the weights of every cell.
        measure: store how far the attention of every cell looks, by layer and head.
    """

    data: DataConfig = field(default_factory=DataConfig)
    models: list[str] = field(default_factory=lambda: ["vit", "cnn"])
    args: dict[str, dict[str, Any]] | None = None
    match: Match = "params"
    match_to: str | dict[str, str] | None = None
    reference: str | None = None
    sizes: list[int | Literal["all"]] | None = None
    draws: int = 3
    first_draw: int = 0
    seeds: int = 1
    budget: Budget = field(default_factory=Budget)
    batch_size: int | None = None
    optim: OptimConfig = field(default_factory=OptimConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    augment_of: dict[str, AugmentConfig] = field(default_factory=dict)
    controls: list[Control] = field(default_factory=lambda: ["none"])
    tune: int = 0
    tuning: Tuning = field(default_factory=Tuning)
    precision: str = "32-true"
    select: Literal["last", "best"] = "last"
    rows: int = 10
    threads: int = 1
    checkpoint: bool = False
    measure: bool = False

    @property
    def archs(self) -> dict[str, str]:
        """The model that each label of `models` stands for."""
        return {label_of(entry): arch_of(entry) for entry in self.models}

    @property
    def augments(self) -> list[AugmentConfig]:
        """Every augmentation of the study, tries of tuning apart."""
        return [self.augment, *self.augment_of.values()]

    def matched_to(self, label: str) -> str:
        """The label of the model that this CNN is matched to."""
        if isinstance(self.match_to, Mapping) and label in self.match_to:
            return self.match_to[label]
        if isinstance(self.match_to, str):
            return self.match_to
        return next((name for name, arch in self.archs.items() if arch != "cnn"), "vit")

    def check(self) -> None:
        """Raise UserError on values out of range, before any work starts."""
        labels = [label_of(entry) for entry in self.models]
        for name, values in (
            ("models", labels), ("sizes", self.sizes), ("controls", self.controls),
        ):  # fmt: skip
            if values is None:
                continue
            if not values:
                raise UserError(f"{name} is empty; name one or more")
            if len(set(values)) < len(values):
                raise UserError(f"{name} {values} names one twice")
        for size in self.sizes or ():
            if size != "all" and size < 1:
                raise UserError(f"sizes has {size}; wanted 1 or more images, or all")
        for name, most in (
            ("draws", None), ("seeds", None), ("batch_size", None), ("rows", MOST_ROWS),
            ("threads", most_processes()),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is None:
                continue
            if value < 1 or (most is not None and value > most):
                wanted = "1 or more" if most is None else f"1 to {most:,}"
                raise UserError(f"{name} is {value}; wanted {wanted}")
        if self.first_draw < 0:
            raise UserError(f"first_draw is {self.first_draw}; wanted 0 or more")
        if self.tune < 0:
            raise UserError(f"tune is {self.tune}; wanted 0 or more tries")
        self.budget.check()
        self._check_cells()
        for name in self.args or ():
            known = dict.fromkeys((*labels, *MODELS))
            if name not in known and not name.startswith("timm:"):
                raise UserError(f"args.{name} is for no model of the study; {near(name, known)}")
        if isinstance(self.match_to, Mapping):
            for name, target in self.match_to.items():
                if self.archs.get(name) != "cnn":
                    raise UserError(f"match_to.{name} is no CNN of the study")
                if target not in (*labels, *MODELS) and not target.startswith("timm:"):
                    raise UserError(f"match_to.{name} is {target}, which is no model of the study")
        if self.reference is not None and self.reference not in labels:
            raise UserError(
                f"reference is {self.reference}, which is no model of the study;"
                f" {near(self.reference, labels)}"
            )
        if self.precision not in SUPPORTED_PRECISION:
            raise UserError(
                f"precision {self.precision!r} is not known; choose one of"
                f" {', '.join(SUPPORTED_PRECISION)}"
            )
        for label in self.augment_of:
            if label not in labels:
                raise UserError(
                    f"augment_of.{label} is for no model of the study; {near(label, labels)}"
                )
        if self.augment_of and self.tune:
            raise UserError(
                "tune tries augmentations that are the same for all models, so it does not go with"
                " augment_of; take one of them out"
            )
        moving = ("pad", "flip", "randaugment", "transforms")
        for augment in self.augments:
            moves = [n for n in moving if getattr(augment, n)]
            if "permuted" in self.controls and moves:
                raise UserError(
                    f"control permuted does not go with augment.{moves[0]}, which moves pixels to"
                    " neighbours that they no longer have; turn it off"
                )
            augment.check()
        self.optim.check()
        self.tuning.check()
        if self.tune and self.tuning.sampler == "tpe" and find_spec("optuna") is None:
            raise UserError(
                "tuning.sampler tpe needs the package optuna: pip install 'vision-attn[tune]', or"
                " take --tuning.sampler halton"
            )

    def _check_cells(self) -> None:
        """Raise UserError on a study with too many cells, before they are made."""
        axes = {name: len(getattr(self, name) or "1") for name in ("models", "sizes", "controls")}
        runs = math.prod(axes.values())
        cells = runs * (self.draws * self.seeds + self.tune)
        if cells > MOST_CELLS:
            parts = [f"{count} {name}" for name, count in axes.items() if count > 1]
            parts += [f"{self.draws:,} draws", f"{self.seeds:,} seeds"]
            tries = f", and {self.tune:,} tries of each model and size" if self.tune else ""
            raise UserError(
                f"the study has {cells:,} runs ({' x '.join(parts)}{tries}); wanted at most"
                f" {MOST_CELLS:,}"
            )


def most_processes() -> int:
    """Threads or workers at most: four a core, and 64 where another machine may run the study."""
    return max(4 * (os.cpu_count() or 1), 64)


def label_of(entry: str) -> str:
    """`small` of `small=vit`; an entry without a label is its own."""
    label, _, name = entry.rpartition("=")
    if name and (label or "=" not in entry):
        return label or name
    raise UserError(f"models has {entry!r}; wanted NAME or LABEL=NAME")


def arch_of(entry: str) -> str:
    """`vit` of `small=vit`."""
    return entry.rpartition("=")[2]
