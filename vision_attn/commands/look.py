"""The commands explain and diagnose."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from vision_attn.commands.arguments import command_parser, out_path, parse
from vision_attn.errors import UserError
from vision_attn.texts import console as plain_console

__all__ = ["diagnose", "explain"]


def explain(about: str, args: Sequence[str]) -> int:
    """Draw what a trained model attends to."""
    parser = command_parser("explain", about)
    parser.add_argument("--ckpt", type=str | None, default=None, help="of fit, or of compare")
    parser.add_argument(
        "--model", type=str | None, default=None, help="timm:NAME, instead of a checkpoint"
    )
    parser.add_argument(
        "--weights",
        type=str,
        default="pretrained",
        help="of --model: pretrained (timm's, from the hub), a file, or none (untrained)",
    )
    parser.add_argument(
        "--image", type=str, nargs="+", required=True, help="files, or folders of images"
    )
    parser.add_argument(
        "--out", type=str, required=True, help="a .png, .pdf or .svg, or an .html to point at"
    )
    parser.add_argument("--layers", type=str | None, default=None, help="as 0,2; null is all")
    parser.add_argument("--heads", type=str | None, default=None, help="as 0,2; null is all")
    parser.add_argument(
        "--query",
        type=str | None,
        default=None,
        help="row,column of a pixel; null is the class token, or the mean over all tokens",
    )
    parser.add_argument(
        "--scale",
        type=Literal["even", "max", "shared"],
        default="even",
        help="colours: over the even share, from 0 to a map's largest, or one scale for all maps",
    )
    parser.add_argument(
        "--rollout",
        type=Literal["mean", "max", "gradient"],
        default="mean",
        help="heads fused by mean or max, or the gradient of the most likely class",
    )
    parser.add_argument("--overwrite", type=bool, default=False, help="replace --out")
    parser.add_argument(
        "--convert", type=bool, default=False, help="grey images to colour, or colour to grey"
    )
    given = parse(parser, args)
    layers, heads, query = (_numbers(n, given[n]) for n in ("layers", "heads", "query"))
    if query is not None and len(query) != 2:
        raise UserError(f"query {given.query!r} has {len(query)} numbers; wanted row,column")
    if (given.ckpt is None) == (given.model is None):
        raise UserError("give one of --ckpt FILE and --model timm:NAME")
    if given.ckpt is not None and given.weights != "pretrained":
        raise UserError("weights is for --model; a checkpoint has its own")
    out = out_path(given.out)
    _check_picture(out, given.overwrite)

    from vision_attn.explain import overview, page
    from vision_attn.explain.checkpoint import image_files, load_classifier, read_images
    from vision_attn.explain.inspection import inspect_images, token_at

    files, notes = image_files([Path(path) for path in given.image])
    if given.ckpt is not None:
        trained = load_classifier(Path(given.ckpt))
    else:
        from vision_attn.explain.pretrained import load_timm

        trained = load_timm(given.model, given.weights)
    pixels, more = read_images(files, trained, convert=given.convert)
    shown = inspect_images(
        trained, [p.name for p in files], pixels, layers=layers, heads=heads, rollout=given.rollout
    )
    token = None if query is None else token_at((query[0], query[1]), trained, shown.tokens)
    (page.write if out.suffix == ".html" else overview.draw)(shown, out, token, given.scale)
    for line in (*notes, *more):
        print(line)
    print(f"maps of {len(files)} image{'s' * (len(files) > 1)} are in {out}")
    return 0


def _check_picture(out: Path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before anything is read."""
    wanted = (".png", ".pdf", ".svg", ".html")
    if out.suffix not in wanted:
        raise UserError(
            f"out {out} ends in {out.suffix or 'nothing'}; wanted {', '.join(wanted[:-1])} or .html"
        )
    if not out.parent.is_dir():
        raise UserError(f"out {out}: there is no directory {out.parent}")
    if out.exists() and (out.is_dir() or not overwrite):
        raise UserError(f"out {out} is there already; give another name, or --overwrite true")


def _numbers(name: str, text: str | None) -> list[int] | None:
    """`0,2` or `[0, 2]` as whole numbers."""
    if text is None:
        return None
    parts = [part.strip() for part in text.strip("[] ").split(",")]
    if not all(re.fullmatch("0|-?[1-9][0-9]{0,8}", part) for part in parts):
        raise UserError(f"{name} is {text!r}; wanted whole numbers as 0,2")
    return [int(part) for part in parts]


def diagnose(about: str, args: Sequence[str]) -> int:
    """Measure the claims about attention."""
    from vision_attn.data.config import DataConfig

    parser = command_parser("diagnose", about)
    parser.add_argument("--config", action="config", help="a YAML file of these options")
    parser.add_class_arguments(DataConfig, "data", skip={"val_fraction"})
    parser.add_argument("--out", type=str, default="runs/diagnose", help="directory of the results")
    parser.add_argument("--quick", action="store_true", help="little work, wide intervals: a trial")
    parser.add_argument("--overwrite", action="store_true", help="replace results that are there")
    given = parser.instantiate_classes(parse(parser, args))
    out = out_path(given.out)
    given.data.check()

    from vision_attn.claims.run import FULL, QUICK, check_out, terminal_view, write_claims
    from vision_attn.claims.run import diagnose as measure
    from vision_attn.data.sources import load

    settings, console = QUICK if given.quick else FULL, plain_console()
    check_out(out, given.overwrite)
    source = load(given.data)
    source.tell()
    with console.status("diagnose") as status:
        claims = measure(
            source, settings, tell=status.update, show=lambda c: console.print(*terminal_view(c))
        )
    write_claims(claims, settings, out)
    console.print(f"figures, tables and diagnose.md are in {out}", soft_wrap=True)
    return 0
