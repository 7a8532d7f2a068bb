"""What stands at the end of fit and test: the result, the checkpoint, and what to type next."""

import logging
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vision_attn.errors import UserError
from vision_attn.texts import program

__all__ = [
    "ROOT",
    "RUN",
    "data_words",
    "find_checkpoint",
    "measures",
    "next_commands",
    "without_noise",
]

ROOT, RUN = "runs", "fit"
"""Where `fit` writes: ROOT/RUN/version_N, or under `trainer.default_root_dir`."""

_WORDS = ("last", "best")

_KNOWN = (
    "The dirpath has changed",  # a run that goes on has a new folder, as every run has
    "The number of training batches",  # of a small subset
    ".*LeafSpec.* is deprecated",
)
"""Warnings of Lightning on what is meant so."""

_MEASURING = (
    "Be aware that when using `ckpt_path`, callbacks",  # of training, which need no state here
    "Couldn't infer the batch indices",  # predictions are in the order of the images
)


def find_checkpoint(word: str, root: str | None = None) -> Path:
    """The file of `--ckpt_path`: as given, or `last` or `best` of the newest fit under `root`.

    Raises:
        UserError: there is no such file; another word for which Lightning would search.
    """
    if word.partition(":")[0] in ("hpc", "registry"):
        raise UserError(f"ckpt_path {word} names no file; give a checkpoint, or last or best")
    if word not in _WORDS:
        return Path(word)
    runs = Path(root or ROOT) / RUN
    found = list(runs.glob(f"*/checkpoints/{word}.ckpt"))
    if not found:
        raise UserError(f"ckpt_path {word}: no run of fit has left one in {runs}; give its file")
    return max(found, key=lambda file: file.stat().st_mtime_ns)


def measures(values: Mapping[str, Any], part: str) -> str:
    """`val_acc 0.710, val_loss 0.891` of everything that was measured on a part."""
    named = {name: float(value) for name, value in values.items() if name.startswith(f"{part}_")}
    return ", ".join(f"{name} {value:.3f}" for name, value in sorted(named.items()))


def data_words(line: Sequence[str]) -> list[str]:
    """The words of a command line that say which data and configuration, to be typed again."""
    words: list[str] = []
    taken = False
    for word in line:
        if word.startswith("-"):
            taken = word.startswith(("--data", "--config", "-c"))
        if taken:
            words.append(word)
    return words


def next_commands(checkpoint: str, line: Sequence[str], done: str, *, classifier: bool) -> str:
    """What to type after `fit` or `test`, a line each."""
    start, again = program(), data_words(line)
    ways = []
    if done == "fit":
        ways.append(["test", "--ckpt_path", checkpoint, *again])
    if classifier:
        ways.append(["explain", "--ckpt", checkpoint, "--image", "IMAGE", "--out", "maps.png"])
    if classifier and done != "fit":
        ways.append(["predict", "--ckpt_path", checkpoint, "--image", "IMAGE"])
    heads = ("next: ", *["      "] * len(ways))
    return "\n".join(f"{h}{start} {shlex.join(way)}" for h, way in zip(heads, ways, strict=False))


@contextmanager
def without_noise(command: str) -> Iterator[None]:
    """Without Lightning's adverts and its warnings of what is meant so."""
    log = logging.getLogger("lightning.pytorch.utilities.rank_zero")

    def plain(record: logging.LogRecord) -> bool:
        return "Tip:" not in record.getMessage()

    log.addFilter(plain)
    try:
        with warnings.catch_warnings():
            for text in (*_KNOWN, *(_MEASURING if command != "fit" else ())):
                warnings.filterwarnings("ignore", message=text)
            yield
    finally:
        log.removeFilter(plain)
