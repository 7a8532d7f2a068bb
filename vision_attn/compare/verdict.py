"""The study's answer in three sentences, made from its numbers; the words follow the intervals."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from vision_attn.compare.curves import differences, error_ratio, interval, select
from vision_attn.compare.laws import crossing, data_multiplier
from vision_attn.compare.styles import number

__all__ = [
    "better",
    "growth",
    "images",
    "overfitting",
    "verdict",
]

_BUDGET = {"steps": "With equal updates", "epochs": "With equal epochs"}


def verdict(
    results: pd.DataFrame,
    first: str,
    second: str,
    *,
    protocol: str = "steps",
    control: str = "none",
) -> list[str]:
    """Three sentences: who is better, who overfits, whether the difference shrinks as images grow.

    `first` and `second` are names of models; differences are paired by draw. Where an interval
    contains 0 the two are not told apart, and where there is one draw there is no interval.
    """
    where: Any = {"protocol": protocol, "control": control}
    accuracy = differences(results, first, second, "test_acc", **where)
    if accuracy.empty:
        nothing = f"{first} and {second} have no draw of the same size in common"
        return [f"{nothing}, so there is nothing to compare."]
    gap = differences(results, second, first, "gap", **where)
    at = [int(s) for s in accuracy["size"]]
    pairs = _pairs(results, first, second, at[0], at[-1], where)
    return [
        f"{_BUDGET[protocol]}, {better(accuracy, first, second)}",
        overfitting(gap, first, second),
        growth(
            accuracy,
            error_ratio(results, first, second, **where),
            pairs,
            data_multiplier(results, first, second, **where),
            crossing(results, first, second, **where).text,
            first,
            second,
        ),
    ]


def better(table: pd.DataFrame, first: str, second: str) -> str:
    """Who has the higher test accuracy, by how many points, at which sizes."""
    parts = []
    for kind, rows in _kinds(table).items():
        sizes = images(rows["size"], of=table["size"])
        if kind in ("first", "second"):
            ahead, behind = (first, second) if kind == "first" else (second, first)
            by = _ends(rows, 1 if kind == "first" else -1, _by)
            parts.append(f"{ahead} is better than {behind} at {sizes}: by {by}")
        elif kind == "open":
            by = _ends(rows, 1, lambda *r: f"{_with(*r)}")
            parts.append(f"the two are not told apart at {sizes} ({first} - {second} is {by})")
        else:
            by = _ends(rows, 1, lambda *r: _points(r[0]))
            parts.append(
                f"at {sizes} there is one draw and so no interval ({first} - {second} is {by})"
            )
    return "; ".join(parts) + "."


def overfitting(table: pd.DataFrame, first: str, second: str) -> str:
    """Whose gap is larger, at sizes where all runs of both fitted.

    `table` holds `second - first` of the gap.
    """
    fitted = table[table["fitted"].astype(float) == 1]
    rest = table[table["fitted"].astype(float) < 1]
    if fitted.empty:
        return (
            "Whether one of them overfits more is not answered, since not both fitted: at no size"
            " did every run of both reach a train accuracy of 99 %."
        )
    parts = []
    for kind, rows in _kinds(fitted).items():
        sizes = images(rows["size"])
        if kind in ("first", "second"):
            more = second if kind == "first" else first
            by = _ends(rows, 1 if kind == "first" else -1, _by)
            parts.append(f"{more} overfits more at {sizes}, with a gap that is larger by {by}")
        elif kind == "open":
            by = _ends(rows, 1, lambda *r: _with(*r))
            parts.append(f"gaps are not told apart at {sizes} ({second} - {first} is {by})")
        else:
            by = _ends(rows, 1, lambda *r: _points(r[0]))
            parts.append(f"at {sizes} one draw gives no interval ({second} - {first} is {by})")
    text = "Where both fitted, " + "; ".join(parts)
    return text + (f"; at {images(rest['size'])} not both did." if len(rest) else ".")


def growth(
    accuracy: pd.DataFrame,
    ratio: pd.DataFrame,
    pairs: pd.DataFrame,
    multiplier: pd.DataFrame,
    meeting: str,
    first: str,
    second: str,
) -> str:
    """Whether the difference shrinks from the smallest size to the largest.

    In points, in the ratio of errors, as the multiple of images, and where the curves meet.

    Args:
        accuracy: `differences` of the test accuracy.
        ratio: `error_ratio`.
        pairs: columns points and log_ratio, their change, a row a draw that has both sizes.
        multiplier: `data_multiplier`.
        meeting: what `crossing` says.
        first, second: the two models.
    """
    if len(accuracy) < 2:
        return "Whether the difference shrinks as images grow is not answered by one size."
    n0, n1 = (f"{int(accuracy['size'].iloc[i]):,}" for i in (0, -1))
    side = 1.0 if accuracy["mean"].mean() >= 0 else -1.0
    d0, d1 = accuracy["mean"].iloc[0], accuracy["mean"].iloc[-1]
    text = (
        f"From {n0} to {n1} images the difference {first} - {second}"
        f" {_change(pairs['points'], side)} in points, from {100 * d0:.1f} to {100 * d1:.1f}"
        f"{_interval(pairs['points'], lambda v: f'{100 * v:+.1f}')}"
    )
    ends = ratio["ratio"].iloc[[0, -1]] if len(ratio) else pd.Series([np.nan])
    if ends.notna().all():
        text += (
            f", and as a ratio of errors, {second} / {first}, it"
            f" {_change(pairs['log_ratio'], side)}, from {ends.iloc[0]:.2f} to {ends.iloc[1]:.2f}"
            f"{_interval(pairs['log_ratio'], lambda v: f'× {np.exp(v):.2f}')}"
        )
    if len(multiplier):
        exact = multiplier[multiplier["multiplier"].notna()]
        last = (exact if len(exact) else multiplier).iloc[-1]
        text += (
            f"; for the error that {first} has at {int(last['n']):,} images {second} needs"
            f" {_times(last)} the images"
        )
    text += f"; crossing of the curves: {meeting}"
    unfitted = accuracy[accuracy["fitted"] < 1]
    if len(unfitted):
        at = images(unfitted["size"])
        text += f"; at {at} not all runs fitted, so undertraining can be a part of it"
    return text + "."


def images(sizes: Iterable[int], *, of: Iterable[int] = ()) -> str:
    """Sizes as words; `all 6 sizes from 250 to 10,000 images` where they are all of `of`."""
    every, total = [int(s) for s in sizes], len(list(of))
    if len(every) == total > 2:
        return f"all {total} sizes from {every[0]:,} to {every[-1]:,} images"
    words = [f"{s:,}" for s in every]
    return " and ".join([", ".join(words[:-1]), words[-1]][len(words) < 2 :]) + " images"


def _kinds(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by what their interval says: above 0, below 0, around 0, or no interval."""
    single = table["low"].isna()
    parts = {
        "first": table["low"] > 0,
        "second": table["high"] < 0,
        "open": (table["low"] <= 0) & (table["high"] >= 0),
        "single": single,
    }
    return {kind: table[mask] for kind, mask in parts.items() if mask.any()}


def _ends(rows: pd.DataFrame, sign: int, say: Callable[..., str]) -> str:
    """The numbers at the first and the last of some sizes."""
    said = []
    for i in dict.fromkeys((0, len(rows) - 1)):
        row = rows.iloc[i]
        low, high = (row["low"], row["high"]) if sign > 0 else (-row["high"], -row["low"])
        text = say(sign * row["mean"], low, high, int(row["count"]))
        said.append(f"{text} at {int(row['size']):,}" if len(rows) > 1 else text)
    return " and ".join(said)


def _points(value: float) -> str:
    return f"{number(100 * value, '.1f')} points"


def _by(mean: float, low: float, high: float, count: int) -> str:
    return f"{_points(mean)} (95 % interval {_range(low, high)}, {count} draws)"


def _with(mean: float, low: float, high: float, count: int) -> str:
    return f"{_points(mean)}, {_range(low, high)}, {count} draws"


def _range(low: float, high: float) -> str:
    return " to ".join(number(100 * v, ".1f") for v in (low, high))


def _change(values: pd.Series, side: float) -> str:
    """What the change of a difference says, where `side` is the sign of the difference."""
    values = values.dropna()
    if len(values) < 2:
        return "goes"  # without an interval nothing is claimed
    _, low, high, _ = interval(values)
    low, high = sorted((side * low, side * high))
    if low > 0:
        return "grows"
    return "shrinks" if high < 0 else "does not change beyond chance"


def _interval(values: pd.Series, show: Callable[[float], str]) -> str:
    values = values.dropna()
    if len(values) < 2:
        return " (no two draws have both sizes, so no interval)"
    mean, low, high, _ = interval(values)
    return f" (change {show(mean)}, 95 % interval {show(low)} to {show(high)}, {len(values)} draws)"


def _times(row: pd.Series) -> str:
    if row["bound"]:
        word = "more" if row["bound"].startswith(">") else "less"
        return f"{word} than {row['limit']:.2g} times"
    text = f"{row['multiplier']:.2g} times"
    if np.isnan(row["low"]):
        return text
    if row["low"] == 0 and np.isinf(row["high"]):
        return f"{text} (not bounded by these draws)"
    top = f"to {row['high']:.2g}" if np.isfinite(row["high"]) else "to beyond the data"
    return f"{text} ({row['low']:.2g} {top})"


def _pairs(
    results: pd.DataFrame, first: str, second: str, small: int, large: int, where: dict[str, str]
) -> pd.DataFrame:
    """The change between two sizes in each draw, of (draw, seed) that both models have at both."""
    good = select(results, **where)
    good = good[good["model"].isin((first, second)) & good["size"].isin((small, large))]
    accuracy = good.astype({"test_acc": float}).pivot_table(
        index=["draw", "seed"], columns=["model", "size"], values="test_acc"
    )
    error = 1 - accuracy.dropna()
    logs = np.log(error.where(error > 0))

    def change(table: Any) -> Any:
        by_size = table[second] - table[first]
        return by_size[large] - by_size[small]

    changes = {"points": change(error), "log_ratio": change(logs)}
    return pd.DataFrame(changes).groupby("draw").mean()
