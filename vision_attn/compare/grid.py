"""The study and its cells: model x size x draw x seed, checked and matched before anything runs."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.sources import DataConfig, Source
from vision_attn.data.subsets import subset
from vision_attn.errors import UserError
from vision_attn.models import create_model, known_models
from vision_attn.models.budget import Cost, Match, cost, match_cnn
from vision_attn.training.optim import OptimConfig
from vision_attn.training.run import RunConfig

__all__ = ["Budget", "Cell", "Plan", "Study", "plan"]

FORMAT = 1
"""Raised whenever the same configuration would give other numbers; part of every cell's key."""

DEFAULT_STEPS = 400

SUPPORTED_PRECISION = ("32-true", "bf16-mixed", "16-mixed", "bf16-true")


@dataclass(kw_only=True)
class Budget:
    """How long a model trains; give one of the two.

    Args:
        steps: the same number of updates at every size; 400 where neither is given.
        epochs: passes over the subset, so that small subsets get few updates.
    """

    steps: int | None = None
    epochs: int | None = None

    def updates(self, size: int, batch_size: int) -> int:
        """Updates for a subset of this size."""
        if self.steps is not None and self.epochs is not None:
            raise UserError(
                f"budget.steps {self.steps} and budget.epochs {self.epochs} exclude each other"
            )
        value = self.steps if self.epochs is None else self.epochs
        if value is not None and value < 1:
            raise UserError(f"budget is {value}; wanted 1 or more steps or epochs")
        if self.epochs is not None:
            return math.ceil(self.epochs * size / min(batch_size, size))
        return self.steps or DEFAULT_STEPS


@dataclass(kw_only=True)
class Study:
    """A comparison of models on nested subsets of growing size.

    Args:
        data: which images.
        models: vit, pixel_vit, cnn, or timm:NAME.
        args: arguments of each model, by its name.
        match: what of the CNN is made equal to `match_to`: params, flops, both or none.
        match_to: the model whose cost the CNN's widths are solved for; null is the first of
            `models` that is not cnn.
        sizes: numbers of training images; `all` is what validation leaves.
        draws: how many subsets of each size.
        seeds: how many initialisations of each draw.
        budget: how long a model trains.
        batch_size: images an update, no more than the subset has.
        optim: optimiser and schedule.
        augment: what training images go through.
        precision: Lightning's, e.g. 32-true or bf16-mixed.
        select: last, the weights of the last update; best, of the lowest validation loss.
        rows: how many times a run measures validation and writes its log.
        threads: CPU threads of a run; part of a result, since sums depend on it in the last digit.
        checkpoint: keep the weights of every cell.
    """

    data: DataConfig = field(default_factory=DataConfig)
    models: list[str] = field(default_factory=lambda: ["vit", "cnn"])
    args: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "vit": {"patch_size": 2, "embed_dim": 64, "depth": 4, "num_heads": 4}
        }
    )
    match: Match = "params"
    match_to: str | None = None
    sizes: list[int | Literal["all"]] = field(
        default_factory=lambda: [20, 50, 100, 200, 400, "all"]
    )
    draws: int = 3
    seeds: int = 1
    budget: Budget = field(default_factory=Budget)
    batch_size: int = 64
    optim: OptimConfig = field(default_factory=OptimConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    precision: str = "32-true"
    select: Literal["last", "best"] = "last"
    rows: int = 10
    threads: int = 1
    checkpoint: bool = False

    @property
    def reference(self) -> str:
        """The model that the CNN is matched to."""
        return self.match_to or next((m for m in self.models if m != "cnn"), "vit")


@dataclass(frozen=True)
class Cell:
    """One run of the study: its key on disk, its configuration and what its model costs."""

    key: str
    config: RunConfig
    size: int
    cost: Cost


@dataclass(frozen=True)
class Plan:
    """A study made ready: cells in the order of work, and costs and arguments a model."""

    cells: list[Cell]
    costs: dict[str, Cost]
    args: dict[str, dict[str, Any]]
    matched: dict[str, str]


def plan(study: Study, source: Source) -> Plan:
    """Build every model once, solve the CNN's widths, deal the subsets; nothing is written.

    Raises:
        UserError: anything in the study that could not run.
    """
    _check(study)
    args = {m: dict(study.args.get(m, {})) for m in study.models}
    matched = dict.fromkeys(study.models, "none")
    if "cnn" in args and study.match != "none" and "widths" not in args["cnn"]:
        args["cnn"] |= _matched_cnn(study, source)
        matched["cnn"] = f"{study.match} of {study.reference}"
    costs = {m: _cost(m, args[m], source) for m in study.models}
    cells = []
    for draw in range(study.draws):
        for size in study.sizes:
            n = len(
                subset(
                    source.train_labels,
                    name=source.name,
                    draw=draw,
                    size=None if size == "all" else size,
                    num_classes=len(source.classes),
                    val_fraction=study.data.val_fraction,
                ).train
            )
            study.augment.check_batch(min(study.batch_size, n))
            for seed in range(study.seeds):
                for model in study.models:
                    config = RunConfig(
                        model=model,
                        args=args[model],
                        size=n,
                        draw=draw,
                        seed=seed,
                        steps=study.budget.updates(n, study.batch_size),
                        val_fraction=study.data.val_fraction,
                        batch_size=study.batch_size,
                        optim=study.optim,
                        augment=study.augment,
                        precision=study.precision,
                        threads=study.threads,
                        rows=study.rows,
                        select=study.select,
                    )
                    cells.append(Cell(_key(config, source), config, n, costs[model]))
    if len({c.key for c in cells}) < len(cells):
        raise UserError(f"sizes {study.sizes} name the same number of images twice")
    return Plan(cells, costs, args, matched)


def _check(study: Study) -> None:
    for name, values in (("models", study.models), ("sizes", study.sizes)):
        if not values:
            raise UserError(f"{name} is empty; name one or more")
        if len(set(values)) < len(values):
            raise UserError(f"{name} {values} names one twice")
    for name in ("draws", "seeds", "batch_size", "rows", "threads"):
        if getattr(study, name) < 1:
            raise UserError(f"{name} is {getattr(study, name)}; wanted 1 or more")
    for name in study.args:
        if name not in known_models() and not name.startswith("timm:"):
            near = get_close_matches(name, known_models(), n=1) or known_models()
            raise UserError(f"args.{name} is for no model; models are {', '.join(near)}, timm:NAME")
    if study.precision not in SUPPORTED_PRECISION:
        raise UserError(
            f"precision {study.precision!r} is not known; choose one of"
            f" {', '.join(SUPPORTED_PRECISION)}"
        )
    study.optim.check()
    study.augment.check()


def _cost(model: str, args: Mapping[str, Any], source: Source) -> Cost:
    built = create_model(
        model,
        img_size=source.img_size,
        in_chans=source.in_chans,
        num_classes=len(source.classes),
        args=args,
    )
    return cost(built, source.in_chans, source.img_size)


def _matched_cnn(study: Study, source: Source) -> dict[str, Any]:
    """The CNN's widths, solved for the cost of the model it is matched to."""
    if study.reference == "cnn":
        raise UserError("match_to is cnn, which cannot be matched to itself; name another model")
    assert study.match != "none"
    depth = study.args.get("cnn", {}).get("depth", 2)
    target = _cost(study.reference, study.args.get(study.reference, {}), source)
    shape: dict[str, Any] = {
        "in_chans": source.in_chans,
        "num_classes": len(source.classes),
        "img_size": source.img_size,
    }
    widths = match_cnn(target, study.match, depth=depth, **shape)
    return {"widths": list(widths)}


def _key(config: RunConfig, source: Source) -> str:
    """A readable name and a hash of all that decides the result."""
    content = {"format": FORMAT, "data": source.fingerprint, "name": source.name, **asdict(config)}
    digest = hashlib.blake2b(
        json.dumps(content, sort_keys=True, default=list).encode(), digest_size=5
    ).hexdigest()
    model = config.model.replace(":", "-").replace("/", "-")
    return f"{model}-n{config.size:06d}-d{config.draw}-s{config.seed}-{digest}"
