"""`compare` as a function of Python, with the command's options as keywords."""

import multiprocessing
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vision_attn.commands.presets import with_presets
from vision_attn.commands.run import run_study
from vision_attn.commands.study import flow, study_of
from vision_attn.errors import UserError

if TYPE_CHECKING:
    from vision_attn.data.sources import Source
    from vision_attn.report.load import LoadedStudy

__all__ = ["compare"]


def compare(
    config: "str | PathLike[str] | None" = None,
    *,
    source: "Source | None" = None,
    **options: Any,
) -> "LoadedStudy":
    """Run a study as the command `compare` does, and return what is stored of it.

    The directory is the same as the command's, and so is what it prints; a second call runs what is
    missing there. Runs are processes that import the script that calls this: call it below
    `if __name__ == "__main__":` (a notebook needs none).

    Args:
        config: a YAML file of options, or the name of a preset such as `quick`.
        source: the images; without it they are those of the option `data`.
        options: those of the command by their names: fields of `study.config.Study`, and `out`,
            `workers`, `runner`, `ray`, `logger`; a group is a mapping, such as
            `budget={"steps": 100}`.

    Raises:
        UserError: a mistake in the options, the images or the directory; all runs failed.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UserError(
            "compare() is called while its script is imported by a process that shall run a cell;"
            ' put the call below `if __name__ == "__main__":`'
        )
    named = {"name", "root"} & set(_plain(options.get("data") or {}))
    if source is not None and named:
        raise UserError(f"data.{min(named)} is given beside a source; take one of them out")
    line = [] if config is None else [f"--config={config}"]
    line += [f"--{name}={_text(value)}" for name, value in options.items()]
    given, study = study_of("compare", "", with_presets(line))
    outcome = run_study(study, given, source)

    from vision_attn.report.load import LoadedStudy

    if outcome.analysis is None:
        raise UserError(f"all runs failed; {Path(given.out) / 'results.csv'} says why")
    return LoadedStudy(outcome.analysis)


def _text(value: Any) -> str:
    """A value as it stands on a command line."""
    value = _plain(value)
    return value if isinstance(value, str) else flow([value])[1:-1]


def _plain(value: Any) -> Any:
    """Only what YAML holds."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(v) for v in value]
    if isinstance(value, PathLike):
        return str(value)
    return value.item() if hasattr(value, "item") else value
