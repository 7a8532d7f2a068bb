"""Configurations that come with the package, by name: `--config quick` from any directory."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from vision_attn.errors import UserError
from vision_attn.names import near

__all__ = ["presets", "with_presets"]

_PACKAGE = Path(__file__).parents[1]


def presets() -> dict[str, Path]:
    """Files of the presets by name: inside an installed package, beside it in a checkout."""
    inside, beside = _PACKAGE / "configs", _PACKAGE.parent / "configs"
    folder = inside if inside.is_dir() else beside
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def with_presets(args: Iterable[str]) -> list[str]:
    """A command line with the file of each preset; a file or folder of that name comes first.

    Files stand before the options, wherever they were, so that an option overrides them.

    Raises:
        UserError: a word after `--config` that is neither.
    """
    files: list[str] = []
    others: list[str] = []
    words = iter(args)
    for word in words:
        option, equals, value = word.partition("=")
        if option not in ("--config", "-c"):
            others.append(word)
        elif equals:
            files.append(f"{option}={_file(value)}")
        else:
            files += [word, *(_file(name) for name in islice(words, 1))]
    return files + others


def _file(name: str) -> str:
    word = name.removesuffix(".yaml")
    plain = word.replace("_", "").isalnum()  # else a path, or options written out
    if not plain or Path(name).exists():
        return name
    known = presets()
    if word in known:
        return str(known[word])
    if word != name:
        return name  # a file that is missing, which its reader says
    raise UserError(f"config {name!r} is no file and no preset; {near(name, known)}")
