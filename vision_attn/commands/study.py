"""The commands compare, plot and budget."""

from collections.abc import Sequence
from functools import partial
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
    from rich.console import Console

    from vision_attn.compare.grid import Plan
    from vision_attn.compare.study import Study
    from vision_attn.data.sources import Source

__all__ = ["budget", "compare", "plot", "study_of"]


def study_of(command: str, about: str, args: Sequence[str]) -> "tuple[Any, Study]":
    """All values of a command line, and the study that they describe."""
    from vision_attn.compare.study import Study

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


def _ready(study: "Study", console: "Console") -> "tuple[Study, Source, Plan]":
    """The images, the study with all that it left open, and its cells; says what was chosen."""
    from vision_attn.compare.defaults import follow_images, large_attention
    from vision_attn.compare.grid import plan
    from vision_attn.data.sources import load

    study.check()
    study.data.check()
    with console.status(f"reading the images of {study.data.root or study.data.dataset}"):
        source = load(study.data)
    source.tell()
    study, chosen = follow_images(study, source)
    for line in [*([chosen] if chosen else []), *large_attention(study, source)]:
        console.print(line, soft_wrap=True)
    return study, source, plan(study, source)


def compare(about: str, args: Sequence[str]) -> int:
    """Train what is missing, then write results, figures and the page; 1 where a run failed."""
    from vision_attn.compare.estimate import estimate
    from vision_attn.compare.execute import default_workers, execute
    from vision_attn.compare.store import Store
    from vision_attn.compare.study import most_processes
    from vision_attn.compare.tune import tune
    from vision_attn.report.tables import terminal
    from vision_attn.report.write import report
    from vision_attn.training.run import check_precision

    given, study = study_of("compare", about, args)
    if given.workers is not None and not 1 <= given.workers <= most_processes():
        raise UserError(f"workers is {given.workers}; wanted 1 to {most_processes()}")
    store = Store(out_path(given.out))
    console = plain_console()
    check_precision(study.precision)
    study, source, made = _ready(study, console)
    workers = given.workers or default_workers(study.threads)
    run = partial(
        execute,
        source=source,
        workers=workers,
        threads=study.threads,
        console=console,
    )
    with store.open(study, made, source):
        _show_costs(console, made.costs, made.matched)
        todo = [c for c in made.cells if not (store.cells / c.key).exists()]
        if expected := estimate(todo, source, workers, study.threads, study.tune):
            console.print(expected.line(source, study.draws), soft_wrap=True)
        if study.tune:
            console.print(f"{study.tune} tries for each model and size, on validation images")
            tries = partial(run, checkpoint=False, measure=False, test=False)
            made = tune(study, made, source, store, lambda cells, at: tries(cells, store=at))
        failed = run(made.cells, store=store, checkpoint=study.checkpoint, measure=study.measure)
        rows = store.write_results()
        if any(r["status"] == "ok" for r in rows):
            console.print(terminal(report(store.root)))
    console.print(f"results, figures and tables are in {store.root}", soft_wrap=True)
    if failed:
        console.print(
            f"{failed} of {len(made.cells)} cells failed; results.csv says why, and the same"
            " command runs them again",
            style="bold red",
        )
    return 1 if failed else 0


def plot(about: str, args: Sequence[str]) -> int:
    """Figures, tables and page again from stored results."""
    from vision_attn.report.tables import terminal
    from vision_attn.report.write import report

    parser = command_parser("plot", about)
    parser.add_argument(
        "dir", type=str, nargs="+", help="the --out of a compare, or a folder with results.csv"
    )
    parser.add_argument(
        "--out", type=str | None, default=None, help="where to; needed where several are joined"
    )
    given = parse(parser, args)
    roots = [out_path(root, "dir") for root in given.dir]
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is no directory; give the --out of a compare")
    out = None if given.out is None else out_path(given.out)
    plain_console().print(terminal(report(roots, out)))
    return 0


def budget(about: str, args: Sequence[str]) -> int:
    """Show what the models of a study cost."""
    from vision_attn.compare.grid import runs
    from vision_attn.models import create_model
    from vision_attn.models.budget import activation_bytes

    _, study = study_of("budget", about, args)
    console = plain_console()
    study, source, made = _ready(study, console)
    shape: dict[str, Any] = {"img_size": source.img_size, "in_chans": source.in_chans}
    kept: dict[str, int] = {}
    for label, arch in study.archs.items():
        model = create_model(arch, **shape, num_classes=len(source.classes), args=made.args[label])
        with runs(arch, source):
            kept[label] = activation_bytes(model, **shape)
    _show_costs(console, made.costs, made.matched, kept)
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
