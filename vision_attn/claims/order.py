"""Claims: without positions order does not matter; a shift of sin-cos positions is a rotation.

The second, whatever the position: Vaswani et al. 2017.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from vision_attn.claims.common import COLOURS, Claim, Settings, Summary, figure, span
from vision_attn.claims.models import WIDTH, Key, Models, reorder_patches
from vision_attn.errors import UserError
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.positions import sincos_1d
from vision_attn.stats.intervals import interval

__all__ = ["change_of_logits", "measure_order", "shift_error"]

POSITIONS = ("none", "learn")
ORDERS = ("in order", "shuffled", "shuffled at test only")
LENGTH = 256  # positions that are shifted


def measure_order(models: Models, settings: Settings) -> Claim:
    """Permuted tokens: change of the output, cost in accuracy; longer sequences; shifts."""
    changes = pd.DataFrame(_changes(models, settings))
    accuracies = pd.DataFrame(_accuracies(models, settings))
    shifts = pd.DataFrame(_shifts(WIDTH))
    longer, longer_words = _longer(models)
    by = ("tokens", "model", "positions")
    tables = {
        "permuted": Summary("largest change of a logit (float64)", changes, by, ("change",)),
        "accuracy": Summary("test accuracy", accuracies, ("positions", "patches"), ("accuracy",)),
        "shift": Summary(
            "largest error of p(pos + k) made from p(pos)", shifts, ("table", "map"), ("error",)
        ),
    }
    answers, numbers = _words(changes, accuracies, shifts, settings)
    question = (
        "Does the order of the tokens matter without positions, and is a shift of sine-cosine"
        " positions a rotation?"
    )
    plot = _plot(tables["permuted"].table(), tables["accuracy"].table(), shifts)
    return Claim("order", question, [*answers, *longer_words], numbers | longer, tables, plot)


@torch.no_grad()
def change_of_logits(model: nn.Module, images: Tensor, order: Tensor) -> float:
    """Largest change of an output in float64 when all patches, or pixels, come in `order` (N,)."""
    exact = copy.deepcopy(model).cpu().double()
    x = images.cpu().double()
    return float((exact(x) - exact(reorder_patches(x, order))).abs().max())


def _changes(models: Models, settings: Settings) -> Iterator[dict[str, Any]]:
    source, images = models.source, models.images()[:32]
    h, w = source.img_size
    cases: list[tuple[str, str, str, int, nn.Module, int]] = []
    for seed in range(settings.seeds):
        for positions in POSITIONS:
            key = Key(positions=positions, seed=seed)
            patch = models.patch
            cases += [
                ("patches", "start", positions, patch, models.start(key), seed),
                ("patches", "trained", positions, patch, models.trained(key)[0], seed),
            ]
            if h * w <= 1024:
                torch.manual_seed(seed)
                pixels = VisionTransformer(
                    (h, w), 1, source.in_chans, len(source.classes), embed_dim=WIDTH, depth=2,
                    num_heads=4, pos_embed=positions,  # type: ignore[arg-type]
                )  # fmt: skip
                pixels = pixels.to(models.device).eval()
                cases.append(("pixels", "start", positions, 1, pixels, seed))
    for tokens, when, positions, patch, model, seed in sorted(cases, key=lambda c: c[:3]):
        count = h * w // patch**2
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        change = change_of_logits(model, images, order)
        yield {"tokens": tokens, "model": when, "positions": positions, "seed": seed,
               "change": change}  # fmt: skip


def _accuracies(models: Models, settings: Settings) -> Iterator[dict[str, Any]]:
    for positions in POSITIONS:
        for name in ORDERS:
            for seed in range(settings.seeds):
                key = Key(positions=positions, shuffled=name == "shuffled", seed=seed)
                model, accuracy = models.trained(key)
                if name == "shuffled at test only":
                    other = Key(positions=positions, shuffled=True, seed=seed)
                    accuracy = models.accuracy(model, models.data(other))
                yield {"positions": positions, "patches": name, "seed": seed, "accuracy": accuracy}


def _longer(models: Models) -> tuple[dict[str, Any], list[str]]:
    """A larger image for a learned table: refused by default, resized with dynamic_img_size."""
    h, w = models.source.img_size
    x = torch.zeros(1, models.source.in_chans, h + 2 * models.patch, w + models.patch)
    shape: dict[str, Any] = {"in_chans": x.shape[1], "embed_dim": WIDTH, "depth": 1, "num_heads": 4}
    refusal = ""
    try:
        VisionTransformer((h, w), models.patch, **shape).eval()(x)
    except UserError as e:
        refusal = str(e)
    resized = VisionTransformer((h, w), models.patch, dynamic_img_size=True, **shape).eval()(x)
    size = f"{x.shape[2]} x {x.shape[3]} pixels"
    answer = f"is refused ({refusal})" if refusal else "is taken"
    return {"larger image refused by default": bool(refusal)}, [
        f"A learned table for {h} x {w} pixels asked for {size}: by default it {answer}; with"
        f" dynamic_img_size=True the table is resized and the output has shape"
        f" {tuple(resized.shape)}."
    ]


def shift_error(dim: int, length: int, shift: int) -> float:
    """Largest |p(pos) R_k - p(pos + k)| in float64, R_k the rotation of each pair of channels by k.

    `R_k` turns (sin a, cos a) by k times the pair's rate `10000^(-2i/D)`, whatever the position a.
    """
    with _float64():
        p = sincos_1d(torch.arange(length + shift), dim)
    turn = shift * 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    sin, cos = p[:length, 0::2], p[:length, 1::2]
    moved = torch.stack(
        (sin * turn.cos() + cos * turn.sin(), cos * turn.cos() - sin * turn.sin()), -1
    ).flatten(1)
    return float((moved - p[shift:]).abs().max())


def _shifts(dim: int) -> Iterator[dict[str, Any]]:
    """Largest errors over `LENGTH` positions, for shifts of 1 to 16: of the sin-cos table under its
    rotation, and of a table of random numbers under its best linear map.
    """
    for shift in range(1, 17):
        yield {"table": "sin-cos", "map": "rotation", "shift": shift,
               "error": shift_error(dim, LENGTH, shift)}  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    for shift in range(1, 17):
        p = torch.randn(LENGTH + shift, dim, generator=generator, dtype=torch.float64) / 2**0.5
        half = LENGTH // 2  # fitted on the first half of the positions, tried on the second
        fitted = torch.linalg.lstsq(p[:half], p[shift : half + shift]).solution
        error = float((p[half:LENGTH] @ fitted - p[half + shift :]).abs().max())
        yield {"table": "random", "map": "best linear", "shift": shift, "error": error}


@contextmanager
def _float64() -> Iterator[None]:
    """Tables of positions in float64; they come in the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _words(
    changes: pd.DataFrame, accuracies: pd.DataFrame, shifts: pd.DataFrame, settings: Settings
) -> tuple[list[str], dict[str, Any]]:
    answers: list[str] = []
    numbers: dict[str, Any] = {}
    without, with_ = (changes.loc[changes["positions"] == p, "change"] for p in POSITIONS)
    numbers["largest change of a logit without positions"] = most = float(without.max())
    numbers["smallest change of a logit with positions"] = least = float(with_.min())
    same = "the same but for rounding" if most < 1e-10 else "NOT the same"
    answers.append(
        "Without positions a random permutation of pixels or patches changes no logit by more than"
        f" {most:.1e} in float64: the output is {same}. With learned positions the"
        f" largest change of a logit is at least {least:.1e} in every model."
    )
    acc = 100 * accuracies.pivot(index="seed", columns=["positions", "patches"], values="accuracy")
    pairs = [("positions, images in order", ("learn", "in order"), ("none", "in order"))]
    for what, order in (("all images", ORDERS[1]), ("at test only", ORDERS[2])):
        for word, kind in (("with", "learn"), ("without", "none")):
            name = f"shuffling {what}, {word} positions"
            pairs.append((name, (kind, order), (kind, "in order")))
    parts = []
    for name, first, second in pairs:
        change = interval(acc[first] - acc[second])[:3]
        numbers[f"points of accuracy by {name}"] = change
        parts.append(f"{name}: {span(change, 1)}")
    answers.append(
        f"Points of test accuracy after {settings.steps} updates gained or lost by"
        f" {'; by '.join(parts)}."
    )
    error = shifts.groupby("table")["error"].max()
    numbers["error of the rotation, sin-cos"] = float(error["sin-cos"])
    numbers["error of the best linear map, random table"] = float(error["random"])
    answers.append(
        f"Sine-cosine positions of width {WIDTH}: p(pos + k) is p(pos) turned by k, with an error"
        f" of at most {error['sin-cos']:.1e} over {LENGTH} positions and shifts of 1 to 16,"
        " float64. The best linear map of a table of random numbers is off by"
        f" {error['random']:.1f} on positions that it was not fitted on."
    )
    return answers, numbers


def _plot(changes: pd.DataFrame, accuracies: pd.DataFrame, shifts: pd.DataFrame) -> Any:
    fig, (left, middle, right) = figure(3)
    cases = list(dict.fromkeys(zip(changes["tokens"], changes["model"], strict=True)))
    left.set_yscale("log")
    for i, positions in enumerate(POSITIONS):
        part = changes[changes["positions"] == positions]
        at = [cases.index(c) for c in zip(part["tokens"], part["model"], strict=True)]
        left.plot(
            at, part["change_mean"], "os"[i], color=COLOURS[i], label=f"positions: {positions}"
        )
    left.set_xticks(range(len(cases)), [f"{a},\n{b}" for a, b in cases])
    left.set_xlim(-0.5, len(cases) - 0.5)
    left.set_title("change of a logit under a permutation", fontsize=10)
    for i, positions in enumerate(POSITIONS):
        part = accuracies[accuracies["positions"] == positions]
        mean = 100 * part["accuracy_mean"].to_numpy()
        bars = np.nan_to_num(100 * part["accuracy_high"].to_numpy() - mean)
        place = np.arange(len(part)) + 0.4 * i - 0.2
        middle.bar(place, mean, 0.38, yerr=bars, color=COLOURS[i], capsize=3, zorder=2)
    middle.set_xticks(range(len(ORDERS)), ["in order", "shuffled", "shuffled at\ntest only"])
    middle.set_ylim(0, 100)
    middle.set_title("test accuracy in %, order of the patches", fontsize=10)
    right.set_yscale("log")
    for i, ((table, how), part) in enumerate(shifts.groupby(["table", "map"], sort=False)):
        right.plot(part["shift"], part["error"], "^D"[i], ls="-", ms=4, color=COLOURS[2 + i],
                   label=f"{table} table, {how}")  # fmt: skip
    right.set_xlabel("shift k")
    right.set_title("error of p(pos + k) made from p(pos)", fontsize=10)
    fig.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return fig
