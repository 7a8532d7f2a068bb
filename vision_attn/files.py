"""Files that are never half written, and what they may hold."""

import json
import math
import os
from pathlib import Path
from typing import Any

__all__ = ["as_json", "plain", "write_bytes", "write_text"]


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside, then rename: a reader never sees half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)


def write_text(path: Path, text: str) -> None:
    """The same for text."""
    write_bytes(path, text.encode())


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
