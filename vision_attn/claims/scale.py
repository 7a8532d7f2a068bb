"""Claim: the variance of q.k grows as K, and without 1/sqrt(K) softmax saturates (Vaswani 2017)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vision_attn.claims.common import COLOURS, Claim, Settings, Summary, error_bars, figure, span
from vision_attn.claims.models import WIDTH, Key, Models
from vision_attn.explain.observe import Heads, observe
from vision_attn.stats.intervals import interval, slope

__all__ = ["gain_words", "measure_scale", "score_measures", "softmax_gradient"]

SCALES: dict[str, float | None] = {"1/sqrt(K)": None, "1": 1.0}
VALUES = ("variance", "saturated", "gradient")
SATURATED = 0.99
TOKENS, SAMPLES = 64, 16  # of independent inputs


def softmax_gradient(weights: Tensor) -> Tensor:
    """Norm of the softmax's Jacobian `diag(w) - w w^T` (Frobenius): rows (..., N) -> (...).

    `|J|^2 = sum w^2 - 2 sum w^3 + (sum w^2)^2`; 0 where one weight is 1.
    """
    square = weights.square().sum(-1)
    return (square - 2 * weights.pow(3).sum(-1) + square.square()).clamp_min(0).sqrt()


def score_measures(q: Tensor, k: Tensor, scale: float) -> dict[str, float]:
    """Of scores scale * q.k, (B, H, N, K) twice: their variance, the share of softmax rows whose
    largest weight exceeds 0.99, and the mean norm of the gradient through the softmax.

    The variance is over all pairs of an image and all images, then the mean over heads.
    """
    s = scale * q.cpu().double() @ k.cpu().double().mT  # not every device has float64
    w = s.softmax(-1)
    return {
        "variance": float(s.transpose(0, 1).flatten(1).var(-1).mean()),
        "saturated": float((w.amax(-1) > SATURATED).double().mean()),
        "gradient": float(softmax_gradient(w).mean()),
    }


def measure_scale(models: Models, settings: Settings) -> Claim:
    """Independent inputs, models at the start, and models after training with either scale."""
    rows: list[dict[str, Any]] = []
    for width in settings.widths:
        for draw in range(settings.draws):
            generator = torch.Generator().manual_seed(1000 * width + draw)
            shape = (2, SAMPLES, 1, TOKENS, width)
            q, k = torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, scale in SCALES.items():
                measures = score_measures(q, k, width**-0.5 if scale is None else scale)
                rows.append({"inputs": "independent", "scale": name, "K": width, **measures})
    images = models.images()
    for heads in sorted(settings.heads, reverse=True):
        for seed in range(settings.seeds):
            for name, scale in SCALES.items():
                key = Key(heads=heads, scale=scale, seed=seed)
                trained, accuracy = models.trained(key)
                for inputs, model in (("start", models.start(key)), ("trained", trained)):
                    measures = _of_model(model, images)
                    right = accuracy if inputs == "trained" else np.nan
                    here = {"inputs": inputs, "scale": name, "K": WIDTH // heads, "seed": seed}
                    rows.append({**here, **measures, "accuracy": right})
    raw = pd.DataFrame(rows)
    raw = raw.sort_values(["inputs", "scale", "K"], kind="stable", ignore_index=True)
    scores = Summary("scores by head width K", raw, ("inputs", "scale", "K"), VALUES)
    last = raw[raw["inputs"] == "trained"]
    accuracies = Summary("test accuracy after training", last, ("scale", "K"), ("accuracy",))
    answers, numbers = _words(raw, settings)
    tables = {"scores": scores, "accuracy": accuracies}
    question = "Is the variance of q.k equal to K, and does softmax saturate without 1/sqrt(K)?"
    return Claim("scale", question, answers, numbers, tables, _plot(scores.table()))


def _of_model(model: torch.nn.Module, images: Tensor) -> dict[str, float]:
    """Means over the layers of a model."""
    layers: list[dict[str, float]] = []

    def see(heads: Heads) -> None:
        layers.append(score_measures(heads.q, heads.k, heads.scale))

    with torch.no_grad():
        observe(model, images, see)
    return {name: float(np.mean([layer[name] for layer in layers])) for name in VALUES}


def _words(raw: pd.DataFrame, settings: Settings) -> tuple[list[str], dict[str, Any]]:
    answers, numbers = [], {}
    names = {
        "independent": "Independent inputs of variance 1",
        "start": "Models at the start",
        "trained": "Trained models",
    }
    for inputs, text in names.items():
        parts = []
        for scale in SCALES:
            part = raw[(raw["inputs"] == inputs) & (raw["scale"] == scale)]
            if part["K"].nunique() < 2:
                continue
            power = slope(np.log(part["K"]), np.log(part["variance"]))
            wide = part[part["K"] == part["K"].max()]
            numbers[f"{inputs}, scale {scale}: exponent of K in the variance"] = power
            parts.append(
                f"with scale {scale} the variance of the scores goes as K^{span(power)}; at"
                f" K = {wide['K'].iloc[0]} it is {wide['variance'].mean():.3g},"
                f" {100 * wide['saturated'].mean():.1f} % of rows have a weight over {SATURATED}"
                f" and the gradient's norm is {wide['gradient'].mean():.3f}"
            )
        if parts:
            answers.append(f"{text}: {'; '.join(parts)}.")
    answers.append(_independent_words(raw, numbers))
    last = raw[raw["inputs"] == "trained"].pivot_table(index=["K", "seed"], columns="scale",
                                                       values="accuracy")  # fmt: skip
    if len(last):
        per_seed = (last["1/sqrt(K)"] - last["1"]).groupby("seed").mean()
        gain = interval(100 * per_seed)[:3]
        numbers["accuracy with 1/sqrt(K) minus without, points"] = gain
        answers.append(
            f"At this size and after {settings.steps} updates, training with 1/sqrt(K)"
            f" {gain_words(gain)}: {span(gain, 1)} points of test accuracy."
        )
    return answers, numbers


def gain_words(gain: Sequence[float]) -> str:
    """What the interval of (accuracy with - without) says."""
    _, low, high = gain
    if low > 0:
        return "is better"
    return "is worse" if high < 0 else "makes no difference that can be shown"


def _independent_words(raw: pd.DataFrame, numbers: dict[str, Any]) -> str:
    """Whether independent inputs behave as the text says; the fall of the gradient in numbers."""
    power = {s: numbers[f"independent, scale {s}: exponent of K in the variance"] for s in SCALES}
    grows = abs(power["1"][0] - 1) < 0.1 and abs(power["1/sqrt(K)"][0]) < 0.1
    bare = raw[(raw["inputs"] == "independent") & (raw["scale"] == "1")].groupby("K")[list(VALUES)]
    narrow, wide = bare.mean().iloc[0], bare.mean().iloc[-1]
    numbers["independent, scale 1: gradient at the largest K over that at the smallest"] = float(
        wide["gradient"] / narrow["gradient"]
    )
    saturates = wide["saturated"] > narrow["saturated"] and wide["gradient"] < narrow["gradient"]
    small, large = bare.mean().index[[0, -1]]
    return (
        f"So for independent inputs the variance {'is' if grows else 'is NOT'} as claimed (K"
        " without the scale, 1 with it), and without it softmax"
        f" {'does' if saturates else 'does NOT'} saturate as K grows from {small} to {large}: rows"
        f" with a weight over {SATURATED} go from {100 * narrow['saturated']:.1f} to"
        f" {100 * wide['saturated']:.1f} %, the gradient's norm from {narrow['gradient']:.3f} to"
        f" {wide['gradient']:.3f}."
    )


def _plot(table: pd.DataFrame) -> Any:
    fig, axes = figure(3)
    titles = (
        "variance of the scores",
        f"share of rows with a weight over {SATURATED}",
        "norm of the gradient through softmax",
    )
    marks = {"independent": "o", "start": "s", "trained": "^"}
    for a, name, title in zip(axes, VALUES, titles, strict=True):
        a.set_xscale("log", base=2)
        if name == "variance":
            a.set_yscale("log")
        for (inputs, scale), part in table.groupby(["inputs", "scale"], sort=False):
            bare = scale == "1"
            colour = COLOURS[list(marks).index(str(inputs))]
            error_bars(
                a,
                part,
                "K",
                name,
                colour,
                f"{inputs}, scale {scale}",
                ls="--" if bare else "-",
                marker=marks[str(inputs)],
                ms=4,
                mfc="white" if bare else colour,
            )
        a.set_title(title, fontsize=10)
        a.set_xlabel("head width K")
        widths = sorted(table["K"].unique())
        a.set_xticks(widths, [str(w) for w in widths])
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return fig
