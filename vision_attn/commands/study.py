"""The commands compare, plot and budget."""

import gc
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vision_attn.commands.arguments import (
    command_parser,
    merge_model_args,
    out_path,
    parse,
    pick_models,
)
from vision_attn.errors import UserError
from vision_attn.texts import console as plain_console

if TYPE_CHECKING:
    from vision_attn.report.analysis import Analysis
    from vision_attn.study.config import Study

__all__ = ["budget", "compare", "plot", "study_of"]


def study_of(command: str, about: str, args: Sequence[str]) -> "tuple[Any, Study]":
    """All values of a command line, and the study that they describe."""
    from vision_attn.study.config import Study

    parser = command_parser(command, about)
    parser.add_argument("--config", action="config", help="a YAML file of these options")
    parser.add_class_arguments(Study, None)
    parser.add_argument("--out", type=str, default="runs/compare", help="directory of the results")
    parser.add_argument(
        "--workers",
        type=int | None,
        default=None,
        help="processes; null is one a core, or one where there is a GPU",
    )
    line = pick_models(parser, merge_model_args(parser, args))
    given = parser.instantiate_classes(parse(parser, line))
    fields = Study.__dataclass_fields__
    return given, Study(**{k: v for k, v in vars(given).items() if k in fields})


def compare(about: str, args: Sequence[str]) -> int:
    """Train what is missing, then write results, figures and the page; 1 where a run failed."""
    from vision_attn.data.sources import load
    from vision_attn.report.tables import terminal
    from vision_attn.study.cells import plan
    from vision_attn.study.config import most_processes
    from vision_attn.study.execute import default_workers, execute
    from vision_attn.study.store import Store
    from vision_attn.study.tune import tune
    from vision_attn.training.run import check_precision

    given, study = study_of("compare", about, args)
    if given.workers is not None and not 1 <= given.workers <= most_processes():
        raise UserError(f"workers is {given.workers}; wanted 1 to {most_processes()}")
    store = Store(out_path(given.out))
    console = plain_console()
    study.check()
    check_precision(study.precision)
    source = load(study.data)
    source.tell()
    made = plan(study, source)
    run = partial(
        execute,
        source=source,
        workers=given.workers or default_workers(study.threads),
        threads=study.threads,
        console=console,
    )
    with store.open(study, made, source):
        _show_costs(console, made.costs, made.matched)
        if study.tune:
            console.print(f"{study.tune} tries for each model and size, on validation images")
            tries = partial(run, checkpoint=False, measure=False, test=False)
            made = tune(study, made, source, store, lambda cells, at: tries(cells, store=at))
        failed = run(made.cells, store=store, checkpoint=study.checkpoint, measure=study.measure)
        rows = store.write_results()
        if any(r["status"] == "ok" for r in rows):
            console.print(terminal(_report(store.root)))
    console.print(f"results, figures and tables are in {store.root}", soft_wrap=True)
    if failed:
        console.print(
            f"{failed} of {len(made.cells)} cells failed; results.csv says why, and the same"
            " command runs them again",
            style="bold red",
        )
    return 1 if failed else 0


def _report(roots: Path | Sequence[Path], out: Path | None = None, **figures: Any) -> "Analysis":
    """`report`, without looking for garbage in what was imported before.

    Figures are many objects that refer to each other, so full collections come often, and each
    would walk through all of torch.
    """
    from vision_attn.report.write import report

    gc.freeze()
    try:
        return report(roots, out, **figures)
    finally:
        gc.unfreeze()


def plot(about: str, args: Sequence[str]) -> int:
    """Figures, tables and page again from stored results."""
    parser = command_parser("plot", about)
    parser.add_argument(
        "dir", type=str, nargs="+", help="the --out of a compare, or a folder with results.csv"
    )
    parser.add_argument(
        "--out", type=str | None, default=None, help="where to; needed where several are joined"
    )
    parser.add_argument("--format", type=str, default="svg,png", help="of svg, png and pdf")
    parser.add_argument(
        "--models", type=list[str] | None, default=None, help="of the figures: cnn,vit"
    )
    parser.add_argument("--width", type=float | None, default=None, help="of a figure, in inches")
    parser.add_argument("--font", type=float | None, default=None, help="size of letters, points")
    parser.add_argument("--dpi", type=int | None, default=None, help="of png; 150 by default")
    parser.add_argument("--style", type=str | None, default=None, help="a matplotlib style file")
    given = parse(parser, args)
    from vision_attn.report.style import options
    from vision_attn.report.tables import terminal

    figures = {
        "kinds": given.format.split(","),
        "models": given.models,
        "looks": options(width=given.width, font=given.font, dpi=given.dpi, file=given.style),
    }
    roots = [out_path(root, "dir") for root in given.dir]
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is no directory; give the --out of a compare")
    out = None if given.out is None else out_path(given.out)
    plain_console().print(terminal(_report(roots, out, **figures)))
    return 0


def budget(about: str, args: Sequence[str]) -> int:
    """Show what the models of a study cost."""
    from vision_attn.data.sources import load
    from vision_attn.models.cost import activation_bytes
    from vision_attn.models.registry import create_model
    from vision_attn.study.cells import plan, runs

    _, study = study_of("budget", about, args)
    source = load(study.data)
    source.tell()
    made = plan(study, source)
    shape: dict[str, Any] = {"img_size": source.img_size, "in_chans": source.in_chans}
    kept: dict[str, int] = {}
    for label, arch in study.archs.items():
        model = create_model(arch, **shape, num_classes=len(source.classes), args=made.args[label])
        with runs(arch, source):
            kept[label] = activation_bytes(model, **shape)
    _show_costs(plain_console(), made.costs, made.matched, kept)
    return 0


def _show_costs(
    console: Any,
    costs: dict[str, Any],
    matched: dict[str, str],
    kept: dict[str, int] | None = None,
) -> None:
    """Parameters and FLOPs of one image forward; memory too where `kept` says it in bytes."""
    from rich.table import Table

    table = Table(
        title="cost of one model; FLOPs of one image",
        caption="activations: what one image's forward pass keeps for training" if kept else None,
    )
    for name in ("model", "parameters", "FLOPs", "matched to"):
        left = name in ("model", "matched to")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    if kept:
        table.add_column("weights", justify="right")
        table.add_column("activations", justify="right")
    for model, c in costs.items():
        memory = [f"{n / 2**20:.2f} MiB" for n in (4 * c.params, kept[model])] if kept else []
        table.add_row(model, f"{c.params:,}", f"{c.flops / 1e6:,.2f} M", matched[model], *memory)
    console.print(table)
