"""The command predict on files of images, which need no labels."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vision_attn.commands.arguments import command_parser, out_path, parse
from vision_attn.commands.ends import ROOT, find_checkpoint
from vision_attn.errors import UserError
from vision_attn.texts import csv_text, tally

if TYPE_CHECKING:
    from torch import Tensor

    from vision_attn.explain.checkpoint import Trained

__all__ = ["predict"]

BATCH = 256
"""Images that are read and classified at a time."""


def predict(about: str, args: Sequence[str]) -> int:
    """Write the likeliest class of each image and its probability; print how many of each."""
    parser = command_parser("predict", about)
    parser.add_argument("--ckpt_path", type=str, required=True, help="a checkpoint, last or best")
    parser.add_argument("--image", type=str, nargs="+", required=True, help="files, or folders")
    parser.add_argument("--out", type=str, default=f"{ROOT}/predictions.csv", help="a .csv file")
    parser.add_argument(
        "--convert", type=bool, default=False, help="grey images to colour, or colour to grey"
    )
    given = parse(parser, args)
    out = out_path(given.out)
    if out.suffix != ".csv":
        raise UserError(f"out {out} ends in {out.suffix or 'nothing'}; wanted .csv")
    checkpoint = find_checkpoint(given.ckpt_path)

    import pandas as pd

    from vision_attn.explain.checkpoint import load_classifier
    from vision_attn.files import write_text, writing

    trained = load_classifier(checkpoint)
    files = _files(given.image)
    changed: list[str] = []
    rows = [
        {"image": str(file), "predicted": trained.classes[i], "probability": round(share, 6)}
        for file, share, i in _likeliest(files, trained, given.convert, changed)
    ]
    with writing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, csv_text(pd.DataFrame(rows)))
    if changed:
        print(f"changed before they were shown to the model: {len(changed)}, such as {changed[0]}")
    print(tally(str(row["predicted"]) for row in rows))
    print(f"predictions of {len(rows)} image{'s' * (len(rows) > 1)} are in {out}")
    return 0


def _files(paths: Sequence[str]) -> list[Path]:
    """Files as given, and all images in folders and the folders within, by name; dots are left out.

    Raises:
        UserError: a folder without images.
    """
    from vision_attn.data.images import endings

    files: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in endings() and p.is_file())
        inside = [
            p for p in inside if not any(x.startswith(".") for x in p.relative_to(path).parts)
        ]
        if not inside:
            raise UserError(f"image {path} is a folder without images; give one that has some")
        files += inside
    return files


def _likeliest(
    files: Sequence[Path], trained: "Trained", convert: bool, changed: list[str]
) -> Iterator[tuple[Path, float, int]]:
    """Each file with the largest probability and its class; what was changed goes to `changed`."""
    import torch

    from vision_attn.explain.checkpoint import read_images

    with torch.inference_mode():
        for start in range(0, len(files), BATCH):
            part = files[start : start + BATCH]
            pixels, notes = read_images(part, trained, convert=convert)
            changed += notes
            logits: Tensor = trained.model(trained.normalise(pixels))
            shares, classes = logits.float().softmax(-1).max(-1)
            yield from zip(part, shares.tolist(), classes.tolist(), strict=True)
