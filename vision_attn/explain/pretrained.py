"""A model of timm without a checkpoint of this program: weights of a file, of the hub, or none."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import timm
import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from safetensors.torch import load_file
from timm.data import ImageNetInfo, infer_imagenet_subset, resolve_model_data_config
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.explain.checkpoint import Trained
from vision_attn.models.registry import create_model
from vision_attn.texts import one_line

__all__ = ["load_timm", "read_weights"]

_WAY = "give a file, --weights FILE (safetensors or a state dict), or --weights none"


def load_timm(name: str, weights: str = "pretrained") -> Trained:
    """A classifier of timm, with image size, mean and deviation of its own configuration.

    Args:
        name: `timm:NAME`, a tag of weights after a dot as in timm.
        weights: `pretrained`, those of the hub, kept in its cache; `none`, a model that is not
            trained; or a file, see `read_weights`, whose classes are counted in its head.

    Raises:
        UserError: an unknown name; weights that cannot be fetched or read, or do not fit.
    """
    entry = name.removeprefix("timm:")
    if entry == name:
        raise UserError(f"model is {name!r}; wanted timm:NAME, or a checkpoint of it by --ckpt")
    try:
        config = timm.get_pretrained_cfg(entry) if timm.is_model(entry) else None
    except RuntimeError as e:  # a tag that timm does not know
        raise UserError(f"model {name!r}: {e}") from e
    if config is None:
        create_model(name, img_size=(32, 32), in_chans=3, num_classes=2)  # says what is wrong
        raise UserError(f"model {name!r} has no configuration in timm; train it, and give --ckpt")
    chans, *size = config.input_size
    if weights == "none":
        model = create_model(
            name, img_size=(size[0], size[1]), in_chans=chans, num_classes=config.num_classes
        )
    else:
        stored = _hub_file(config, name) if weights == "pretrained" else Path(weights)
        model = _filled(name, entry, config, stored)
    data = resolve_model_data_config(model)
    mean, std = (255 * torch.tensor(data[key], dtype=torch.float32) for key in ("mean", "std"))
    count = int(model.num_classes)  # type: ignore[arg-type]
    trained = Trained(model.eval(), name, _classes(count), mean, std, (size[0], size[1]), chans)
    return replace(trained, untrained=weights == "none")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name, of a .safetensors file or of a state dict that `torch.save` wrote.

    The dict may lie in another one as `state_dict` or `model`. Only tensors and plain values are
    unpickled.

    Raises:
        UserError: no such file, or one of another kind.
    """
    if not path.is_file():
        raise UserError(f"weights {path} is no file; {_WAY}")
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, weights_only=True, map_location="cpu")
        for key in ("state_dict", "model"):
            content = content.get(key, content)
        tensors = {str(k): v for k, v in content.items() if isinstance(v, Tensor)}
    except Exception as e:  # whatever a file of another kind makes a reader raise
        raise UserError(
            f"weights {path} cannot be read ({type(e).__name__}); wanted safetensors or a state"
            " dict of torch"
        ) from e
    if not tensors:
        raise UserError(f"weights {path} holds no tensors; wanted safetensors or a state dict")
    return tensors


def _hub_file(config: Any, name: str) -> Path | None:
    """The weights where an earlier run left them; None where timm has to fetch them."""
    if not config.hf_hub_id:
        if config.url:
            return None
        raise UserError(f"model {name!r}: timm has no trained weights for it; {_WAY}")
    for file in ("model.safetensors", "pytorch_model.bin"):
        stored = try_to_load_from_cache(config.hf_hub_id, file)
        if isinstance(stored, str):
            return Path(stored)
    try:
        HfApi().model_info(config.hf_hub_id, timeout=10)  # timm itself would ask for a minute
    except Exception as e:  # of the hub, or of whichever client it uses
        raise _unreachable(name, e) from e
    return None


def _filled(name: str, entry: str, config: Any, stored: Path | None) -> nn.Module:
    """The model with the weights of a file, or with those that timm fetches."""
    if stored is None:
        try:
            return timm.create_model(entry, pretrained=True)
        except Exception as e:  # of the hub, or of whichever client it uses
            raise _unreachable(name, e) from e
    tensors = read_weights(stored)
    head = config.classifier[0] if isinstance(config.classifier, tuple) else config.classifier
    classes = len(tensors[f"{head}.weight"]) if f"{head}.weight" in tensors else config.num_classes
    overlay = {"state_dict": tensors, "num_classes": classes}
    try:
        return timm.create_model(
            entry, pretrained=True, num_classes=classes, pretrained_cfg_overlay=overlay
        )
    except (RuntimeError, KeyError, AttributeError, ValueError) as e:
        raise UserError(f"weights {stored} do not fit model {name!r}: {one_line(e)[:300]}") from e


def _unreachable(name: str, e: Exception) -> UserError:
    """Weights that cannot be fetched, in one line."""
    return UserError(
        f"model {name!r}: its weights cannot be fetched ({one_line(e)[:120]}); without a network"
        f" {_WAY}"
    )


def _classes(count: int) -> tuple[str, ...]:
    """Names of ImageNet's classes where there are as many as it has."""
    subset = infer_imagenet_subset({"num_classes": count})
    if subset is None:
        return tuple(f"class {i}" for i in range(count))
    info = ImageNetInfo(subset)
    return tuple(info.index_to_description(i).partition(",")[0] for i in range(count))
