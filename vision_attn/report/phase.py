"""Studies of relational images with several shares p as one: who is ahead where in (n, p)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vision_attn.errors import UserError
from vision_attn.files import write_bytes, write_text
from vision_attn.report.analysis import Analysis, analyse, choose_pair
from vision_attn.report.chart import Chart
from vision_attn.report.looks import attending
from vision_attn.report.looks import looks as looks_of
from vision_attn.report.numbers import mean_and_half, with_interval
from vision_attn.report.style import check_kinds, render, style
from vision_attn.report.tables import Block, as_markdown
from vision_attn.stats.intervals import interval
from vision_attn.stats.paired import differences, paired
from vision_attn.study.join import join
from vision_attn.texts import csv_text, in_figure

__all__ = ["Phase", "blocks", "boundaries", "phase", "shares", "write_phase"]

MEASURES = ("test_acc", "test_loss")


class Phase:
    """What studies of several shares say together.

    Args:
        studies: the analysis of each share p.

    `model` is the attention model, `opponents` are those without. `differences` has a row a
    (opponent, p, measure, size): the attention model minus the opponent, paired by draw.
    `boundary` has where the two change places in test accuracy; see `boundaries`.
    """

    def __init__(self, studies: Mapping[float, Analysis]) -> None:
        self.studies = dict(sorted(studies.items()))
        first = next(iter(self.studies.values()))
        models = sorted(first.archs)
        pair = choose_pair(models, first.archs, first.args)
        if pair is None:
            raise UserError("one model has nobody to change places with; run two")
        self.model = pair[1]
        kinds = {m: attending(first.archs[m], first.args.get(m)) for m in models}
        self.opponents = [m for m in models if m != self.model and not kinds[m]]
        pairs = {
            (opponent, p): paired(_runs(a, (self.model, opponent)), opponent, MEASURES)
            for opponent in self.opponents
            for p, a in self.studies.items()
        }
        self.differences = pd.concat(
            [differences(t).assign(opponent=o, p=p) for (o, p), t in pairs.items()],
            ignore_index=True,
        )[["opponent", "p", "measure", "size", "mean", "low", "high", "count", "fitted"]]
        draws = pd.concat(
            [t[t["measure"] == "test_acc"].assign(opponent=o, p=p) for (o, p), t in pairs.items()]
        )
        self.boundary = boundaries(draws)


def shares(roots: Sequence[Path]) -> dict[float, list[Path]]:
    """The directories of each share p; empty where not all are studies of relational images."""
    found: dict[float, list[Path]] = {}
    for root in roots:
        for study in join([root]).studies.values():
            data = study["starts"][-1].get("data", {})
            if data.get("name") != "relational":
                return {}
            share = data.get("relation")
            found.setdefault(1.0 if share is None else float(share), []).append(root)
    return found


def phase(roots: Sequence[Path]) -> Phase:
    """Read studies of relational images, each of one share; those of the same share are joined.

    Raises:
        UserError: no results, models that differ, or one model alone.
    """
    return Phase({p: analyse(join(same)) for p, same in shares(roots).items()})


def _runs(analysis: Analysis, models: Sequence[str]) -> pd.DataFrame:
    results = analysis.stored.results
    main = analysis.setting.of(results[results["status"] == "ok"])
    return main[main["model"].isin(models)]


def boundaries(draws: pd.DataFrame) -> pd.DataFrame:
    """Where the attention model and an opponent change places.

    Along p at each size, and along the logarithm of the size at each p, a straight line between
    neighbours gives the zero of each draw. There is a boundary where every draw has just one, and
    its interval is Student's t over draws; else `mean` is NaN.

    Args:
        draws: opponent, p, size, draw and `value`, the attention model minus the opponent.

    Returns:
        opponent, axis (`p` or `size`), `at` which place of the other one, mean, low, high, in how
        many draws (`crossed`) of how many (`count`), and `first` and `last`: the mean difference
        at both ends of the axis.
    """
    rows = []
    for (opponent, axis, at), curves in _curves(draws):
        zeros = [_zeros(x, y) for x, y in curves]
        once = [z[0] for z in zeros if len(z) == 1]
        mean = low = high = np.nan
        if len(once) == len(curves):
            mean, low, high, _ = interval(once)
            if axis == "size":
                mean, low, high = (float(np.exp(v)) for v in (mean, low, high))
        first, last = (float(np.mean([y[end] for _, y in curves])) for end in (0, -1))
        found = (mean, low, high, len(once), len(curves), first, last)
        rows.append((opponent, axis, at, *found))
    names = ["opponent", "axis", "at", "mean", "low", "high", "crossed", "count", "first", "last"]
    return pd.DataFrame(rows, columns=names)


Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def _curves(draws: pd.DataFrame) -> Iterator[tuple[tuple[str, str, float], list[Curve]]]:
    """The curves of all draws along one axis at one place of the other, seeds averaged."""
    table = draws.groupby(["opponent", "p", "size", "draw"])["value"].mean().reset_index()
    for axis, other in (("p", "size"), ("size", "p")):
        for (opponent, _), rows in table.groupby(["opponent", other]):
            curves = []
            for _, curve in rows.groupby("draw"):
                x = curve.sort_values(axis)[axis].to_numpy(float)
                y = curve.sort_values(axis)["value"].to_numpy(float)
                curves.append((np.log(x) if axis == "size" else x, y))
            longest = max(len(x) for x, _ in curves)
            whole = [curve for curve in curves if len(curve[0]) == longest]
            if longest > 1:
                yield (str(opponent), axis, float(rows[other].iloc[0])), whole


def _zeros(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[float]:
    """Where straight lines between neighbours cross zero."""
    steps = zip(pairwise(x.tolist()), pairwise(y.tolist()), strict=True)
    return [a + (b - a) * c / (c - d) for (a, b), (c, d) in steps if c * d < 0 or (c == 0 != d)]


def write_phase(
    found: Phase,
    out: Path,
    kinds: Sequence[str] = ("svg", "png"),
    looks: Mapping[str, Any] | None = None,
) -> None:
    """Write phase.csv, boundary.csv, phase.md, and the figures `phase` and `phase_accuracy`.

    Args:
        found: what is written.
        out: a directory, new or written by this function.
        kinds: of the figures.
        looks: rcParams of the figures; see `style.options`.

    Raises:
        UserError: `out` holds something else, or an unknown kind.
    """
    check_kinds(kinds)
    tables = {"phase.csv": found.differences, "boundary.csv": found.boundary}
    if out.exists() and any(out.iterdir()) and not all((out / name).is_file() for name in tables):
        raise UserError(f"out {out} exists and is no phase diagram; choose a new directory")
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_text(out / name, csv_text(table, lineterminator="\n"))
    text = "\n\n".join(as_markdown(block) for block in blocks(found))
    write_text(out / "phase.md", text + "\n")
    with style(looks):
        for name, figure in (("phase", diagram(found)), ("phase_accuracy", accuracy(found))):
            for kind, content in render(figure, name, kinds).items():
                write_bytes(out / f"{name}.{kind}", content)


def blocks(found: Phase) -> list[Block]:
    """Accuracies and differences by share and size, and where places change, as text."""
    models = [found.model, *found.opponents]
    table = found.differences[found.differences["measure"] == "test_acc"]
    rows = []
    for p, analysis in found.studies.items():
        for size, at in table[table["p"] == p].groupby("size"):
            main = analysis.main[analysis.main["size"] == size].set_index("model")
            means = main.loc[models].to_dict("records")
            by = at.set_index("opponent").loc[found.opponents].to_dict("records")
            cells = [mean_and_half(m["test_acc_mean"], m["test_acc_high"]) for m in means]
            stars = ["*" * (m["fitted"] < 1) for m in means]
            lead = [with_interval(row, "%") for row in by]
            each = [cell + star for cell, star in zip(cells, stars, strict=True)]
            rows.append([f"{p:g}", f"{size:,}", *each, *lead])
    minus = [f"{found.model} - {opponent}" for opponent in found.opponents]
    boundary = found.boundary.to_dict("records")
    places = [[row["opponent"], *_where(row, found.model)] for row in boundary]
    return [
        Block("Test accuracy in %, * not every run fitted", ["p", "images", *models, *minus], rows),
        Block("Where they change places", ["opponent", "at", "place", "draws"], places),
    ]


def _where(row: Mapping[Any, Any], model: str) -> tuple[str, str, str]:
    """A row of `boundaries` in words: of which line, where on it, in how many draws."""
    axis, form = ("p", ".2f") if row["axis"] == "p" else ("n", ",.0f")
    line = f"{row['at']:,.0f} images" if axis == "p" else f"p = {row['at']:g}"
    place = f"{axis} = {with_interval(row, form)}"
    if pd.isna(row["mean"]):
        ends = [model if row[end] > 0 else row["opponent"] for end in ("first", "last")]
        alike = f"{ends[0]} ahead at both ends"
        place = alike if ends[0] == ends[1] else f"{ends[0]} ahead first, {ends[1]} last"
    return line, place, f"{row['crossed']} of {row['count']}"


def diagram(found: Phase) -> Figure:
    """Points by which attention is ahead, a cell a (size, p), a panel an opponent."""
    figure = Figure(figsize=(1.4 + 4.2 * len(found.opponents), 3.6))
    table = found.differences[found.differences["measure"] == "test_acc"]
    norm = CenteredNorm(0, max(100 * table["mean"].abs().max(), 1))
    panels = figure.subplots(1, len(found.opponents), squeeze=False, sharey=True)[0]
    for axes, opponent in zip(panels, found.opponents, strict=True):
        rows = table[table["opponent"] == opponent]
        mean = rows.pivot(index="p", columns="size", values="mean")
        cells = axes.imshow(
            100 * mean, cmap="PuOr_r", norm=norm, origin="lower", aspect="auto", alpha=0.85
        )
        for row in rows.to_dict("records"):
            at = mean.columns.get_loc(row["size"]), mean.index.get_loc(row["p"])
            sure = row["low"] * row["high"] > 0
            weight = "bold" if sure else "normal"
            text = f"{100 * row['mean']:+.1f}"
            dark = abs(100 * row["mean"]) > 0.6 * float(norm.vmax or 1)
            axes.text(
                *at, text, ha="center", va="center", size="small", weight=weight,
                color="white" if dark else "black",
            )  # fmt: skip
        _draw_boundary(axes, found.boundary, opponent, mean)
        axes.set_xticks(range(len(mean.columns)), [f"{n:,}" for n in mean.columns])
        axes.set_yticks(range(len(mean.index)), [f"{p:g}" for p in mean.index])
        axes.set_xlabel("training images")
        axes.set_title(in_figure(f"{found.model} minus {opponent}"))
        axes.grid(visible=False)
    panels[0].set_ylabel("share p of images with a relation")
    figure.colorbar(cells, ax=panels, label="points of test accuracy")
    note = "bold: the 95 % interval leaves out 0; line: where places change, with its interval"
    figure.supxlabel(note, size="small", color="0.35")
    return figure


def _draw_boundary(axes: Axes, boundary: pd.DataFrame, opponent: str, cells: pd.DataFrame) -> None:
    """p*(n) with its interval, from the middle of one cell to that of the next."""
    rows = boundary[(boundary["opponent"] == opponent) & (boundary["axis"] == "p")].dropna()
    if rows.empty:
        return
    x = np.searchsorted(cells.columns.to_numpy(float), rows["at"])
    y, low, high = (
        np.interp(rows[end], cells.index.to_numpy(float), np.arange(len(cells)))
        for end in ("mean", "low", "high")
    )
    axes.errorbar(x, y, [y - low, high - y], color="black", lw=1.6, marker="o", ms=4, capsize=3)


def accuracy(found: Phase) -> Figure:
    """Test accuracy against training size, a panel a share p."""
    first = next(iter(found.studies.values()))
    models = [found.model, *found.opponents]
    chart = Chart(looks_of(models, first.archs, first.args), models)
    count = len(found.studies)
    panels = chart.grid(1, count, 0.3 + 0.5 * count, 0.95, sharey=True)[0]
    rows = pd.concat(
        [a.main[a.main["model"].isin(models)].assign(p=p) for p, a in found.studies.items()]
    )
    for axes, (p, part) in zip(panels, rows.groupby("p"), strict=True):
        for model, curve in part.groupby("model"):
            chart.curve(axes, curve.sort_values("size"), "test_acc", str(model), "-")
        chart.sizes(axes, part["size"])
        axes.set_title(f"p = {p:g}")
    chart.percent(panels[0], "test accuracy")
    chart.legend(panels[0], [chart.handle(m) for m in models], chart.note(rows), 3)
    return chart.figure
