"""Every figure that a study's data allow, with the words that stand beside it on the page."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from vision_attn.compare import figures, panels
from vision_attn.compare.runs import select, summarise
from vision_attn.compare.stored import Stored
from vision_attn.compare.styles import pair
from vision_attn.compare.tables import main_setting
from vision_attn.errors import UserError
from vision_attn.stats.multiplier import data_multiplier
from vision_attn.stats.paired import protocol_split
from vision_attn.stats.power_law import PowerLaw, errors_of, fit_law

__all__ = ["Drawn", "gallery", "laws"]


@dataclass(frozen=True)
class Drawn:
    """A figure, its file's name, and its words on the page."""

    name: str
    figure: Figure
    title: str
    caption: str
    alt: str


HOLLOW = "Bands are 95 % t intervals over draws; hollow points did not all fit."


def gallery(stored: Stored, fits: Mapping[str, PowerLaw]) -> list[Drawn]:
    """Every figure that the stored data allow; `fits` as of `laws`."""
    results = stored.results
    summary = summarise(results)
    protocol, control = main_setting(results)
    plain = summary[summary["control"] == control]
    main = plain[plain["protocol"] == protocol]
    budgets = " Dashed lines: equal epochs." if plain["protocol"].nunique() > 1 else ""
    found: list[tuple[str, Figure | None, str, str, str]] = [
        (
            "accuracy_vs_size",
            figures.against_size(plain, "test_acc", "test accuracy", stored.archs),
            "Test accuracy against training images",
            f"{HOLLOW}{budgets}",
            _said(main, "test_acc"),
        ),
        (
            "gap_vs_size",
            figures.against_size(plain, "gap", "train minus test accuracy", stored.archs),
            "Gap against training images",
            "Train minus test accuracy, both on unaugmented images in eval mode. Only filled points"
            f" speak of overfitting. Where both reach 100 % on train images, a larger gap is"
            f" a lower test accuracy and nothing else.{budgets}",
            _said(main, "gap"),
        ),
        (
            "error_loglog",
            figures.error_loglog(main, fits, stored.archs),
            "Error on log-log axes",
            "A constant ratio of errors is two parallel lines here, however the difference in"
            " points shrinks.",
            _said(main, "test_acc", error=True),
        ),
    ]
    two = pair(main["model"], stored.archs)
    if two:
        times = data_multiplier(select(results, protocol, control), *two)
        epochs, steps = (select(results, name, control) for name in ("epochs", "steps"))
        parts = protocol_split(epochs, steps, *two)
        found += [
            (
                "multiplier",
                figures.multiplier(times, *two),
                "Data multiplier",
                f"How many times {two[0]}'s images {two[1]} needs for the same error. Bars are 95 %"
                " intervals. Open triangles are bounds: that error is not reached at any size.",
                "; ".join(
                    f"at {r['n']:,} images {r['bound'] or format(r['multiplier'], '.2f')}"
                    for r in times.to_dict("records")
                ),
            ),
            (
                "protocol_split",
                figures.protocol_split(parts, *two),
                "What the protocol does",
                f"{two[0]} minus {two[1]} when both train for equal epochs, split into what is left"
                " under equal updates and what equal epochs add.",
                "; ".join(
                    f"at {r['size']:,} images {100 * r['total']:.1f} points, of which"
                    f" {100 * r['undertraining']:.1f} from undertraining"
                    for r in parts.to_dict("records")
                ),
            ),
        ]
    log = stored.training
    found += [
        (
            "training_curves",
            panels.training_curves(log[log["control"] == control] if len(log) else log),
            "Training curves",
            "Loss against update, mean over draws and seeds: validation solid, training dashed, a"
            " colour a training size.",
            "Loss of validation and training images against updates, a panel a model",
        ),
        (
            "capacity",
            panels.capacity(main, stored.archs),
            "Capacity",
            f"Test accuracy and gap of one family's variants against parameters. {HOLLOW}",
            _said(main, "gap"),
        ),
        (
            "controls",
            figures.controls(summary[summary["protocol"] == protocol], stored.archs),
            "Controls",
            "Permuted pixels take locality away; with shuffled labels nothing can be learned that"
            " holds on test images.",
            "; ".join(
                f"{c}: {_said(rows, 'test_acc')}"
                for c, rows in summary[summary["protocol"] == protocol].groupby("control")
            ),
        ),
        (
            "attention_distance",
            panels.attention_distance(_main(stored.attention, protocol, control)),
            "How far attention looks",
            "Mean distance between a query and what it attends to, by layer, against training"
            " images; mean over heads, draws and seeds.",
            "Attention distance in pixels by layer against training images",
        ),
    ]
    return [
        Drawn(name, figure, title, caption, f"{title}. {alt}.")
        for name, figure, title, caption, alt in found
        if figure is not None
    ]


def _main(table: pd.DataFrame, protocol: str, control: str) -> pd.DataFrame:
    if table.empty:
        return table
    return table[(table["protocol"] == protocol) & (table["control"] == control)]


def _said(summary: pd.DataFrame, measure: str, *, error: bool = False) -> str:
    """What a line chart shows, in words: each model at its smallest and its largest size."""
    parts = []
    for model, rows in summary.groupby("model", sort=True):
        first, last = rows.iloc[0], rows.iloc[-1]
        a, b = (
            100 * (1 - r[f"{measure}_mean"] if error else r[f"{measure}_mean"])
            for r in (first, last)
        )
        parts.append(
            f"{model}: {a:.1f} % at {first['size']:,} images, {b:.1f} % at {last['size']:,}"
        )
    return "; ".join(parts)


def laws(results: pd.DataFrame) -> tuple[dict[str, PowerLaw], dict[str, str]]:
    """The law of each model, or why it has none."""
    found, refused = {}, {}
    runs = select(results, *main_setting(results))
    for model in sorted(runs["model"].unique()):
        try:
            found[model] = fit_law(*errors_of(runs, model))
        except UserError as e:
            refused[model] = str(e)
    return found, refused
