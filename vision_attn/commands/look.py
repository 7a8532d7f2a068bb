"""The commands explain and diagnose."""

import re
from collections.abc import Sequence
from pathlib import Path

from vision_attn.commands.arguments import command_parser, out_path, parse
from vision_attn.errors import UserError
from vision_attn.texts import console as plain_console

__all__ = ["diagnose", "explain"]


def explain(about: str, args: Sequence[str]) -> int:
    """Draw what a trained model attends to."""
    parser = command_parser("explain", about)
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

    from vision_attn.explain.view import explain as draw

    for line in draw(
        Path(given.ckpt),
        [Path(path) for path in given.image],
        out_path(given.out),
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
    parts = [part.strip() for part in text.strip("[] ").split(",")]
    if not all(re.fullmatch("0|-?[1-9][0-9]{0,8}", part) for part in parts):
        raise UserError(f"{name} is {text!r}; wanted whole numbers as 0,2")
    return [int(part) for part in parts]


def diagnose(about: str, args: Sequence[str]) -> int:
    """Measure the claims about attention."""
    from vision_attn.claims.run import FULL, QUICK, check_out, terminal_view, write_claims
    from vision_attn.claims.run import diagnose as measure
    from vision_attn.data.sources import DataConfig, load

    parser = command_parser("diagnose", about)
    parser.add_argument("--config", action="config", help="a YAML file of these options")
    parser.add_class_arguments(DataConfig, "data", skip={"val_fraction"})
    parser.add_argument("--out", type=str, default="runs/diagnose", help="directory of the results")
    parser.add_argument("--quick", action="store_true", help="little work, wide intervals: a trial")
    parser.add_argument("--overwrite", action="store_true", help="replace results that are there")
    given = parser.instantiate_classes(parse(parser, args))
    out, settings, console = out_path(given.out), QUICK if given.quick else FULL, plain_console()
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
