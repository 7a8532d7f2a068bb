"""Files that are never half written, and what they may hold."""

import errno
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vision_attn.errors import UserError

__all__ = ["as_json", "plain", "write_bytes", "write_text", "writing"]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write `path` into a UserError that names a way on."""
    try:
        yield
    except OSError as e:
        full = e.errno in (errno.ENOSPC, errno.EDQUOT)
        way = "free some space" if full else "choose a place that can be written"
        raise UserError(
            f"{path} cannot be written: {e.strerror or e}; {way} and start again, what is"
            " finished is kept"
        ) from e


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside, then rename: a reader never sees half a file."""
    beside = path.with_name(f".{path.name[:100]}.{os.getpid()}")
    with writing(path):
        try:
            beside.write_bytes(content)
            beside.replace(path)
        except OSError:
            with suppress(OSError):  # half a file would keep space that is short
                beside.unlink()
            raise


def write_text(path: Path, text: str) -> None:
    """The same for text, as UTF-8; what is none, as a file name can be, in escapes."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def as_json(value: Any) -> str:
    """Strict JSON: a number that is not finite is null, never the word NaN."""

    def clean(v: Any) -> Any:
        if isinstance(v, dict):
            return {str(k): clean(x) for k, x in v.items()}
        if isinstance(v, (list, tuple)):
            return [clean(x) for x in v]
        if hasattr(v, "item"):
            v = v.item()
        return None if isinstance(v, float) and not math.isfinite(v) else v

    return json.dumps(clean(value), indent=2, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Only what YAML and JSON hold: tuples become lists."""
    return json.loads(json.dumps(value))
