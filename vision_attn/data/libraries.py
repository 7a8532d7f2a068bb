"""Data sets that other code holds: classes by their path, torchvision's, and Hugging Face's."""

from collections.abc import Mapping
from http.client import HTTPException
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from vision_attn.data.arrays import of_items
from vision_attn.errors import UserError

__all__ = ["read_class", "read_hub"]

_TRAIN, _TEST = ("train", "trainval"), ("test", "val", "valid", "validation")
"""Names of splits, in the order in which they are tried."""


def read_class(name: str, root: Path, **options: Any) -> Any:
    """A data set by the path of its class, or of a function that gives a `Source`.

    The class is called as torchvision's are: with `root` and `download=True` where it takes them,
    and with `train=True` and `False`, or `split="train"` and `"test"`. One that takes neither has
    no test set of its own.

    Args:
        name: `package.module.Name`, or `torchvision:Name`.
        options: of `of_items`.

    Returns:
        Parts of a `Source`, or the `Source` that a function gave.

    Raises:
        UserError: nothing of that name, other arguments that it needs, and what it raises.
    """
    path = name.replace("torchvision:", "torchvision.datasets.")
    module, _, last = path.rpartition(".")
    try:
        thing = getattr(import_module(module), last)
        takes = signature(thing).parameters
    except (ImportError, AttributeError, TypeError, ValueError) as e:
        raise UserError(
            f"data.name {name}: {e}; wanted the path of a class or function that Python finds"
            " (in this directory, or a folder that PYTHONPATH names)"
        ) from e
    given: dict[str, Any] = {"root": str(root), "download": True}
    given = {k: v for k, v in given.items() if k in takes}
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    needed = {k for k, p in takes.items() if p.default is p.empty and p.kind in kinds}
    if others := sorted(needed - {*given, "train", "split"}):
        raise UserError(
            f"data.name {name} needs {others[0]}, which cannot be given here; make the data sets in"
            " Python and give Source.from_dataset(train, test)"
        )
    try:
        if "train" in takes:
            train, test = (thing(**given, train=part) for part in (True, False))
        elif "split" in takes:
            train, test = (_split(thing, given, names) for names in (_TRAIN, _TEST))
        else:
            train, test = thing(**given), None
    except (HTTPException, ImportError, OSError, RuntimeError, ValueError) as e:
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise UserError(f"data.name {name} cannot be read under {root}: {reason}") from e
    if not hasattr(train, "__getitem__"):
        return train
    classes = getattr(train, "classes", None)
    return of_items(train, test, what=name, classes=classes, **options)


def _split(thing: Any, given: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of the splits that there is; torchvision raises ValueError for one that is not."""
    for name in names[:-1]:
        try:
            return thing(**given, split=name)
        except ValueError:
            continue
    return thing(**given, split=names[-1])


def read_hub(name: str, root: str | None, **options: Any) -> dict[str, Any]:
    """A data set of Hugging Face's `datasets`: of the hub, or a folder of parquet or arrow files.

    Args:
        name: `owner/name` of the hub; with `root` any name.
        root: a folder that `save_to_disk` wrote, or one with files that `load_dataset` reads.
        options: of `of_items`.

    Raises:
        UserError: without the package `datasets`; nothing there; not one column of images and one
            of labels.
    """
    try:
        import datasets
    except ImportError as e:
        raise UserError(
            f"data.name hf:{name} needs the package datasets: pip install 'vision-attn[hf]'"
        ) from e
    try:
        datasets.disable_progress_bars()
        if root is not None and not Path(root).is_dir():
            raise UserError(f"data.root {root} is no folder; wanted parquet or arrow files")
        if root is None:
            made = datasets.load_dataset(name)
        elif any(Path(root, f).exists() for f in ("dataset_dict.json", "state.json")):
            made = datasets.load_from_disk(root)
        else:
            made = datasets.load_dataset(root)
    except UserError:
        raise
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as e:
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise UserError(f"data.name hf:{name} cannot be read: {reason}") from e
    splits: Mapping[str, Any] = made if isinstance(made, Mapping) else {"train": made}
    train, test = (next((n for n in names if n in splits), None) for names in (_TRAIN, _TEST))
    if train is None:
        raise UserError(f"hf:{name} has the splits {', '.join(splits)}; wanted train")
    features = splits[train].features
    image = _one(
        [k for k, f in features.items() if isinstance(f, datasets.Image)], ("image", "img"), name
    )
    own = {k: f for k, f in features.items() if not k.startswith("__")}  # WebDataset's __key__
    others = [k for k, f in own.items() if getattr(f, "dtype", "") in _WHOLE]
    known = [k for k in others if isinstance(features[k], datasets.ClassLabel)]
    label = _one(known or others, ("label", "labels", "fine_label"), name)
    pairs = [None if n is None else _Pairs(splits[n], image, label) for n in (train, test)]
    classes = getattr(features[label], "names", None)
    return of_items(*pairs, what=f"hf:{name}", classes=classes, **options)


_WHOLE = {f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)} | {"bool", "string"}


def _one(columns: list[str], usual: tuple[str, ...], name: str) -> str:
    """The one column of a kind, or the one with a usual name."""
    found = columns if len(columns) == 1 else [n for n in usual if n in columns]
    if not found:
        what = "images" if "image" in usual else "labels"
        has = f"{', '.join(columns)} may be" if columns else "no column has"
        raise UserError(
            f"hf:{name}: {has} the {what}; wanted one, or one called {' or '.join(usual)}"
        )
    return found[0]


class _Pairs:
    """A split as pairs (image, label)."""

    def __init__(self, split: Any, image: str, label: str) -> None:
        self.split, self.columns = split.select_columns([image, label]), (image, label)

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        row = self.split[number]
        return row[self.columns[0]], row[self.columns[1]]
