"""Studies of relational images with several shares p as one: who is ahead where in (n, p)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from vision_attn.errors import UserError
from vision_attn.report.analysis import Analysis, analyse, choose_pair
from vision_attn.report.looks import attending
from vision_attn.stats.boundary import boundaries
from vision_attn.stats.paired import differences, paired
from vision_attn.study.join import join
from vision_attn.study.results import read_studies

__all__ = ["Phase", "phase", "shares"]

MEASURES = ("test_acc", "test_loss")


class Phase:
    """What studies of several shares say together.

    Args:
        studies: the analysis of each share p.

    `model` is the attention model, `opponents` are those without. `differences` has a row a
    (opponent, p, measure, size): the attention model minus the opponent, paired by draw.
    `boundary` has where the two change places in test accuracy; see `stats.boundary`.
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
        for study in read_studies(root).values():
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
