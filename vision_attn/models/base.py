"""What timm asks of an image classifier: features between layers, another head, a description."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from timm.models import (
    build_model_with_cfg,
    register_notrace_module,
    resolve_pretrained_cfg,
)
from timm.models._features import feature_take_indices  # timm's builders' own, exported nowhere
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vision_attn.errors import UserError
from vision_attn.layers.base import HeadedAttention
from vision_attn.layers.conv import OffsetBias
from vision_attn.layers.embed import PatchEmbed
from vision_attn.layers.mixer import DepthwiseConv, TokenBatchNorm
from vision_attn.models.pretrained import Pretrained
from vision_attn.ops.checks import check_choice

__all__ = ["ImageClassifier", "build", "small_cfg"]

for _leaf in (HeadedAttention, OffsetBias, PatchEmbed, DepthwiseConv, TokenBatchNorm):
    register_notrace_module(_leaf)  # their checks of shapes are control flow, which fx cannot trace


class ImageClassifier(Pretrained, nn.Module):
    """Layers one after another, pooling, a linear head: (B, C, h, w) -> (B, classes).

    It has timm's methods, and the Hub's. A subclass sets what is declared here, gives `enter`,
    `pool` and, where it is more than a call, `layer`, and ends its constructor with `describe`.
    """

    img_size: tuple[int, int]
    in_chans: int
    num_classes: int
    num_features: int
    global_pool: str
    head: nn.Module
    head_drop: nn.Module
    first_conv: str | tuple[str, ...]
    """Names of the modules that see the image, as in timm's `pretrained_cfg`."""
    pools: tuple[str, ...] = ("avg",)
    """Kinds of pooling; none at all, '', is always possible."""
    layer_names: tuple[str, ...] = ("blocks",)
    """Names of the layers, and of what else has one part for each of them."""
    num_prefix_tokens = 0
    fixed_input_size = True
    pool_size: tuple[int, int] | None = None
    grad_checkpointing = False

    @property
    def head_hidden_size(self) -> int:
        """Width of the pooled features, in front of the head."""
        return self.num_features

    @property
    def layers(self) -> nn.Sequential:
        """The layers whose outputs `forward_intermediates` gives."""
        return getattr(self, self.layer_names[0])

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Module, channels and pixels a cell of each layer's output, for timm's `FeatureInfo`."""
        return []

    def enter(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images (B, C, h, w) -> what the first layer takes, and the grid of its tokens."""
        raise NotImplementedError

    def layer(self, index: int, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """One of the layers."""
        return self.layers[index](x)

    def leave(self, x: Tensor) -> Tensor:
        """The norm behind the last layer, if there is one."""
        return self.norm(x) if hasattr(self, "norm") else x

    def pool(self, x: Tensor) -> Tensor:
        """Features of the image -> (B, D); as they are where `global_pool` is ''."""
        raise NotImplementedError

    def start_head(self, head: nn.Module) -> None:
        """Initial weights of a new head; torch's own if this does nothing."""

    def sizes(self) -> dict[str, Any]:
        """What timm's configuration of a model says of this one."""
        return {
            "input_size": (self.in_chans, *self.img_size),
            "fixed_input_size": self.fixed_input_size,
            "num_classes": self.num_classes,
            "pool_size": self.pool_size,
            "first_conv": self.first_conv,
            "classifier": "head",
        }

    def describe(self) -> None:
        """Set `pretrained_cfg` and its older name, from which timm takes sizes and statistics."""
        self.pretrained_cfg = self.default_cfg = small_cfg(**self.sizes())

    def check_head(self, num_classes: int, global_pool: str) -> None:
        """A UserError for pooling that is not known, or logits without any."""
        if global_pool:
            check_choice(self.pools, global_pool=global_pool)
        elif num_classes:
            raise UserError(
                "global_pool='' leaves features unpooled, which the head does not take;"
                " wanted num_classes=0 with it"
            )

    def no_weight_decay(self) -> set[str]:
        """Names of parameters, beside norms and biases, that weight decay must leave alone."""
        return set()

    def get_classifier(self) -> nn.Module:
        """The head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head for so many classes, 0 for none; other pooling too, '' for none.

        Raises:
            UserError: pooling that the model has no parameters for, logits without pooling.
        """
        pool = self.global_pool if global_pool is None else global_pool
        self.check_head(num_classes, pool)
        like = next(self.parameters(), torch.empty(0))
        self.num_classes, self.global_pool = num_classes, pool
        head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
        self.start_head(head)
        self.head = head.to(like).train(self.training)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Compute each layer again in the backward pass, to save memory.

        Batch norms then see every batch twice.
        """
        self.grad_checkpointing = enable

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """(B, C, h, w) -> final features, and those behind chosen layers; timm's method.

        Args:
            indices: layers wanted; a number is so many of the last, None is all.
            return_prefix_tokens: give (features, class token) for each layer that has one.
            norm: put the final norm behind each.
            stop_early: compute no layer behind the last that is wanted.
            output_fmt: `NCHW`, maps (B, D, h, w); `NLC`, tokens (B, N, D).
            intermediates_only: only the list.

        Raises:
            UserError: another format, layers that there are not.
        """
        check_choice(("NCHW", "NLC"), output_fmt=output_fmt)
        taken, last = self._taken(indices)
        x, grid = self.enter(x)
        features = []
        for i in range(last + 1 if stop_early else len(self.layers)):
            x = self._layer(i, x, grid)
            if i in taken:
                features.append(self.leave(x) if norm else x)
        prefix = [y[:, : self.num_prefix_tokens] for y in features]
        features = [_as_format(y, self.num_prefix_tokens, grid, output_fmt) for y in features]
        outputs: list[Any] = features
        if return_prefix_tokens and self.num_prefix_tokens:
            outputs = list(zip(features, prefix, strict=True))
        return outputs if intermediates_only else (self.leave(x), outputs)

    def get_intermediate_layers(
        self,
        x: Tensor,
        n: int | Sequence[int] = 1,
        reshape: bool = False,
        return_prefix_tokens: bool = False,
        norm: bool = False,
    ) -> list[Any]:
        """`forward_intermediates` by DINO's names: tokens, or maps with `reshape`."""
        return self.forward_intermediates(
            x, n, return_prefix_tokens, norm, True, "NCHW" if reshape else "NLC", True
        )

    def prune_intermediate_layers(
        self,
        indices: int | Sequence[int] = 1,
        prune_norm: bool = False,
        prune_head: bool = True,
    ) -> list[int]:
        """Take off the layers behind the last one that is wanted; the indices from the front."""
        taken, last = self._taken(indices)
        for name in self.layer_names:
            if (parts := getattr(self, name)) is not None:
                setattr(self, name, parts[: last + 1])
        if prune_norm and hasattr(self, "norm"):
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return taken

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> features of the image, before pooling."""
        x, grid = self.enter(x)
        for i in range(len(self.layers)):
            x = self._layer(i, x, grid)
        return self.leave(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Features of the image -> (B, classes), or the pooled features (B, D)."""
        x = self.head_drop(self.pool(x))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes)."""
        return self.forward_head(self.forward_features(x))

    def _taken(self, indices: int | Sequence[int] | None) -> tuple[list[int], int]:
        """The layers wanted, from the front, and the last of them."""
        try:
            chosen = indices if isinstance(indices, int | None) else list(indices)
            return feature_take_indices(len(self.layers), chosen)
        except AssertionError as e:
            raise UserError(f"{type(self).__name__} has {len(self.layers)} layers: {e}") from e

    def _layer(self, index: int, x: Tensor, grid: tuple[int, int]) -> Tensor:
        if self.grad_checkpointing:
            return checkpoint(self.layer, index, x, grid, use_reentrant=False)
        return self.layer(index, x, grid)


def _as_format(x: Tensor, prefix: int, grid: tuple[int, int], output_fmt: str) -> Tensor:
    """Tokens (B, prefix + h*w, D) or maps (B, D, h, w) as NLC or NCHW."""
    if x.ndim == 4:
        return x if output_fmt == "NCHW" else x.flatten(2).mT
    x = x[:, prefix:]
    return x.mT.unflatten(2, grid).contiguous() if output_fmt == "NCHW" else x


def small_cfg(**changes: Any) -> dict[str, Any]:
    """timm's configuration of a model without weights: RGB images of 32 x 32 pixels, 10 classes.

    The statistics are timm's for its ViTs, for as many channels as there are; those of a trained
    model's own data are told by `pretrained_cfg_overlay`.
    """
    chans = changes.get("input_size", (3,))[0]
    return {
        "input_size": (3, 32, 32),
        "fixed_input_size": True,
        "num_classes": 10,
        "pool_size": None,
        "crop_pct": 1.0,
        "interpolation": "bicubic",
        "mean": (0.5,) * chans,
        "std": (0.5,) * chans,
        "first_conv": "patch_embed.proj",
        "classifier": "head",
        **changes,
    }


Model = TypeVar("Model", bound=ImageClassifier)


def build(
    cls: type[Model],
    variant: str,
    pretrained: bool,
    filter_fn: Callable[..., Any] | None = None,
    **kwargs: Any,
) -> Model:
    """A registered model by timm's builder, with a `pretrained_cfg` of its true sizes.

    Args:
        cls: the class; `kwargs` are its arguments and timm's, such as `features_only`.
        variant: the registered name.
        pretrained: load weights, from the `file` or another source in `pretrained_cfg_overlay`.
        filter_fn: what makes a state of this model of the one that is loaded.

    Raises:
        UserError: `pretrained` without a source of weights, and what the class refuses.
    """
    given = {k: kwargs.get(k) for k in ("pretrained_cfg", "pretrained_cfg_overlay")}
    cfg = resolve_pretrained_cfg(variant, **given)
    if pretrained and not (cfg.has_weights or cfg.state_dict):
        raise UserError(
            "pretrained=True: this package has no trained weights; use timm:NAME, or name a file in"
            " pretrained_cfg_overlay"
        )
    sizes: dict[str, Any] = {}

    def make(**args: Any) -> Model:
        model = cls(**args)
        sizes.update(model.sizes())
        return model

    model = build_model_with_cfg(
        make,
        variant,
        pretrained,
        pretrained_filter_fn=filter_fn,
        feature_cfg={"out_indices": 3, "feature_cls": "getter"},
        **kwargs,
    )
    own = {**model.pretrained_cfg, **{k: v for k, v in sizes.items() if k in model.pretrained_cfg}}
    for name in ("mean", "std"):
        if len(own[name]) != own["input_size"][0]:
            own[name] = small_cfg(input_size=own["input_size"])[name]
    model.pretrained_cfg = model.default_cfg = own
    return model
