"""What else the numbers say: the controls, the protocol, and where two curves cross."""

import numpy as np
import pandas as pd

from vision_attn.report.analysis import CONTROLS, PROTOCOLS, Analysis, Comparison
from vision_attn.report.numbers import points
from vision_attn.stats.multiplier import Crossing

__all__ = ["about_controls", "about_split", "meeting", "remarks"]


def remarks(analysis: Analysis) -> list[str]:
    """What the controls show, and what the protocol does."""
    sentences = about_controls(analysis.summary)
    comparison = analysis.comparison
    if comparison and len(comparison.split):
        sentences.append(about_split(comparison))
    return sentences


def about_split(comparison: Comparison) -> str:
    """How much of the difference under equal epochs is undertraining, at the ends of the curves."""
    parts, table = [], comparison.split
    for i in dict.fromkeys((0, len(table) - 1)):
        r = table.iloc[i]
        parts.append(
            f"at {int(r['size']):,} images {points(r['total'])}, of which"
            f" {points(r['undertraining'])} come from undertraining and"
            f" {points(r['generalisation'])} remain under equal updates"
        )
    difference = f"{comparison.first} - {comparison.second}"
    return (
        f"Under equal epochs the difference in test accuracy, {difference}, is {'; '.join(parts)}."
    )


def about_controls(summary: pd.DataFrame) -> list[str]:
    """What the controls show at the largest size of each model, test accuracy against without."""
    sentences = []
    for control, words in CONTROLS.items():
        if control == "none":
            continue
        parts = []
        for (model, protocol), rows in summary.groupby(["model", "protocol"], sort=True):
            at = rows[rows["control"] == control]
            if at.empty:
                continue
            last = at.iloc[-1]
            plain = rows[(rows["control"] == "none") & (rows["size"] == last["size"])]
            text = f"{model} reaches {100 * last['test_acc_mean']:.1f} % on test images"
            text += f" at {int(last['size']):,}"
            text += f", {PROTOCOLS['epochs']}" if protocol == "epochs" else ""
            if len(plain):
                text += f" ({100 * plain['test_acc_mean'].iloc[0]:.1f} % on {CONTROLS['none']})"
            parts.append(text)
        if parts:
            sentences.append(f"With {words} {'; '.join(parts)}.")
    return sentences


def meeting(crossing: Crossing) -> str:
    """Where two curves cross, or why that cannot be read."""
    c = crossing
    if len(c.sizes) < 2:
        return (
            f"no crossing can be read: {c.leader} and {c.chaser} share {len(c.sizes)} sizes,"
            " it takes 2"
        )
    if np.isnan(c.median):
        return (
            f"no crossing can be read: a run of {c.leader} or {c.chaser} has no error,"
            " so no logarithm"
        )
    first, last = (f"{c.sizes[i]:,.0f}" for i in (0, -1))
    never = f"none up to {last}"
    if c.median == np.inf:
        text = f"{never}: {c.leader} is ahead"
    elif c.median == 0:
        text = f"{c.chaser} is ahead of {c.leader} from {first} on"
    else:
        text = f"{c.chaser} overtakes {c.leader} at {c.median:,.0f}"
    if c.count < 2:
        return f"{text} (1 draw: no interval)"
    if c.low == np.inf:
        return f"{text} ({100 * c.share_none:.0f} % of resamples)"
    if c.low == 0 and c.high == np.inf:
        return f"{text} (not bounded by these draws)"
    low, high = (
        never if end == np.inf else f"{end:,.0f}" if end else f"under {first}"
        for end in (c.low, c.high)
    )
    return f"{text} ({low} to {high}; none in {100 * c.share_none:.0f} % of resamples)"
