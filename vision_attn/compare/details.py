"""Further tables of the page: differences, laws, protocols, matching, tuning."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from vision_attn.compare.styles import number
from vision_attn.compare.tables import Block, value
from vision_attn.compare.words import unbounded
from vision_attn.stats.paired import differences, error_ratio
from vision_attn.stats.power_law import PowerLaw

__all__ = ["distances", "laws", "matching", "pairs", "split", "tuning"]


def pairs(runs: pd.DataFrame, first: str, second: str, multiplier: pd.DataFrame) -> Block:
    """Two models at each size: difference in points, ratio of errors, multiple of images."""
    table: Any = differences(runs, first, second).set_index("size")
    gap: Any = differences(runs, second, first, "gap").set_index("size")
    ratio: Any = error_ratio(runs, first, second).set_index("size")
    times: Any = multiplier.set_index("n")
    rows = []
    for size in table.index:
        row = table.loc[size]
        rows.append(
            [
                f"{size:,}",
                str(int(row["count"])),
                _span(row, "mean", 100, ".1f"),
                _span(gap.loc[size], "mean", 100, ".1f"),
                _span(ratio.loc[size], "ratio", 1, ".2f") if size in ratio.index else "",
                _times(times.loc[size]) if size in times.index else "",
                "yes" if row["fitted"] == 1 else f"{100 * row['fitted']:.0f} % of runs",
            ]
        )
    header = [
        "images",
        "draws",
        f"{first} - {second}, points",
        f"gap of {second} - {first}, points",
        f"error {second} / {first}",
        f"images {second} / {first}",
        "both fitted",
    ]
    return Block(f"{first} and {second}, paired by draw (95 % intervals)", header, rows)


def distances(runs: pd.DataFrame, first: str, models: Sequence[str]) -> Block:
    """Every other model's difference to the first in points of test accuracy."""
    others = [m for m in models if m != first]
    tables: dict[str, Any] = {m: differences(runs, first, m).set_index("size") for m in others}
    sizes = sorted({int(s) for t in tables.values() for s in t.index})
    rows = [
        [f"{n:,}", *(value(t.loc[n]) if n in t.index else "" for t in tables.values())]
        for n in sizes
    ]
    return Block(f"{first} minus each other model, points", ["images", *others], rows)


def split(table: pd.DataFrame, first: str, second: str) -> Block:
    """`first - second` under equal epochs as the sum of its two parts."""
    parts = ("total", "undertraining", "generalisation")
    rows = [
        [f"{r['size']:,}", str(r["count"]), *(_span(r, p, 100, ".1f", p) for p in parts)]
        for r in table.to_dict("records")
    ]
    title = f"{first} minus {second} under equal epochs, and its two parts, points"
    header = ["images", "draws", "equal epochs", "from undertraining", "from generalisation"]
    return Block(title, header, rows)


def laws(found: Mapping[str, PowerLaw], refused: Mapping[str, str]) -> list[Block]:
    """The fitted laws with their intervals, and each forecast beside what came."""
    fits, misses = [], []
    for model, law in found.items():
        span = f"{law.sizes[0]:,} to {law.sizes[-1]:,}"
        exponent = f"{law.b:.3f} ({law.b_low:.3f} to {law.b_high:.3f})"
        fits.append([model, f"{law.a:.3g}", exponent, f"{100 * law.c:.1f}", span, str(law.draws)])
        for f in law.forecast:
            said = f"{100 * f.predicted:.1f} ({100 * f.low:.1f} to {100 * f.high:.1f})"
            misses.append(
                [model, f"{f.size:,}", said, f"{100 * f.observed:.1f}", f"{100 * f.miss:+.1f}"]
            )
    blocks = []
    if fits:
        title = "Laws: error = a n^-b + c, with the 95 % interval of b"
        blocks.append(
            Block(title, ["model", "a", "b", "c in %", "fitted on images", "draws"], fits)
        )
        title = "Forecasts at sizes the laws were not fitted to: test error in %, miss in points"
        blocks.append(Block(title, ["model", "images", "forecast", "measured", "miss"], misses))
    if refused:
        rows = [[model, reason] for model, reason in refused.items()]
        blocks.append(Block("No law", ["model", "reason"], rows))
    return blocks


def matching(results: pd.DataFrame, studies: Mapping[str, Mapping[str, Any]]) -> Block:
    """Parameters and FLOPs of every model, and what of it was matched."""
    costs: dict[str, Any] = {}
    for study in studies.values():
        costs |= study.get("costs", {})
    kept = [c for c in ("params", "flops", "matched") if c in results]
    seen = results.groupby("model")[kept].first()
    rows = []
    for model in sorted(seen.index):
        held = costs.get(model, {})
        params, flops = (float(held.get(k, seen.loc[model, k])) for k in ("params", "flops"))
        matched = str(held.get("matched") or seen.loc[model].get("matched") or "not stored")
        rows.append([model, f"{params:,.0f}", f"{flops / 1e6:,.2f} M", matched])
    return Block("Matching", ["model", "parameters", "FLOPs an image", "matched to"], rows)


def tuning(tries: pd.DataFrame) -> Block:
    """The winner of each group of tries, and how many it won against."""
    group = [c for c in ("model", "size", "steps", "control") if c in tries]
    counts = tries.groupby(group).size()
    chosen = tries[tries["chosen"].astype(str).str.lower().isin(("true", "1", "1.0"))]
    hidden = {*group, "try", "chosen", "status", "val_acc", "val_loss"}
    free = [str(c) for c in tries if c not in hidden]

    def text(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.3g}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    rows = [
        [
            *(text(r[c]) for c in group),
            text(int(counts.loc[tuple(r[c] for c in group)])),
            *(text(r[c]) for c in free),
            f"{100 * r['val_acc']:.1f}",
        ]
        for r in chosen.to_dict("records")
    ]
    names = ["images" if c == "size" else c for c in group]
    header = [*names, "tries", *free, "validation accuracy in %"]
    return Block("Tuning: what validation chose", header, rows)


def _span(row: Any, name: str, scale: float, form: str, prefix: str = "") -> str:
    """A value with its interval, where there is one."""
    low, high = (row[f"{prefix}_{end}" if prefix else end] for end in ("low", "high"))
    if pd.isna(row[name]):
        return ""
    text, *ends = (number(scale * v, form) for v in (row[name], low, high))
    return text if pd.isna(low) else f"{text} ({ends[0]} to {ends[1]})"


def _times(row: Any) -> str:
    if row["bound"]:
        return str(row["bound"])
    text = f"{row['multiplier']:.2f}"
    if unbounded(row):
        return f"{text} (not bounded)"
    return text if pd.isna(row["low"]) else f"{text} ({row['low']:.2f} to {row['high']:.2f})"
