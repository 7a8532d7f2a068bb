"""Figures of overfitting against the size of the training set: in accuracy, in loss, online."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from vision_attn.report.analysis import Analysis
from vision_attn.report.chart import FEW, Chart
from vision_attn.report.curves import Words, by_last, last_points
from vision_attn.report.numbers import written
from vision_attn.texts import in_figure

__all__ = ["online", "senses"]

_FEW_BANDS = 4
"""Models up to which each has a band; of more the others have bars."""


def senses(analysis: Analysis, chart: Chart) -> Words | None:
    """Both senses of overfitting side by side: points behind the reference, and the rise in loss.

    None with one model or size, or without logs.
    """
    lost, rises = _lost(analysis), analysis.rises
    if lost.empty or rises.empty or min(t["size"].nunique() for t in (lost, rises)) < 2:
        return None
    order = by_last(analysis.main)
    chart.strong = order if len(order) <= _FEW_BANDS else chart.strong
    reference = in_figure(lost["reference"].iloc[0], 20)
    left, right = chart.grid(1, 2, 2, 1.15)[0]
    for axes, rows, measure in ((left, lost, "behind"), (right, rises, "val_loss_rise")):
        axes.axhline(0, color="0.5", lw=1, zorder=1)
        for model in order:
            _curve(axes, rows[rows["model"] == model], measure, model, chart)
        chart.sizes(axes, analysis.main["size"])
    left.set_title("in test accuracy")
    chart.upright(left, f"points behind {reference}")
    left.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g}")
    right.set_title("in validation loss")
    right.set_ylabel("rise from its minimum, nats")
    both = pd.concat([lost, rises])
    handles = [chart.handle(m) for m in order]
    chart.legend(left, handles, chart.note(both, "bars: of the thin ones"), columns=4)
    return Words(
        "Both senses of overfitting",
        f"Points of test accuracy behind {lost['reference'].iloc[0]}, paired by draw, and the rise"
        " of the validation loss from its minimum to the end of the same run. Hollow points are"
        " not fitted, so they say nothing of overfitting in accuracy.",
        "; ".join([_ends(lost, "behind"), _ends(rises, "val_loss_rise")]),
    )


def online(analysis: Analysis, chart: Chart) -> Words | None:
    """Offline minus online error against images; None where no size is seen once."""
    table = analysis.online
    if table.empty:
        return None
    axes, order = chart.single(), by_last(table, "online_gap")
    chart.strong = order if len(order) <= _FEW_BANDS else chart.strong
    axes.axhline(0, color="0.5", lw=1, zorder=1)
    rows = table.assign(fitted=1.0)  # this sense asks for no fit
    for model in order:
        _curve(axes, rows[rows["model"] == model], "online_gap", model, chart)
    chart.sizes(axes, table["size"])
    chart.in_points(axes, "offline minus online test error")
    handles = chart.name_ends(axes, last_points(rows, "online_gap", order))
    chart.legend(axes, handles, chart.note(rows, "bars: of the thin ones"))
    return Words(
        "Offline minus online error",
        "Test error minus that of the run of as many updates that saw each of its images once,"
        " paired by draw: what is lost by seeing images again. It asks for no fit.",
        _ends(table, "online_gap"),
    )


def _lost(analysis: Analysis) -> pd.DataFrame:
    """Test accuracy behind the reference as `behind_*`, a row a (model, size), itself at 0."""
    against, main = analysis.comparisons[analysis.setting], analysis.main
    if not against:
        return pd.DataFrame()
    (first,) = {c.first for c in against.values()}
    tables = [c.points.assign(model=model) for model, c in against.items()]
    every = pd.concat(tables)[["model", "size", "mean", "low", "high", "count"]]
    every = every.rename(columns={end: f"behind_{end}" for end in ("mean", "low", "high")})
    facts = ["model", "protocol", "control", "size", "fitted", "params"]
    own = main.loc[main["model"] == first, [*facts, "count"]].assign(behind_mean=0.0)
    others = main[facts].merge(every, on=["model", "size"])
    return pd.concat([own, others]).assign(reference=first)


def _curve(axes: Axes, rows: pd.DataFrame, measure: str, name: str, chart: Chart) -> None:
    """As of `Chart.curve`; without a band each interval is a bar."""
    rows = rows.sort_values("size")
    if rows.empty:
        return
    chart.curve(axes, rows, measure, name, "-")
    told = rows[(rows["count"] >= FEW) & rows[f"{measure}_low"].notna()]
    if name not in chart.strong and len(told):
        colour = chart.looks[name].colour
        at, low, high = (told[c] for c in ("size", f"{measure}_low", f"{measure}_high"))
        chart.mark(name, colour, axes.vlines(at, low, high, color=colour, lw=0.8, alpha=0.6))


def _ends(table: pd.DataFrame, measure: str) -> str:
    """Each model at its smallest and its largest size, in words."""
    form, unit = (".2f", "nats") if measure == "val_loss_rise" else ("%", "points")

    def said(r: dict[Any, Any]) -> str:
        return f"{written(r[f'{measure}_mean'], form)} {unit} at {r['size']:,} images"

    return "; ".join(
        f"{model}: {', '.join(map(said, rows.iloc[[0, -1][: len(rows)]].to_dict('records')))}"
        for model, rows in table.sort_values("size").groupby("model")
    )
