"""The commands compare, plot and budget."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import yaml

from vision_attn.commands.arguments import command_parser, out_path, parse
from vision_attn.commands.models import check_names
from vision_attn.commands.run import ready, run_study, show_costs, write_report
from vision_attn.commands.strict_yaml import load_yaml
from vision_attn.errors import UserError
from vision_attn.names import MODELS
from vision_attn.texts import console as plain_console

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from vision_attn.study.config import Study

__all__ = ["budget", "compare", "flow", "plot", "study_of"]

LISTS = ("--models", "--sizes", "--controls")


def study_of(command: str, about: str, args: Sequence[str]) -> "tuple[Any, Study]":
    """All values of a command line, and the study that they describe, before anything heavy.

    Raises:
        UserError: a mistake that can be told without the images.
    """
    from vision_attn.study.config import Study

    parser = command_parser(command, about)
    parser.add_argument("--config", action="config", help="a YAML file of these options, or preset")
    parser.add_class_arguments(Study, None)
    parser.add_argument("--out", type=str, default="runs/compare", help="directory of the results")
    parser.add_argument(
        "--workers",
        type=int | None,
        default=None,
        help="processes; null is one a core, or one where there is a GPU",
    )
    parser.add_argument(
        "--runner", type=Literal["local", "ray"], default="local", help="what runs the cells"
    )
    parser.add_argument(
        "--ray.address", type=str | None, default=None,
        help="of a Ray cluster, or auto; null starts one on this machine",
    )  # fmt: skip
    parser.add_argument(
        "--ray.gpus_per_cell", type=float, default=0.0, help="share of a GPU that a run takes"
    )
    parser.add_argument(
        "--logger",
        type=Literal["tensorboard", "wandb"] | None,
        default=None,
        help="what each run logs to beside metrics.csv; wandb is offline",
    )
    given = parser.instantiate_classes(parse(parser, _written_out(parser, args)))
    fields = Study.__dataclass_fields__
    study = Study(**{k: v for k, v in vars(given).items() if k in fields})
    study.check()
    study.data.check()
    for label, arch in study.archs.items():
        check_names(arch, (study.args or {}).get(label, ()))
    return given, study


def _written_out(parser: "ArgumentParser", args: Sequence[str]) -> list[str]:
    """A command line without the two short forms that the parser does not know.

    `--args.MODEL.KEY VALUE` changes one argument; by itself it would replace all of MODEL's.
    `--models` picks from a file's models by label; settings of the others are dropped.
    """
    from vision_attn.data.config import DataConfig
    from vision_attn.study.config import arch_of, label_of

    line, changes = _model_args(_lists(args))
    picks = "--models" in line
    if not (picks or changes) or {"-h", "--help"} & set(line):
        return line
    quiet = [word for word in line if not word.startswith("--print_config")]  # prints and ends
    given = parse(parser, quiet)
    start = given.args
    if start is None and changes:
        from vision_attn.study.defaults import start_args

        dataset = DataConfig(name=given.data.name, root=given.data.root).dataset
        start = start_args(dataset, {label_of(m): arch_of(m) for m in given.models})
    arguments = {model: dict(values) for model, values in (start or {}).items()}
    for model, name, value in changes:
        arguments.setdefault(model, {})[name] = value
    if picks:
        while "--models" in quiet:
            at = quiet.index("--models")
            del quiet[at : at + 2]
        in_file = {label_of(entry): entry for entry in parse(parser, quiet).models}
        models = [in_file.get(entry, entry) for entry in given.models]
        others = in_file.keys() - {label_of(entry) for entry in models}
        arguments = {k: v for k, v in arguments.items() if k not in others - {*MODELS}}
        line.append(f"--models={flow(models)}")
        if isinstance(given.match_to, dict):
            match_to = {k: v for k, v in given.match_to.items() if k not in others}
            line.append(f"--match_to={flow(match_to)}")
        if given.reference in others:
            line.append("--reference=null")
        if given.augment_of:
            mine = {k: v for k, v in given.as_dict()["augment_of"].items() if k not in others}
            line.append(f"--augment_of={flow(mine)}")
    return line if start is None else [*line, f"--args={flow(arguments)}"]


def _model_args(args: Sequence[str]) -> tuple[list[str], list[tuple[str, str, Any]]]:
    """The words that are no `--args.MODEL.KEY VALUE`, and (MODEL, KEY, value) of those that are."""
    line: list[str] = []
    changes: list[tuple[str, str, Any]] = []
    words = iter(args)
    for word in words:
        option = re.fullmatch(r"--args\.(.+)\.(\w+?)(?:=(.*))?", word)
        if not option:
            line.append(word)
            continue
        model, name, text = option.groups()
        text = next(words, "") if text is None else text
        if not text.strip():
            raise UserError(f"{word} has no value")
        try:
            changes.append((model, name, load_yaml(text)))
        except yaml.YAMLError as e:
            what = e.problem if isinstance(e, yaml.MarkedYAMLError) else str(e)
            raise UserError(f"--args.{model}.{name} is {text[:40]!r}: {what}") from e
    return line, changes


def _lists(args: Sequence[str]) -> list[str]:
    """`--models vit,cnn` is short for `--models [vit,cnn]`, and so it is for sizes and controls."""
    line: list[str] = []
    for arg in _draws(args):
        for name in LISTS:
            if arg.startswith(f"{name}="):
                line, arg = [*line, name], arg.removeprefix(f"{name}=")
        if line[-2:-1] and line[-2] in LISTS and not arg.startswith("-"):
            text = line[-1].strip("[]")
            raise UserError(f"{line[-2]} takes one list: write {line[-2]} {text},{arg.strip(',')}")
        word = arg == "null" or arg.startswith(("[", "-"))
        short = line[-1:] in ([name] for name in LISTS) and not word
        line.append(f"[{arg}]" if short else arg)
    return line


def _draws(args: Sequence[str]) -> list[str]:
    """`--draws 3-5` is short for `--first_draw 3 --draws 3`."""
    text = re.sub(r"(^|\0)--draws[=\0](\d+)-(\d+)(?=\0|$)", _range, "\0".join(args))
    return text.split("\0") if args else []


def _range(found: "re.Match[str]") -> str:
    first, last = int(found[2]), int(found[3])
    if last < first:
        raise UserError(f"--draws {first}-{last}: the last draw is before the first")
    return f"{found[1]}--first_draw={first}\0--draws={last - first + 1}"


def flow(value: Any) -> str:
    """YAML of one line; JSON has no word for a number that is not finite."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=2**31).strip()


def compare(about: str, args: Sequence[str]) -> int:
    """Train what is missing, then write results, figures and the page; 1 where a run failed."""
    given, study = study_of("compare", about, args)
    return 1 if run_study(study, given).failed else 0


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
    parser.add_argument(
        "--reference", type=str | None, default=None, help="model that others are compared with"
    )
    parser.add_argument("--width", type=float | None, default=None, help="of a figure, in inches")
    parser.add_argument("--font", type=float | None, default=None, help="size of letters, points")
    parser.add_argument("--dpi", type=int | None, default=None, help="of png; 150 by default")
    parser.add_argument("--style", type=str | None, default=None, help="a matplotlib style file")
    given = parse(parser, _lists(args))
    roots = [out_path(root, "dir") for root in given.dir]
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is no directory; give the --out of a compare")
    out = None if given.out is None else out_path(given.out)
    if out is None and len(roots) > 1:
        raise UserError(f"{len(roots)} directories are joined; say with --out where to")

    from vision_attn.report.style import options

    figures = {
        "kinds": given.format.split(","),
        "models": given.models,
        "reference": given.reference,
        "looks": options(width=given.width, font=given.font, dpi=given.dpi, file=given.style),
    }
    from vision_attn.report.diagram import write_phase
    from vision_attn.report.phase import phase, shares

    if out is not None and len(roots) > 1 and shares(roots):
        for option in ("reference", "models"):
            if figures[option] is not None:
                raise UserError(
                    f"{option} is not for a phase diagram, which compares attention with every"
                    " model that has none; leave it out"
                )
        write_phase(phase(roots), out, figures["kinds"], figures["looks"])
        plain_console().print(f"phase diagram: {out} (phase, phase_accuracy, boundary.csv)")
        return 0
    write_report(plain_console(), roots, out or roots[0], **figures)
    return 0


def budget(about: str, args: Sequence[str]) -> int:
    """Show what the models of a study cost."""
    _, study = study_of("budget", about, args)

    from vision_attn.models.cost import activation_bytes
    from vision_attn.models.registry import create_model
    from vision_attn.study.cells import model_errors

    console = plain_console()
    made = ready(study, console)
    source = made.source
    shape: dict[str, Any] = {"img_size": source.img_size, "in_chans": source.in_chans}
    kept: dict[str, int] = {}
    for label, arm in made.arms.items():
        model = create_model(arm.arch, **shape, num_classes=len(source.classes), args=arm.args)
        with model_errors(arm.arch, source):
            kept[label] = activation_bytes(model, **shape)
    show_costs(console, made.arms.values(), kept)
    return 0
