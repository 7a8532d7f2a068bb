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
    from rich.console import Console

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
            _report(console, store.root, store.root)
    if failed:
        console.print(
            f"{failed} of {len(made.cells)} runs failed; {store.root / 'results.csv'} says why, and"
            " the same command runs them again",
            soft_wrap=True,
            style="bold red",
        )
    return 1 if failed else 0


def _report(console: "Console", roots: Path | Sequence[Path], out: Path, **figures: Any) -> None:
    """Write the report, show its tables and answers, and say where it is.

    Garbage is not looked for in what was imported before: figures are many objects that refer to
    each other, so full collections come often, and each would walk through all of torch.
    """
    from vision_attn.report.terminal import show
    from vision_attn.report.write import report

    console.print("drawing figures ...")
    gc.freeze()
    try:
        analysis = report(roots, out, **figures)
    finally:
        gc.unfreeze()
    console.print()
    show(console, analysis)
    files = [file for file in out.iterdir() if file.is_file() and not file.name.startswith(".")]
    console.print(
        f"report: {out / 'report.html'} and {len(files) - 1} files (figures, tables, results)",
        soft_wrap=True,
    )


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
    if out is None and len(roots) > 1:
        raise UserError(f"{len(roots)} directories are joined; say with --out where to")
    _report(plain_console(), roots, out or roots[0], **figures)
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
    console: "Console",
    costs: dict[str, Any],
    matched: dict[str, str],
    kept: dict[str, int] | None = None,
) -> None:
    """Parameters and FLOPs of one image forward; memory too where `kept` says it in bytes."""
    from vision_attn.report.numbers import short
    from vision_attn.report.tables import Block, matching_words
    from vision_attn.report.terminal import print_block

    words = matching_words(matched)
    rows = [[m, f"{c.params:,}", short(c.flops), words[m]] for m, c in costs.items()]
    block = Block("Cost of one model; FLOPs of one image", _COSTS, rows)
    print_block(console, block, _unlike(costs, words))
    if kept:
        rows = [[m, *(_bytes(n) for n in (4 * c.params, kept[m]))] for m, c in costs.items()]
        title = "Memory; activations are what one image's forward pass keeps for training"
        print_block(console, Block(title, ["model", "weights", "activations"], rows))


_COSTS = ["model", "parameters", "FLOPs", "matching"]


def _unlike(costs: dict[str, Any], words: dict[str, str]) -> str:
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
