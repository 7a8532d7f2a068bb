"""Weights of a model as a folder or a repository of the Hugging Face Hub, in timm's format."""

import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import PyTorchModelHubMixin, hf_hub_download
from safetensors.torch import load_file
from torch import nn

from vision_attn.errors import UserError
from vision_attn.ops.checks import weight_sources

__all__ = ["Pretrained", "plain_names"]

Model = TypeVar("Model", bound="Pretrained")

_WEIGHTS = "model.safetensors"
_KEPT = ("input_size", "fixed_input_size", "num_classes", "pool_size", "crop_pct", "interpolation",
         "mean", "std", "first_conv", "classifier")  # fmt: skip
_AROUND = ("_orig_mod", "module", "model")
"""Names that torch.compile, DataParallel and a LightningModule put before those of a model."""


def plain_names(state: MutableMapping[str, Any], prefix: str = "", own: Any = ()) -> None:
    """Take off, in place, what `torch.compile` and others put before all names of a state.

    Args:
        state: its names behind `prefix` are changed.
        own: names that a model's own parts have, which stay.
    """
    while names := [name for name in state if name.startswith(prefix)]:
        around = (f"{prefix}{word}." for word in _AROUND if word not in own)
        found = next((a for a in around if all(n.startswith(a) for n in names)), None)
        if found is None:
            return
        for name in names:
            state[prefix + name[len(found) :]] = state.pop(name)


class Pretrained(PyTorchModelHubMixin, library_name="timm", tags=["image-classification"]):
    """`save_pretrained`, `from_pretrained` and `push_to_hub` for a model of this package.

    A folder holds `model.safetensors` and `config.json`: the registered name and the arguments, as
    timm writes them, so that `timm.create_model("local-dir:DIR", pretrained=True)` reads it too.
    """

    architecture: str
    """The name by which timm builds the class."""
    _hub_mixin_config: Any
    _unwritten: list[str]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Keep the arguments, and the names of those that are no JSON."""
        model = super().__new__(cls, *args, **kwargs)
        names = list(cls._hub_mixin_init_parameters)[1:]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        written = model._hub_mixin_config or {}
        model._unwritten = [k for k, v in given.items() if written.get(k) is not v]
        return model

    def _save_pretrained(self, save_directory: Path) -> None:
        if self._unwritten:
            raise UserError(
                f"{type(self).__name__} has {self._unwritten[0]}, which config.json cannot hold;"
                " keep its state_dict(), and build the model in code"
            )
        args = dict(self._hub_mixin_config or {})
        now: Any = self
        args |= {"num_classes": now.num_classes, "global_pool": now.global_pool}
        cfg = {**now.pretrained_cfg, **now.sizes()}
        config = {
            "architecture": self.architecture,
            "num_classes": now.num_classes,
            "num_features": now.num_features,
            "model_args": args,
            "pretrained_cfg": {k: cfg[k] for k in _KEPT if cfg.get(k) is not None},
        }
        super()._save_pretrained(save_directory)
        text = json.dumps(config, indent=2) + "\n"
        (save_directory / "config.json").write_text(text, encoding="utf-8")

    @classmethod
    def from_pretrained(
        cls: type[Model], pretrained_model_name_or_path: str | Path, **options: Any
    ) -> Model:
        """The model of a folder that `save_pretrained` wrote, or of a repository; in eval mode.

        A folder needs no network, and nothing is unpickled.

        Args:
            pretrained_model_name_or_path: the folder, or a repository's `owner/name`.
            options: of a download: `revision`, `token`, `cache_dir`, `force_download`,
                `local_files_only`.

        Raises:
            UserError: (a ValueError) neither of them, a model of another class, arguments that
                would load another file, weights that do not fit.
        """
        where = pretrained_model_name_or_path
        try:
            return super().from_pretrained(where, **options)
        except UserError:
            raise
        except (OSError, ValueError) as e:
            reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
            raise UserError(
                f"{where} is no folder with config.json and {_WEIGHTS}, and no repository that can"
                f" be fetched: {reason}"
            ) from e

    @classmethod
    def _from_pretrained(
        cls: type[Model], *, model_id: str, config: Any = None, revision: str | None,
        cache_dir: str | Path | None, force_download: bool, local_files_only: bool,
        token: str | bool | None, **given: Any,
    ) -> Model:  # fmt: skip
        config = config or {}
        for name, value in given.items():
            if config.get(name) != value:
                raise UserError(
                    f"from_pretrained: {name} comes from config.json; for another head use"
                    " reset_classifier"
                )
        name, args = config.get("architecture"), config.get("model_args")
        if not isinstance(name, str) or not isinstance(args, dict):
            raise UserError(f"{model_id}: config.json names no architecture with its model_args")
        if name != cls.architecture:
            raise UserError(
                f"{model_id} holds {name}, not {cls.architecture}; any is read by"
                f" timm.create_model('local-dir:{model_id}', pretrained=True)"
            )
        for source in weight_sources(args):
            raise UserError(f"{model_id}: the argument {source} would load another file")
        if Path(model_id).is_dir():
            file = str(Path(model_id, _WEIGHTS))
        else:
            file = hf_hub_download(
                model_id, _WEIGHTS, revision=revision, cache_dir=cache_dir, token=token,
                force_download=force_download, local_files_only=local_files_only,
            )  # fmt: skip
        model: Any = cls(**args)
        try:
            model.load_state_dict(load_file(file))
        except RuntimeError as e:
            said = " ".join(str(e).split())
            raise UserError(f"{model_id}: the weights do not fit the arguments: {said}") from e
        for key in ("mean", "std"):
            if value := config.get("pretrained_cfg", {}).get(key):
                model.pretrained_cfg[key] = tuple(value)
        return model.eval()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        assert isinstance(self, nn.Module)
        plain_names(state_dict, prefix, self._modules)
        super()._load_from_state_dict(state_dict, prefix, *others)  # type: ignore[misc]
