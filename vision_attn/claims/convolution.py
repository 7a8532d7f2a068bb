"""Claim: a convolution is an attention layer, with an error of exp(-alpha) (Cordonnier 2020)."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from vision_attn.claims.common import COLOURS, Claim, Settings, Summary, figure, span
from vision_attn.claims.models import Models
from vision_attn.layers.conv import AttentionConv2d
from vision_attn.stats.intervals import slope

__all__ = ["measure_conv"]

KINDS: tuple[dict[str, Any], ...] = (
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 1, "padding_mode": "replicate"},
    {"kernel_size": 3, "padding": 1, "stride": 2},
    {"kernel_size": 3, "padding": 2, "dilation": 2},
    {"kernel_size": 5, "padding": 2},
)
ROUNDING = 1e-13  # under it the error is that of float64, not of the softmax


def measure_conv(models: Models, settings: Settings) -> Claim:
    """`AttentionConv2d.from_conv` against its convolution in float64, over alpha."""
    x = models.images()[:16].double().cpu()
    rows = []
    for draw in range(settings.convs):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draw)
            conv = nn.Conv2d(x.shape[1], 8, **KINDS[draw % len(KINDS)], dtype=torch.float64)
        with torch.no_grad():
            want = conv(x)
            for alpha in settings.alphas:
                layer = AttentionConv2d.from_conv(conv, alpha=alpha)
                error = float((layer(x) - want).abs().max())
                bound = float(layer.error_bound(x))
                rows.append({"alpha": alpha, "draw": draw, "error": error, "bound": bound})
    raw = pd.DataFrame(rows)
    table = Summary("largest error and its bound", raw, ("alpha",), ("error", "bound"))
    far = raw[(raw["alpha"] >= 4) & (raw["error"] > ROUNDING)]
    numbers: dict[str, Any] = {"all errors under their bound": bool((raw.error <= raw.bound).all())}
    answers = [
        f"Every error of {settings.convs} random convolutions lies"
        f" {'under' if numbers['all errors under their bound'] else 'NOT under'} the layer's own"
        f" bound, at each alpha from {min(settings.alphas):g} to {max(settings.alphas):g}."
    ]
    if far["alpha"].nunique() > 2:
        rate = slope(far["alpha"], np.log(far["error"]))
        numbers["slope of log error over alpha"] = rate
        answers.append(
            f"From alpha 4 to {far['alpha'].max():g} the error goes as exp(s alpha) with"
            f" s = {span(rate, 3)}; exp(-alpha) has s = -1."
        )
    parts = [
        f"{raw[raw['alpha'] == a]['error'].max():.1e} at alpha {a:g}"
        for a in settings.alphas if a in (4, 20, 46)
    ]  # fmt: skip
    if parts:
        answers.append(f"The largest error is {', '.join(parts)}.")
    question = "Does attention by position compute a convolution, and how fast does its error fall?"
    return Claim(
        "convolution", question, answers, numbers, {"error": table}, _plot(table.table(), raw)
    )


def _plot(table: pd.DataFrame, raw: pd.DataFrame) -> Any:
    fig, (a,) = figure(1)
    a.set_yscale("log")
    for i, name in enumerate(("error", "bound")):
        low, high = (getattr(raw.groupby("alpha")[name], m)() for m in ("min", "max"))
        a.fill_between(low.index, low, high, color=COLOURS[i], alpha=0.2, lw=0)
        a.plot(table["alpha"], table[f"{name}_mean"], color=COLOURS[i], marker="os"[i], ms=4,
               label=name)  # fmt: skip
    a.set_xlabel("alpha")
    a.set_title("from_conv in float64: mean and range", fontsize=10)
    a.legend(frameon=False, fontsize=8)
    return fig
