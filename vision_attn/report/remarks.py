"""Sentences beside the verdict: one model alone, what the protocol does, what controls show."""

import pandas as pd

from vision_attn.report.words import points

__all__ = ["about_controls", "about_one", "about_split"]


def about_one(summary: pd.DataFrame) -> list[str]:
    """What can be said of a study with one model."""
    model, first, last = summary["model"].iloc[0], summary.iloc[0], summary.iloc[-1]
    text = (
        f"The study holds one model, {model}, so there is nothing to compare: its test accuracy is"
        f" {100 * first['test_acc_mean']:.1f} % at {first['size']:,} images"
    )
    if len(summary) > 1:
        text += f" and {100 * last['test_acc_mean']:.1f} % at {last['size']:,}"
    return [f"{text}."]


def about_split(table: pd.DataFrame, first: str, second: str) -> str:
    """How much of the difference under equal epochs is undertraining, at the smallest size."""
    parts = []
    for i in dict.fromkeys((0, len(table) - 1)):
        r = table.iloc[i]
        parts.append(
            f"at {int(r['size']):,} images {points(r['total'])}, of which"
            f" {points(r['undertraining'])} come from undertraining and"
            f" {points(r['generalisation'])} are left under equal updates"
        )
    return f"Under equal epochs {first} - {second} is " + "; ".join(parts) + "."


def about_controls(summary: pd.DataFrame) -> list[str]:
    """What the controls show at the largest size of each model, test accuracy against without."""
    names = {"permuted": "With pixels permuted", "shuffled": "With labels shuffled"}
    said = []
    for control, words in names.items():
        parts = []
        for (model, protocol), rows in summary.groupby(["model", "protocol"], sort=True):
            at = rows[rows["control"] == control]
            if at.empty:
                continue
            last = at.iloc[-1]
            plain = rows[(rows["control"] == "none") & (rows["size"] == last["size"])]
            text = f"{model} reaches {100 * last['test_acc_mean']:.1f} % on test images"
            text += f" at {int(last['size']):,}"
            text += ", equal epochs" if protocol == "epochs" else ""
            if len(plain):
                text += f" ({100 * plain['test_acc_mean'].iloc[0]:.1f} % without)"
            parts.append(text)
        if parts:
            said.append(f"{words} " + "; ".join(parts) + ".")
    return said
