"""The command line. Heavy imports wait until a command needs them."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from vision_attn import __version__
from vision_attn.arguments import (
    command_parser,
    merge_model_args,
    one_line,
    parse,
    pick_models,
    strict_yaml,
)
from vision_attn.errors import UserError

if TYPE_CHECKING:
    from vision_attn.compare.study import Study

__all__ = ["main"]

COMMANDS = {
    "compare": "train models on growing subsets, plot accuracy and gap against size",
    "plot": "figures and tables again, from the stored results of a compare",
    "budget": "parameters and FLOPs of models, side by side",
    "explain": "what a trained model attends to: a picture, or a page to point at",
    "diagnose": "the claims about scaling, self-weight, order and cost of attention, measured",
    "fit": "train one model (LightningCLI)",
    "validate": "measure one model on validation images (LightningCLI)",
    "test": "measure one model on test images (LightningCLI)",
    "predict": "class probabilities of test images, as a CSV file (LightningCLI)",
}


class _Top(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as of any other mistake; argparse's own has the usage before it."""
        raise UserError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 0 done, 1 a part failed, 2 the user's mistake."""
    args = list(sys.argv[1:] if argv is None else argv)
    top = _Top(
        prog="vision-attn",
        description="Self-attention on images, compared with a CNN on growing data sets.",
        epilog="commands:\n"
        + "".join(f"  {name:<10}{text}\n" for name, text in COMMANDS.items())
        + "\n`vision-attn COMMAND --help` lists a command's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=__version__)
    top.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    try:
        command = top.parse_args(args[:1] if args else ["--help"]).command
        run = {
            "compare": _compare,
            "plot": _plot,
            "budget": _budget,
            "explain": _explain,
            "diagnose": _diagnose,
        }.get(command)
        return run(args[1:]) if run else _lightning(args)
    except UserError as e:
        print(f"error: {' '.join(str(e).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; what was finished is kept, start again to go on", file=sys.stderr)
        return 130


def _study(command: str, args: Sequence[str]) -> "tuple[Any, Study]":
    """All values of a command line, and the study that they describe."""
    from vision_attn.compare.study import Study

    parser = command_parser(command, COMMANDS[command])
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


def _compare(args: Sequence[str]) -> int:
    from rich.console import Console

    from vision_attn.compare.execute import default_workers, execute
    from vision_attn.compare.grid import plan
    from vision_attn.compare.report import report, terminal
    from vision_attn.compare.store import Store
    from vision_attn.compare.tune import tune
    from vision_attn.data.sources import load

    given, study = _study("compare", args)
    if given.workers is not None and given.workers < 1:
        raise UserError(f"workers is {given.workers}; wanted 1 or more")
    console = Console()
    source = load(study.data)
    made = plan(study, source)
    store = Store(Path(given.out))
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
            console.print(terminal(report(store.root)))
    console.print(f"results, figures and tables are in {store.root}", highlight=False)
    if failed:
        console.print(
            f"{failed} of {len(made.cells)} cells failed; results.csv says why, and the same"
            " command runs them again",
            style="bold red",
        )
    return 1 if failed else 0


def _plot(args: Sequence[str]) -> int:
    from rich.console import Console

    from vision_attn.compare.report import report, terminal

    parser = command_parser("plot", COMMANDS["plot"])
    parser.add_argument(
        "dir", type=str, nargs="+", help="the --out of a compare, or a folder with results.csv"
    )
    parser.add_argument(
        "--out", type=str | None, default=None, help="where to; needed where several are joined"
    )
    given = parse(parser, args)
    roots = [Path(root) for root in given.dir]
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is no directory; give the --out of a compare")
    Console().print(terminal(report(roots, None if given.out is None else Path(given.out))))
    return 0


def _budget(args: Sequence[str]) -> int:
    from rich.console import Console

    from vision_attn.compare.grid import plan
    from vision_attn.data.sources import load
    from vision_attn.models import create_model
    from vision_attn.models.budget import activation_bytes

    _, study = _study("budget", args)
    source = load(study.data)
    made = plan(study, source)
    shape: dict[str, Any] = {"img_size": source.img_size, "in_chans": source.in_chans}
    kept = {
        label: activation_bytes(
            create_model(arch, **shape, num_classes=len(source.classes), args=made.args[label]),
            **shape,
        )
        for label, arch in study.archs.items()
    }
    _show_costs(Console(), made.costs, made.matched, kept)
    return 0


def _explain(args: Sequence[str]) -> int:
    parser = command_parser("explain", COMMANDS["explain"])
    parser.add_argument("--ckpt", type=str, required=True, help="of fit, or compare's last.ckpt")
    parser.add_argument("--image", type=str, nargs="+", required=True, help="image files")
    parser.add_argument("--out", type=str, required=True, help="a .png, or an .html to point at")
    parser.add_argument("--layers", type=str | None, default=None, help="as 0,2; null is all")
    parser.add_argument("--heads", type=str | None, default=None, help="as 0,2; null is all")
    parser.add_argument(
        "--query",
        type=str | None,
        default=None,
        help="row,column of a pixel; null is the class token, or the mean over all tokens",
    )
    parser.add_argument("--overwrite", type=bool, default=False, help="replace --out")
    parser.add_argument(
        "--convert", type=bool, default=False, help="grey images to colour, or colour to grey"
    )
    given = parse(parser, args)
    layers, heads, query = (_numbers(n, given[n]) for n in ("layers", "heads", "query"))
    if query is not None and len(query) != 2:
        raise UserError(f"query {given.query!r} has {len(query)} numbers; wanted row,column")

    from vision_attn.explain.view import explain

    for line in explain(
        Path(given.ckpt),
        [Path(path) for path in given.image],
        Path(given.out),
        layers=layers,
        heads=heads,
        query=None if query is None else (query[0], query[1]),
        overwrite=given.overwrite,
        convert=given.convert,
    ):
        print(line)
    return 0


def _numbers(name: str, text: str | None) -> list[int] | None:
    """`0,2` or `[0, 2]` as whole numbers."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.strip("[] ").split(",")]
    except ValueError as e:
        raise UserError(f"{name} is {text!r}; wanted whole numbers as 0,2") from e


def _diagnose(args: Sequence[str]) -> int:
    from rich.console import Console

    from vision_attn.data.sources import DataConfig, load
    from vision_attn.explain.diagnostics import (
        FULL,
        QUICK,
        check_out,
        diagnose,
        terminal,
        write,
    )

    parser = command_parser("diagnose", COMMANDS["diagnose"])
    parser.add_argument("--config", action="config", help="a YAML file of these options")
    parser.add_class_arguments(DataConfig, "data", skip={"val_fraction"})
    parser.add_argument("--out", type=str, default="runs/diagnose", help="directory of the results")
    parser.add_argument("--quick", action="store_true", help="little work, wide intervals: a trial")
    parser.add_argument("--overwrite", action="store_true", help="replace results that are there")
    given = parser.instantiate_classes(parse(parser, args))
    out, settings, console = Path(given.out), QUICK if given.quick else FULL, Console()
    check_out(out, given.overwrite)
    source = load(given.data)
    with console.status("diagnose") as status:
        claims = diagnose(
            source, settings, tell=status.update, show=lambda c: console.print(*terminal(c))
        )
    write(claims, settings, out)
    console.print(f"figures, tables and diagnose.md are in {out}", highlight=False)
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


def _lightning(args: Sequence[str]) -> int:
    from jsonargparse import ArgumentError
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    from vision_attn.training.fit import AnyCLI, ClassifierCLI, names_class

    strict_yaml()
    try:
        (AnyCLI if names_class(args) else ClassifierCLI)(args)
    except (ArgumentError, MisconfigurationException) as e:
        raise UserError(one_line(e)) from e
    return 0
