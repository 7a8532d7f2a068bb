"""What `compare` does: a study from its images to its report."""

import gc
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vision_attn.commands.arguments import out_path
from vision_attn.errors import UserError
from vision_attn.texts import console as plain_console

if TYPE_CHECKING:
    from rich.console import Console

    from vision_attn.data.sources import Source
    from vision_attn.models.cost import Cost
    from vision_attn.report.analysis import Analysis
    from vision_attn.study.cells import Arm, Plan
    from vision_attn.study.config import Study

__all__ = ["Outcome", "ready", "run_study", "show_costs", "write_report"]


class Outcome(NamedTuple):
    """How many runs failed, and what the others say; None where there are none."""

    failed: int
    analysis: "Analysis | None"


def ready(study: "Study", console: "Console", source: "Source | None" = None) -> "Plan":
    """The plan of a study, which says what was chosen for its images."""
    from vision_attn.data.sources import load
    from vision_attn.study.cells import plan
    from vision_attn.study.defaults import follow_images, large_attention

    if source is None:
        with console.status(f"reading the images of {study.data.root or study.data.dataset}"):
            source = load(study.data)
    elif not source.fingerprint:
        source = source.with_fingerprint()
    source.tell()
    study, chosen = follow_images(study, source)
    for line in [*([chosen] if chosen else []), *large_attention(study, source)]:
        console.print(line, soft_wrap=True)
    return plan(study, source)


def run_study(study: "Study", given: Any, source: "Source | None" = None) -> Outcome:
    """Train what is missing, then write results, figures and the page.

    Args:
        given: `out`, `workers`, `runner`, `ray` and `logger`, as `study_of` returns them.
        source: the images; None reads those of the study.
    """
    from vision_attn.study.config import most_processes

    if given.workers is not None and not 1 <= given.workers <= most_processes():
        raise UserError(f"workers is {given.workers}; wanted 1 to {most_processes()}")
    out = out_path(given.out)
    if given.runner != "ray":
        return _run_study(study, given, source, out)

    from vision_attn.study.ray_cluster import cluster

    with cluster(study.threads, workers=given.workers, **vars(given.ray)):
        return _run_study(study, given, source, out)


def _run_study(study: "Study", given: Any, source: "Source | None", out: Path) -> Outcome:
    from vision_attn.study import execute as runners
    from vision_attn.study.estimate import estimate
    from vision_attn.study.store import Store
    from vision_attn.study.tune import tune
    from vision_attn.training.run import check_precision, check_tracker

    store = Store(out)
    console = plain_console()
    check_precision(study.precision)
    check_tracker(given.logger)
    made = ready(study, console, source)
    study = made.study
    workers = given.workers or runners.default_workers(study.threads)
    if given.runner == "ray":
        from vision_attn.study.ray_runner import on_ray

        start = on_ray(study.threads, workers=given.workers, **vars(given.ray))
    else:
        start = runners.local(workers, study.threads)
    run = partial(runners.execute, start=start, console=console, logger=given.logger)
    store.open(made)
    show_costs(console, made.arms.values())
    todo = [c for c in made.cells if not (store.cells / c.key).exists()]
    if expected := estimate(todo, made.source, workers, study.threads, study.tune):
        console.print(expected.line(made.source, study.draws), soft_wrap=True)
    if study.tune:
        console.print(f"{study.tune} tries for each model and size, on validation images")
        made = tune(made, store, partial(run, tries=True))
    failed = run(made, store)
    rows = store.write_results()
    analysis = None
    if any(r["status"] == "ok" for r in rows):
        analysis = write_report(console, store.root, store.root)
    if failed:
        console.print(
            f"{failed} of {len(made.cells)} runs failed; {store.root / 'results.csv'} says why, and"
            " the same command runs them again",
            soft_wrap=True,
            style="bold red",
        )
    return Outcome(failed, analysis)


def write_report(
    console: "Console", roots: Path | Sequence[Path], out: Path, **figures: Any
) -> "Analysis":
    """Write the report, show its tables and answers, and say where it is.

    Garbage is not looked for in what was imported before: figures are many objects that refer to
    each other, so full collections come often, and each would walk through all of torch.
    """
    from vision_attn.report.terminal import show
    from vision_attn.report.write import report

    gc.freeze()
    try:
        analysis = report(
            roots, out, **figures, tell=lambda n: console.print(f"drawing {n} figures ...")
        )
    finally:
        gc.unfreeze()
    console.print()
    show(console, analysis)
    files = [file for file in out.iterdir() if file.is_file() and not file.name.startswith(".")]
    console.print(
        f"report: {out / 'report.html'} and {len(files) - 1} files (figures, tables, results)",
        soft_wrap=True,
    )
    return analysis


def show_costs(
    console: "Console", arms: "Iterable[Arm]", kept: dict[str, int] | None = None
) -> None:
    """Parameters and FLOPs of one image forward; memory too where `kept` says it in bytes."""
    from vision_attn.report.numbers import short
    from vision_attn.report.tables import Block, matching_words
    from vision_attn.report.terminal import print_block

    arms = list(arms)
    costs = {arm.label: arm.cost for arm in arms}
    words = matching_words({arm.label: arm.matched for arm in arms})
    rows = [[m, f"{c.params:,}", short(c.flops), words[m]] for m, c in costs.items()]
    block = Block("Cost of one model; FLOPs of one image", _COSTS, rows)
    print_block(console, block, _unlike(costs, words))
    if kept:
        rows = [[m, *(_bytes(n) for n in (4 * c.params, kept[m]))] for m, c in costs.items()]
        title = "Memory; activations are what one image's forward pass keeps for training"
        print_block(console, Block(title, ["model", "weights", "activations"], rows))


_COSTS = ["model", "parameters", "FLOPs", "matching"]


def _unlike(costs: "dict[str, Cost]", words: dict[str, str]) -> str:
    """Which models are of another size than the first, so that a comparison is not a fair one."""
    first = next((m for m, word in words.items() if word == "reference"), next(iter(costs)))
    unlike = [
        f"{m} has {c.params:,}"
        for m, c in costs.items()
        if words[m] == "not matched" and not 0.9 < c.params / costs[first].params < 1.1
    ]
    if not unlike:
        return ""
    models = ", ".join(unlike)
    return f"Not of the size of {first}, as a fair comparison needs: {models} parameters."


def _bytes(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
