"""Claim: attention puts a large weight on the token itself, and several heads spread it."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from vision_attn.claims.common import COLOURS, Claim, Settings, Summary, error_bars, figure, span
from vision_attn.claims.models import Key, Models
from vision_attn.explain.measures import attention_measures
from vision_attn.stats.intervals import interval

__all__ = ["measure_self", "spread_words"]


def measure_self(sources: Sequence[Models], settings: Settings) -> Claim:
    """The mean of w_ii by head count at equal width, at the start and after training."""
    rows: list[dict[str, Any]] = []
    for models in sources:
        images = models.images()
        for heads in settings.heads:
            for seed in range(settings.seeds):
                key = Key(heads=heads, seed=seed)
                trained, accuracy = models.trained(key)
                for when, model in (("start", models.start(key)), ("trained", trained)):
                    table = attention_measures(model, images)
                    for layer, part in table.groupby("layer"):
                        rows.append(
                            {
                                "data": models.source.label,
                                "when": when,
                                "heads": heads,
                                "seed": seed,
                                "layer": layer,
                                "self_weight": part["self_weight"].mean(),
                                "times_even": part["self_weight"].mean() * models.tokens,
                                "largest": part["largest"].mean(),
                                "accuracy": accuracy if when == "trained" else float("nan"),
                            }
                        )
    by_layer = pd.DataFrame(rows)
    by = ["data", "when", "heads", "seed"]
    whole = by_layer.groupby(by, sort=False).mean(numeric_only=True).reset_index()
    values = ("self_weight", "times_even", "largest")
    tables = {
        "heads": Summary("weight on the token itself", whole, ("data", "when", "heads"), values),
        "layers": Summary(
            "by layer", by_layer, ("data", "when", "heads", "layer"), ("self_weight",)
        ),
    }
    answers, numbers = _words(whole, {m.source.label: m.tokens for m in sources}, settings)
    question = "Is the weight on the token itself large, and do several heads spread it?"
    plot = _plot(tables["heads"].table(), {m.source.label: m.tokens for m in sources})
    return Claim("self_weight", question, answers, numbers, tables, plot)


def spread_words(change: Sequence[float]) -> str:
    """What the interval of (many heads - one head) says of `several heads spread it`."""
    _, low, high = change
    if high < 0:
        return "more heads do spread it"
    if low > 0:
        return "more heads do not spread it, they put more weight on the token itself"
    return "no effect of the head count can be shown"


def _words(
    whole: pd.DataFrame, tokens: dict[str, int], settings: Settings
) -> tuple[list[str], dict[str, Any]]:
    answers, numbers = [], {}
    few, many = min(settings.heads), max(settings.heads)
    texts = {"start": "at the start", "trained": f"after {settings.steps} updates"}
    for data, n in tokens.items():
        for when, text in texts.items():
            part = whole[(whole["data"] == data) & (whole["when"] == when)]
            wide = part.pivot(index="seed", columns="heads", values="self_weight")
            even = interval(n * wide.mean(axis=1))[:3]
            change = interval(wide[many] - wide[few])[:3]
            numbers[f"{data}, {when}: mean w_ii over 1/N"] = even
            numbers[f"{data}, {when}: w_ii with {many} heads minus with {few}"] = change
            size = (
                "more than an even share" if even[1] > 1
                else "less than an even share" if even[2] < 1
                else "no more than an even share, as far as these repeats show"
            )  # fmt: skip
            spread = spread_words(change)
            if even[1] <= 1 and change[2] < 0:
                spread += ", though there is no more than an even share to spread"
            answers.append(
                f"{data}, {text}: a token's weight on itself is {size}, {span(even)} times 1/N"
                f" (N = {n}), over all head counts. With {many} heads it is"
                f" {wide[many].mean():.4f}, with {few} {wide[few].mean():.4f},"
                f" a change of {span(change, 4)}: {spread}."
            )
    return answers, numbers


def _plot(table: pd.DataFrame, tokens: dict[str, int]) -> Any:
    fig, axes = figure(len(tokens))
    for a, (data, n) in zip(axes, tokens.items(), strict=True):
        a.set_xscale("log", base=2)
        for i, when in enumerate(("start", "trained")):
            part = table[(table["data"] == data) & (table["when"] == when)]
            error_bars(a, part, "heads", "self_weight", COLOURS[i], when, marker="os"[i], ms=5)
        a.axhline(1 / n, color="0.5", ls=":", label="even share 1/N")
        a.set_ylim(bottom=0)
        heads = sorted(table["heads"].unique())
        a.set_xticks(heads, [str(h) for h in heads])
        a.set_xlabel("heads, at equal width")
        a.set_ylabel("mean weight on the token itself")
        a.set_title(f"{data}, {n} tokens", fontsize=10)
        a.legend(frameon=False, fontsize=8)
    return fig
