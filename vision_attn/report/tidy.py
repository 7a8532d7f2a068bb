"""What the comparisons hold as tidy tables, a value a row; docs/columns.md explains the columns."""

from collections.abc import Iterator

import pandas as pd

from vision_attn.report.analysis import Analysis
from vision_attn.report.comparison import Comparison

__all__ = ["multipliers", "pairs"]

_WHO = ["reference", "model", "protocol", "control"]
_PAIRS = [*_WHO, "size", "measure", "value", "low", "high", "count", "fitted"]
_MULTIPLIERS = [*_WHO, "size", "multiplier", "low", "high", "bound", "count"]


def pairs(analysis: Analysis) -> pd.DataFrame:
    """Paired differences and ratios of every model against the reference, a row a measure and size.

    `value` is the model minus the reference in `test_acc`, `gap`, `test_loss` and `val_loss_rise`,
    and its error over the reference's in `error_ratio`.
    """
    tables = [
        table.assign(measure=measure, **who)
        for c, who in _comparisons(analysis)
        for measure, table in _measures(c)
        if len(table)
    ]
    return _stacked(tables, _PAIRS)


def multipliers(analysis: Analysis) -> pd.DataFrame:
    """How many times the images of the reference each model needs for the same test error."""
    tables = [
        c.multiplier.rename(columns={"n": "size"}).assign(**who)
        for c, who in _comparisons(analysis)
        if len(c.multiplier)
    ]
    return _stacked(tables, _MULTIPLIERS)


def _comparisons(analysis: Analysis) -> Iterator[tuple[Comparison, dict[str, str]]]:
    for setting, models in analysis.comparisons.items():
        for model, c in models.items():
            yield c, dict(zip(_WHO, (c.first, model, *setting), strict=True))


def _measures(c: Comparison) -> Iterator[tuple[str, pd.DataFrame]]:
    turned = {"mean": -c.points["mean"], "low": -c.points["high"], "high": -c.points["low"]}
    tables = {
        "test_acc": c.points.assign(**turned),
        "gap": c.gap,
        "test_loss": c.loss,
        "val_loss_rise": c.rise,
    }
    for measure, table in tables.items():
        yield measure, table.rename(columns={"mean": "value"})
    fitted = c.points.set_index("size")["fitted"]
    ratio = c.ratio.rename(columns={"ratio": "value"})
    yield "error_ratio", ratio.assign(fitted=ratio["size"].map(fitted))


def _stacked(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    if not tables:
        return pd.DataFrame(columns=columns)
    return pd.concat([table[columns] for table in tables], ignore_index=True)
