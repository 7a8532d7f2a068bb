"""Attention for feature maps: SAGAN (Zhang et al. 2018), non-local (Wang et al. 2018), multi-head.

The three are one formula, `x + gate(W attend(q, k, v))` with 1 x 1 convolutions q, k, v, W, and
differ in widths, scale, score and gate. The gate is closed at the start: the layer is the identity.
"""

import math
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm as with_spectral_norm
from typing_extensions import TypedDict, Unpack

from vision_attn.errors import UserError
from vision_attn.layers.base import check_heads, check_scale
from vision_attn.layers.state import in_eval
from vision_attn.ops.attention import attend
from vision_attn.ops.checks import check_choice, check_flag, check_real, check_whole
from vision_attn.ops.names import plain_names
from vision_attn.ops.tokens import image_to_pixels, pixels_to_image

__all__ = ["KINDS", "Preset", "SelfAttention2d", "add_attention"]

Kind = Literal["sagan", "nonlocal", "multihead"]
_MOST_TOKENS = 1024  # of the stage that is proposed: the scores of a head are then 4 MiB

Model = TypeVar("Model", bound=nn.Module)


class KindOptions(TypedDict, total=False):
    """What a kind of `SelfAttention2d` sets, and a call may change; None is what the kind sets.

    num_heads: heads; must divide both widths.
    qk_dim, v_dim: channels of queries and keys, and of values, all heads together. SAGAN's common
        variant has v_dim = C/2.
    bias: bias of the four convolutions.
    scale: factor on q.k; 1 or, for `multihead`, 1/sqrt(head width).
    gate: `gamma`, a scalar; `layer_scale`, a factor a channel (Touvron et al. 2021); `norm`, a
        batch norm.
    """

    num_heads: int | None
    qk_dim: int | None
    v_dim: int | None
    bias: bool | None
    scale: float | None
    gate: Literal["gamma", "layer_scale", "norm"] | None


class Preset(NamedTuple):
    """A kind of `SelfAttention2d`: what it is for, what it costs, what its paper sets.

    gflops, pooled: of one image of 64 channels and 64 x 64 pixels, without `pool` and with it.
    qk_ratio, v_ratio: C divided by the width of queries and keys, and of values.
    """

    use: str
    gflops: float
    pooled: float
    source: str
    qk_ratio: int
    v_ratio: int
    num_heads: int
    scale: float | None
    bias: bool
    gate: Literal["gamma", "norm"]


KINDS = {
    "sagan": Preset("GAN, maps of 16 to 64 pixels", 0.55, 0.15, "Zhang et al. 2018",
                    8, 8, 1, 1.0, False, "gamma"),
    "nonlocal": Preset("video, detection: behind layer2 or layer3", 2.21, 0.60, "Wang et al. 2018",
                       2, 2, 1, 1.0, True, "norm"),
    "multihead": Preset("bottleneck of a U-Net or ResNet", 4.43, 1.21, "Vaswani et al. 2017",
                        1, 1, 8, None, True, "gamma"),
}  # fmt: skip


class SelfAttention2d(nn.Module):
    """Self-attention over all pixels of a feature map: (B, C, h, w) -> (B, C, h, w).

    `sagan`: `x_i + gamma W_v sum_j softmax_j((W_f x_j).(W_g x_i)) W_h x_j`, widths C/8, no biases,
    gamma from 0. `nonlocal`: widths C/2, `x_i + BN(W_z y_i)`, the norm's scale from 0, softmax
    (embedded Gaussian) or `score="dot"`. `multihead`: `MultiHeadSelfAttention` on the pixels, times
    gamma.

    | kind | use | GFLOP at 64 x 64 | with pool | source |
    |---|---|---:|---:|---|
    | sagan | GAN, maps of 16 to 64 pixels | 0.55 | 0.15 | Zhang et al. 2018 |
    | nonlocal | video, detection: behind layer2 or layer3 | 2.21 | 0.60 | Wang et al. 2018 |
    | multihead | bottleneck of a U-Net or ResNet | 4.43 | 1.21 | Vaswani et al. 2017 |

    The cost is that of one image of 64 channels, by `models.cost.cost`; it grows with (h w)^2 but
    for `score="dot"`, which is linear in h w. The table is `KINDS`.

    Args:
        dim: channels C.
        kind: `sagan`, `nonlocal` or `multihead`.
        pool: 2 x 2 max-pool on keys and values, a quarter of the work; an odd last row or column is
            pooled by itself.
        spectral_norm: on the four convolutions (Miyato et al. 2018).
        score: `softmax`, or `dot`: q.k divided by the number of keys, whose cost is linear.
        attn_drop: dropout on the softmax weights, while training.
        init_values: start of the gate; 0 makes the layer the identity.
        fused: use torch's fused kernel where it can; False can be differentiated twice.
        changes: what differs from the kind; see `KindOptions`.

    Raises:
        UserError: (a ValueError) an unknown kind, score or gate, heads that do not divide a width,
            input of other channels.
    """

    gamma: Tensor | None

    @plain_names
    def __init__(
        self,
        dim: int,
        kind: Kind = "sagan",
        *,
        pool: bool = False,
        spectral_norm: bool = False,
        score: Literal["softmax", "dot"] = "softmax",
        attn_drop: float = 0.0,
        init_values: float = 0.0,
        fused: bool = True,
        **changes: Unpack[KindOptions],
    ) -> None:
        super().__init__()
        check_whole(dim=dim)
        check_real(0, 1, attn_drop=attn_drop)
        check_real(-math.inf, init_values=init_values)
        check_scale(changes.get("scale"))
        check_flag(pool=pool, spectral_norm=spectral_norm, fused=fused)
        check_choice(KINDS, kind=kind)
        check_choice(("softmax", "dot"), score=score)
        preset = KINDS[kind]
        own: KindOptions = {
            "num_heads": preset.num_heads,
            "qk_dim": max(1, dim // preset.qk_ratio),
            "v_dim": max(1, dim // preset.v_ratio),
            "scale": preset.scale,
            "bias": preset.bias,
            "gate": preset.gate,
        }
        setting: Any = own | {k: v for k, v in changes.items() if v is not None}
        self.dim, self.kind, self.pool, self.fused = dim, kind, pool, fused
        self.score = score
        self.num_heads, self.scale = setting["num_heads"], setting["scale"]
        head_dim = check_heads(setting["qk_dim"], self.num_heads, "qk_dim")
        check_heads(setting["v_dim"], self.num_heads, "v_dim")
        self.scale = head_dim**-0.5 if self.scale is None else self.scale
        self.attn_drop = nn.Dropout(attn_drop)
        wrap = with_spectral_norm if spectral_norm else nn.Identity()
        qk, width, bias = setting["qk_dim"], setting["v_dim"], setting["bias"]
        self.q = wrap(nn.Conv2d(dim, qk, 1, bias=bias))
        self.k = wrap(nn.Conv2d(dim, qk, 1, bias=bias))
        self.v = wrap(nn.Conv2d(dim, width, 1, bias=bias))
        self.proj = wrap(nn.Conv2d(width, dim, 1, bias=bias))
        check_choice(("gamma", "layer_scale", "norm"), gate=setting["gate"])
        self.norm: nn.Module = nn.Identity()
        self.gamma = None
        if setting["gate"] == "norm":
            self.norm = nn.BatchNorm2d(dim)
            nn.init.constant_(self.norm.weight, init_values)
        else:
            shape = () if setting["gate"] == "gamma" else (dim, 1, 1)
            self.gamma = nn.Parameter(torch.full(shape, float(init_values)))

    @plain_names
    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h, w)."""
        if x.ndim != 4 or x.shape[1] != self.dim:
            beside = f"; for tokens (B, N, {x.shape[-1]}) use MultiHeadSelfAttention({x.shape[-1]})"
            raise UserError(
                f"x has shape {tuple(x.shape)}, wanted (B, {self.dim}, h, w): this layer has dim"
                f" {self.dim}{beside if x.ndim == 3 else ''}"
            )
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.pool:
            k, v = (F.max_pool2d(t, 2, ceil_mode=True) for t in (k, v))
        q, k, v = (
            image_to_pixels(t).unflatten(2, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, v)
        )
        if self.score == "dot":
            y = q @ (k.mT @ v * (self.scale / k.shape[-2]))
        else:
            drop = self.attn_drop.p if self.training else 0.0
            y = attend(q, k, v, scale=self.scale, dropout_p=drop, fused=self.fused)
        y = pixels_to_image(y.transpose(1, 2).flatten(2), (x.shape[2], x.shape[3]))
        y = self.norm(self.proj(y))
        return x + (y if self.gamma is None else self.gamma * y)


def add_attention(
    model: Model,
    stage: str | None = None,
    kind: Kind = "sagan",
    *,
    channels: int | None = None,
    img_size: int | tuple[int, int] = 64,
    **options: Any,
) -> Model:
    """Put a `SelfAttention2d` behind a stage of a ConvNet, in place; returns the model.

    The layer is `self_attention2d` inside the stage, so no other weight changes its name. With the
    gate at 0 the model's output in eval mode stays the same, bit by bit.

    Args:
        model: any network in which the stage gives feature maps (B, C, h, w).
        stage: name of a module, such as `layer3` or `features.4`; see `model.named_modules()`. None
            is refused with the stages that there are and the one to take.
        kind, options: see `SelfAttention2d`; an unknown option is refused.
        channels: C of the stage. None: taken from running a black image through the model once.
        img_size: pixels of that image, one number or (height, width).

    Raises:
        UserError: no stage (the error proposes one of those with maps), no such stage (near names
            are listed), a stage that gives no feature map, that was not reached, that has such a
            layer already, or that runs over its children.
    """
    names = dict(model.named_modules())
    if stage is None:
        raise UserError(_proposal(model, img_size))
    if stage not in names or not stage:
        near = get_close_matches(stage, [n for n in names if n], n=5, cutoff=0.4)
        tops = [n for n, _ in model.named_children()]
        raise UserError(f"stage {stage!r} is not in the model; try {', '.join(near or tops)}")
    target = names[stage]
    if _runs_over_children(target):
        raise UserError(
            f"stage {stage!r} is a {type(target).__name__} that runs over its children;"
            " name a module inside it or behind it"
        )
    if hasattr(target, "self_attention2d"):
        raise UserError(f"stage {stage!r} has attention already; name another stage")
    if channels is None:
        outputs = _run(model, {stage: target}, img_size, "channels=")[stage]
        if not _is_map(outputs):
            got = getattr(outputs[0], "shape", type(outputs[0]).__name__) if outputs else "no call"
            raise UserError(f"stage {stage!r} gave {got}, wanted one feature map (B, C, h, w)")
        channels = outputs[0].shape[1]
    layer = SelfAttention2d(channels, kind, **options)
    like = next(target.parameters(), next(model.parameters(), torch.empty(0)))
    target.add_module("self_attention2d", layer.to(like).train(target.training))
    if type(target).forward is not nn.Sequential.forward:
        target.register_forward_hook(_attend_after)
    return model


def _attend_after(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    """Forward hook of a stage; it looks the layer up, so that copies of the model use their own."""
    return module.self_attention2d(output)  # type: ignore[operator]


def _runs_over_children(module: nn.Module) -> bool:
    """Whether a further child would be run as well: a list, a Sequential's subclass."""
    if type(module).forward is nn.Sequential.forward:
        return False
    return isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict))


def _is_map(outputs: list[Any]) -> bool:
    return bool(outputs) and isinstance(outputs[0], Tensor) and outputs[0].ndim == 4


def _run(
    model: nn.Module,
    stages: dict[str, nn.Module],
    img_size: int | tuple[int, int],
    instead: str,
) -> dict[str, list[Any]]:
    """Outputs of stages, in the order in which they end, for a black image in eval mode."""
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    if first is None:
        raise UserError(f"the model has no Conv2d that shows its channels; give {instead}")
    size = (img_size, img_size) if isinstance(img_size, int) else img_size
    outputs: dict[str, list[Any]] = {}

    def hook(name: str) -> Any:
        return lambda module, args, output: outputs.setdefault(name, []).append(output)

    handles = [module.register_forward_hook(hook(name)) for name, module in stages.items()]
    try:
        with in_eval(model), torch.no_grad():
            model(first.weight.new_zeros(1, first.in_channels, *size))
    except (RuntimeError, ValueError, AssertionError) as e:
        raise UserError(f"an image of {size} pixels does not run: {e}; give {instead}") from e
    finally:
        for handle in handles:
            handle.remove()
    return {name: [] for name in stages if name not in outputs} | outputs


def _proposal(model: nn.Module, img_size: int | tuple[int, int]) -> str:
    """The stages with maps, one a size, the outermost, and which to take: the largest map of at
    most `_MOST_TOKENS`, of blocks rather than of single layers.
    """
    free = {
        name: module
        for name, module in model.named_modules()
        if name
        and not _runs_over_children(module)
        and not hasattr(module, "self_attention2d")
        and "self_attention2d" not in name.split(".")
    }
    stages: dict[tuple[int, int], tuple[str, Tensor]] = {}
    for name, outputs in _run(model, free, img_size, "stage").items():
        if len(outputs) == 1 and _is_map(outputs) and outputs[0][0, 0].numel() > 1:
            size = (outputs[0].shape[2], outputs[0].shape[3])
            if size not in stages or name.count(".") <= stages[size][0].count("."):
                stages[size] = name, outputs[0]
    if not stages:
        raise UserError("the model has no stage that gives a feature map (B, C, h, w)")
    shown = sorted(stages.values(), key=lambda stage: -stage[1][0, 0].numel())
    blocks = [stage for stage in shown if _holds_convolution(free[stage[0]])]
    choice = blocks if len(blocks) > 1 else shown
    small = [name for name, y in choice if y[0, 0].numel() <= _MOST_TOKENS]
    best = small[0] if small else choice[-1][0]
    texts = (
        f"{name} ({y.shape[1]} x {y.shape[2]} x {y.shape[3]}, {y[0, 0].numel():,} tokens)"
        for name, y in shown
    )
    size = (img_size, img_size) if isinstance(img_size, int) else img_size
    return (
        f"no stage given; with {size[0]} x {size[1]} pixels there are {', '.join(texts)}; take"
        f" add_attention(model, {best!r})"
    )


def _holds_convolution(module: nn.Module) -> bool:
    return any(isinstance(m, nn.Conv2d) for child in module.children() for m in child.modules())
