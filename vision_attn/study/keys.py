"""Keys of cells: a readable name and a hash of all that decides a result, from plain values."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["LATER_OPTIONS", "key_of", "key_start"]

FORMAT = 1
"""Raised whenever the same configuration would give other numbers; part of every cell's key."""

LATER_OPTIONS = {"control": "none", "optim.ema": None, "augment.transforms": None}
"""Options added after the first results, each with the value that changes nothing. That value is
left out of keys, so that earlier results keep theirs."""


def key_of(label: str, config: Mapping[str, Any], name: str, fingerprint: str) -> str:
    """A readable name and a hash of all that decides the result.

    Args:
        label: what the study calls the model.
        config: fields of a `RunConfig`, or the same values from result.json.
        name, fingerprint: of the images.
    """
    content = {"format": FORMAT, "data": fingerprint, "name": name, **config}
    if content["threads"] > 1:
        content["format"] = 2  # with several threads, short rows are summed in another order
    for option, neutral in LATER_OPTIONS.items():
        *above, last = option.split(".")
        holder = content
        for part in above:
            holder[part] = holder = dict(holder[part])
        if last in holder and holder[last] == neutral:
            del holder[last]
    digest = hashlib.blake2b(
        json.dumps(content, sort_keys=True, default=list).encode(), digest_size=5
    ).hexdigest()
    return f"{key_start(label, config)}-{digest}"


def key_start(label: str, config: Mapping[str, Any]) -> str:
    """The readable part of a key."""
    control = config.get("control", "none")
    start = _directory(label, config["model"]) + ("" if control == "none" else f"-{control}")
    return f"{start}-n{config['size']:06d}-d{config['draw']}-s{config['seed']}"


def _directory(label: str, arch: str) -> str:
    """A label as part of a directory's name; no two labels of one model have the same.

    A label that a file system would change or refuse gets a hash after `~`. A model under its own
    name needs none, since the model is part of the key.
    """
    clean = re.sub(r"""[/\\:*?"<>|~\x00-\x1f]""", "-", label)
    if len(label.encode()) <= _LONG and not label.startswith("."):
        own = label == arch
        if own or (clean == label and label != _directory(arch, arch)):
            return clean
    digest = hashlib.blake2b(label.encode(), digest_size=5).hexdigest()
    return f"{clean.lstrip('.')[: _LONG // 4]}~{digest}"


_LONG = 120
"""Bytes of a label that a directory's name holds in full."""
