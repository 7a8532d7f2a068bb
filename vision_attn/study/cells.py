"""The cells of a study: model x size x draw x seed, planned before anything runs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import torch

from vision_attn.data.augment import transform_of
from vision_attn.data.sources import Source
from vision_attn.data.subsets import Subset, subset
from vision_attn.errors import UserError
from vision_attn.models.cnn import SmallCNN
from vision_attn.models.cost import Cost, cost, match_cnn
from vision_attn.models.registry import attends, create_model
from vision_attn.study.config import Protocol, Study
from vision_attn.study.defaults import follow_images
from vision_attn.study.keys import key_of
from vision_attn.training.run import RunConfig

__all__ = ["Arm", "Cell", "Plan", "model_errors", "plan", "with_config"]

MOST_LAYERS = 100
"""Layers of a CNN's stage; solving for its widths takes time for each."""


@dataclass(frozen=True)
class Arm:
    """One model of a study as it is built.

    Args:
        label: what the study calls it.
        arch: the model that the label stands for.
        args: its arguments, a CNN's widths solved.
        cost: what it costs on the study's images.
        matched: what of it was made equal to which model, such as `params of vit`, or `none`.
        attends: whether it has attention.
    """

    label: str
    arch: str
    args: dict[str, Any]
    cost: Cost
    matched: str
    attends: bool


@dataclass(frozen=True)
class Cell:
    """One run of the study.

    Args:
        key: its name on disk, which follows from all that decides its result.
        arm: its model.
        config: its configuration.
        subset: the hash of its training images.
        protocols: those under which this run stands: both, where both give as many updates.
    """

    key: str
    arm: Arm
    config: RunConfig
    subset: str
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True)
class Plan:
    """A study made ready on its images: models by label, and cells in the order of work."""

    study: Study
    source: Source = field(repr=False, compare=False)
    arms: dict[str, Arm]
    cells: list[Cell]


def plan(study: Study, source: Source) -> Plan:
    """Build every model once, solve the CNNs' widths, deal the subsets; nothing is written.

    Raises:
        UserError: anything in the study that could not run.
    """
    study.check()
    study, _ = follow_images(study, source)
    assert study.args is not None
    assert study.sizes is not None
    assert study.batch_size is not None
    for augment in (*study.augments, *study.tuning.augment):
        augment.check_size(source.img_size)
        transform_of(augment, source.train_images[torch.tensor([0])][0])
    arms = {label: _arm(study, label, source) for label in study.archs}
    sizes: list[int] = []
    for size in study.sizes:
        sizes.append(len(_deal(study, source, 0, None if size == "all" else size).train))
        for augment in study.augments:
            augment.check_batch(min(study.batch_size, sizes[-1]))
    if len(set(sizes)) < len(sizes):
        raise UserError(f"sizes {study.sizes} name the same number of images twice")
    draws = range(study.first_draw, study.first_draw + study.draws)
    axes = product(draws, sizes, range(study.seeds), arms.values(), study.controls)
    subsets = {
        (draw, size): _deal(study, source, draw, size).hash for draw, size in product(draws, sizes)
    }
    cells = []
    for draw, size, seed, arm, control in axes:
        for steps, protocols in study.budget.updates(size, study.batch_size).items():
            config = RunConfig(
                model=arm.arch,
                args=arm.args,
                size=size,
                draw=draw,
                seed=seed,
                steps=steps,
                val_fraction=study.data.val_fraction,
                batch_size=study.batch_size,
                optim=study.optim,
                augment=study.augment_of.get(arm.label, study.augment),
                precision=study.precision,
                threads=study.threads,
                rows=study.rows,
                select=study.select,
                control=control,
            )
            key = _key(arm.label, config, source)
            cells.append(Cell(key, arm, config, subsets[draw, size], protocols))
    return Plan(study, source, arms, cells)


def with_config(cell: Cell, source: Source, **changes: Any) -> Cell:
    """The same cell with another configuration, and its own key."""
    config = replace(cell.config, **changes)
    return replace(cell, config=config, key=_key(cell.arm.label, config, source))


def _arm(study: Study, label: str, source: Source) -> Arm:
    arch = study.archs[label]
    if not label.isprintable() or label != label.strip():
        raise UserError(
            f"models has the label {label!r}; wanted printable characters, no space at an end"
        )
    args, matched = dict((study.args or {}).get(label, {})), "none"
    if arch == "cnn" and study.match != "none" and "widths" not in args:
        args |= _matched_cnn(study, label, source)
        matched = f"{study.match} of {study.matched_to(label)}"
    return Arm(label, arch, args, _cost(arch, args, source), matched, attends(arch, args))


def _deal(study: Study, source: Source, draw: int, size: int | None) -> Subset:
    return subset(
        source.train_labels,
        name=source.name,
        draw=draw,
        size=size,
        num_classes=len(source.classes),
        val_fraction=study.data.val_fraction,
        classes=source.classes,
        label=source.label,
    )


@contextmanager
def model_errors(arch: str, source: Source) -> Iterator[None]:
    """Turn what torch or timm raise on images that a model cannot take into a UserError."""
    try:
        yield
    except (AssertionError, MemoryError, RuntimeError) as e:
        h, w = source.img_size
        reason = next((line for line in str(e).splitlines() if line.strip()), type(e).__name__)
        raise UserError(
            f"model {arch!r} does not run on images of {h} x {w} pixels: {reason.strip()}"
        ) from e


def _cost(arch: str, args: Mapping[str, Any], source: Source) -> Cost:
    built = create_model(
        arch,
        img_size=source.img_size,
        in_chans=source.in_chans,
        num_classes=len(source.classes),
        args=args,
    )
    with model_errors(arch, source):
        return cost(built, source.in_chans, source.img_size)


def _matched_cnn(study: Study, label: str, source: Source) -> dict[str, Any]:
    """Widths of the CNN that give it the cost of the model it is matched to."""
    target = study.matched_to(label)
    arch = study.archs.get(target, target)
    if arch == "cnn":
        raise UserError(
            f"match_to is {target}, a CNN, which {label} cannot be matched to; name another model"
        )
    assert study.match != "none"
    given = study.args or {}
    own = given.get(label, {})
    depth = own.get("depth", 2)
    if not isinstance(depth, int) or not 1 <= depth <= MOST_LAYERS:
        raise UserError(f"args.{label}.depth is {depth}; wanted 1 to {MOST_LAYERS} layers a stage")
    shape = {k: own[k] for k in ("depth", "attn_layer") if k in own}
    SmallCNN(widths=(8,), **shape)  # says what is wrong with them
    widths = match_cnn(
        _cost(arch, given.get(target, {}), source),
        study.match,
        **shape,
        in_chans=source.in_chans,
        num_classes=len(source.classes),
        img_size=source.img_size,
    )
    return {"widths": list(widths)}


def _key(label: str, config: RunConfig, source: Source) -> str:
    return key_of(label, asdict(config), source.name, source.fingerprint)
