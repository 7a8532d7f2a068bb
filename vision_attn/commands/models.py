"""Models of timm and arguments of models by name, checked before torch is imported.

That takes seconds, and `models.registry` checks them again on what there is.
"""

import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from vision_attn.errors import UserError
from vision_attn.names import ARGUMENTS, SHAPE, check_model
from vision_attn.ops.checks import check_known, weight_sources

__all__ = ["check_names", "timm_names", "timm_sources"]


def check_names(arch: str, args: Iterable[str] = ()) -> None:
    """UserError for a model, or a name of an argument of it, that there is not."""
    check_model(arch)
    if arch.startswith("timm:"):
        _check_timm(arch)
    elif not weight_sources(dict.fromkeys(args := list(args))):
        try:
            check_known("argument", args, (*SHAPE, *ARGUMENTS[arch]))
        except UserError as e:
            raise UserError(f"model {arch!r}: {e}") from e


def _check_timm(arch: str) -> None:
    """UserError for a name that stands nowhere in timm; others are left to timm itself."""
    if "timm" in sys.modules or arch.startswith("timm:vision_attn_"):
        return  # there may be models of the user's own
    name, sources = arch.removeprefix("timm:").partition(".")[0], timm_sources()
    if sources and not any(name in source for source in sources):
        near = get_close_matches(arch, [f"timm:{n}" for n in timm_names()], n=3)
        try_these = f"try {', '.join(near)}" if near else "timm.list_models() names all"
        raise UserError(f"model {arch!r} is not known; {try_these}")


def timm_sources() -> list[str]:
    """The source of timm's models; empty where it lies elsewhere than in files."""
    spec = find_spec("timm")
    places = (spec.submodule_search_locations or ()) if spec else ()
    files = [file for place in places for file in Path(place, "models").glob("*.py")]
    return [file.read_text(encoding="utf-8") for file in sorted(files)]


def timm_names() -> list[str]:
    """Names of timm's models."""
    return [n for s in timm_sources() for n in re.findall(r"^def (\w+)\(pretrained", s, re.M)]
