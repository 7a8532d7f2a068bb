"""The attention classifier (Dosovitskiy et al. 2021); `patch_size=1` makes pixels tokens."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
from timm.layers import AttentionPoolLatent, to_2tuple, trunc_normal_
from torch import Tensor, nn
from typing_extensions import Unpack

from vision_attn.errors import UserError
from vision_attn.layers.base import HeadOptions
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.embed import PatchEmbed, PositionEmbed, Positions, RelativeBias, RotaryEmbed
from vision_attn.layers.mixer import (
    MIXERS,
    NORMS,
    Mixer,
    attention_of_blocks,
    check_without_attention,
)
from vision_attn.layers.stem import ConvStem, PooledConvStem, ShiftedPatchEmbed
from vision_attn.models.base import ImageClassifier
from vision_attn.models.mimetic import start_mimetic
from vision_attn.ops.checks import (
    check_arguments,
    check_choice,
    check_flag,
    check_memory,
    check_pair,
    check_real,
    check_whole,
)

__all__ = ["VisionTransformer", "attention_pool", "check_sizes"]

STEMS = {
    "linear": PatchEmbed,
    "conv": ConvStem,
    "pooled": PooledConvStem,
    "shifted": ShiftedPatchEmbed,
}


class VisionTransformer(ImageClassifier):
    """Patches or pixels, encoder blocks, pooling, a linear head: (B, C, h, w) -> (B, classes).

    Args:
        img_size: pixels, one number or (height, width).
        patch_size: pixels of a token's side, one number or a pair; 1 makes every pixel a token.
        in_chans: channels C.
        num_classes: outputs; 0 gives the pooled features.
        global_pool: `avg`, the mean of the tokens; `token`, a class token; `map`, attention by one
            learned query and an MLP (Zhai et al. 2022, `attention_pool`); empty, the tokens as they
            are, with `num_classes=0`.
        embed_dim: width D of a token.
        depth: encoder blocks.
        num_heads: heads; must divide `embed_dim`.
        mlp_ratio: hidden width of an MLP over D.
        qkv_bias, qk_norm: see `AttentionOptions`.
        init_values: start of the layer scale, or None.
        pos_embed: `learn`, `sincos2d`, `rel_bias` (one table a block), `rotary` or `none`. Without
            positions and with `avg` the output does not depend on the order of the tokens.
        stem: what makes tokens of the image: `linear`, one map of each patch; `conv`, a few
            convolutions (`ConvStem`), `pooled`, the same with max pools (`PooledConvStem`);
            `shifted`, patches of five shifts (`ShiftedPatchEmbed`).
        lsa: locality self-attention (Lee et al. 2021), `LocalitySelfAttention` in every block.
        attn_layer: makes the attention of the blocks, as in `EncoderBlock`, or one for each block;
            None is `MultiHeadSelfAttention`.
        mixer: what mixes the tokens of a block: `attention`; `conv`, a 3 x 3 convolution of each
            channel over the grid (`DepthwiseConv`); `none`, and a block is an MLP on each token.
        norm: `layer`, or `batch` (`TokenBatchNorm`), in the blocks and behind them.
        norm_eps: what the norms add to a variance; timm's ViTs have 1e-6.
        mimetic_init: attention that starts like that of a trained model (Trockman and Kolter 2023),
            see `start_mimetic`.
        dynamic_img_size: take images of other sizes than `img_size` too, if the patch divides them;
            learned tables are resized.
        drop_rate: dropout before the head.
        pos_drop_rate: dropout after the positions.
        proj_drop_rate: dropout after the projections and in the MLPs.
        attn_drop_rate: dropout on the attention weights.
        drop_path_rate: stochastic depth of the last block; it grows linearly from 0.
        attn: see `HeadOptions`: `projection`, `score`, `scale`, `num_registers`, `fused`.

    Raises:
        UserError: (a ValueError) a patch that does not divide the image, heads that do not divide
            the width, numbers out of their range, unknown options, images of another shape.
    """

    architecture = "vision_attn_vit"
    pools: tuple[str, ...] = ("avg", "token", "map")
    layer_names = ("blocks", "rel_bias")

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        patch_size: int | tuple[int, int] = 4,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: Literal["avg", "token", "map", ""] = "avg",
        embed_dim: int = 96,
        depth: int = 4,
        num_heads: int = 3,
        mlp_ratio: float = 2.0,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        *,
        init_values: float | None = None,
        pos_embed: Positions = "learn",
        stem: Literal["linear", "conv", "pooled", "shifted"] = "linear",
        lsa: bool = False,
        attn_layer: Mixer | Sequence[Mixer] | None = None,
        mixer: Literal["attention", "conv", "none"] = "attention",
        norm: Literal["layer", "batch"] = "layer",
        norm_eps: float = 1e-5,
        mimetic_init: bool = False,
        dynamic_img_size: bool = False,
        drop_rate: float = 0.0,
        pos_drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        **attn: Unpack[HeadOptions],
    ) -> None:
        super().__init__()
        check_arguments(self, attn)
        check_sizes(img_size, patch_size, in_chans, embed_dim, depth, num_heads, mlp_ratio)
        check_whole(0, num_classes=num_classes)
        check_real(0, 1, open="low", norm_eps=norm_eps)
        check_real(
            0, 1, open="high", drop_rate=drop_rate, pos_drop_rate=pos_drop_rate,
            proj_drop_rate=proj_drop_rate, attn_drop_rate=attn_drop_rate,
            drop_path_rate=drop_path_rate,
        )  # fmt: skip
        check_flag(
            qkv_bias=qkv_bias, qk_norm=qk_norm, lsa=lsa, mimetic_init=mimetic_init,
            dynamic_img_size=dynamic_img_size,
        )  # fmt: skip
        self.check_head(num_classes, global_pool)
        check_choice(STEMS, stem=stem)
        check_choice(MIXERS, mixer=mixer)
        check_choice(NORMS, norm=norm)
        self.img_size, self.in_chans = to_2tuple(img_size), in_chans
        self.num_classes, self.global_pool = num_classes, global_pool
        self.num_features = self.embed_dim = embed_dim
        self.fixed_input_size = not dynamic_img_size
        self.first_conv = "patch_embed.proj" + (".0" if stem in ("conv", "pooled") else "")
        self.patch_embed = STEMS[stem](
            self.img_size,
            to_2tuple(patch_size),
            in_chans,
            embed_dim,
            dynamic_img_size=dynamic_img_size,
        )
        self.cls_token = (
            nn.Parameter(torch.zeros(1, 1, embed_dim)) if global_pool == "token" else None
        )
        grid, prefix = self.patch_embed.grid_size, int(global_pool == "token")
        self.num_prefix_tokens = prefix
        options: dict[str, Any]
        if mixer == "attention":
            self._check_tokens(grid)
            layers = attention_of_blocks(attn_layer, lsa, depth)
            options = {"qkv_bias": qkv_bias, "qk_norm": qk_norm, "attn_drop": attn_drop_rate}
        else:
            layers, options = [MIXERS[mixer]] * depth, {}
            check_without_attention(
                mixer,
                global_pool=global_pool == "token" and global_pool,
                pos_embed=pos_embed in ("rel_bias", "rotary") and pos_embed,
                qk_norm=qk_norm,
                attn_drop_rate=attn_drop_rate,
                mimetic_init=mimetic_init,
                lsa=lsa,
                attn_layer=attn_layer is not None,
                **attn,
            )
            attn = {}
        norm_layer = partial(NORMS[norm], eps=norm_eps)
        self.positions = PositionEmbed(pos_embed, grid, embed_dim)
        self.pos_drop = nn.Dropout(pos_drop_rate)
        self.blocks = nn.Sequential(
            *(
                EncoderBlock(
                    embed_dim,
                    num_heads,
                    mlp_ratio,
                    attn_layer=layer,
                    norm_layer=norm_layer,
                    proj_drop=proj_drop_rate,
                    init_values=init_values,
                    drop_path=drop_path_rate * i / max(depth - 1, 1),
                    **options,
                    **attn,
                )
                for i, layer in enumerate(layers)
            )
        )
        self.rel_bias = self.rotary = None
        if pos_embed == "rel_bias":
            self.rel_bias = nn.ModuleList(
                RelativeBias(grid, num_heads, num_prefix_tokens=prefix) for _ in range(depth)
            )
        elif pos_embed == "rotary":
            self.rotary = RotaryEmbed(grid, embed_dim // num_heads, num_prefix_tokens=prefix)
        self.norm = norm_layer(embed_dim)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(embed_dim, num_classes) if num_classes else nn.Identity()
        self.apply(self.start_head)
        if self.cls_token is not None:
            nn.init.normal_(self.cls_token, std=1e-6)
        self.attn_pool = None  # it starts in its own way
        if global_pool == "map":
            self.attn_pool = attention_pool(
                embed_dim, num_heads, mlp_ratio, fused=attn.get("fused", True), norm_eps=norm_eps
            )
        if mimetic_init:
            start_mimetic(self.blocks, self.positions)
        self.describe()

    def _check_tokens(self, grid: tuple[int, int]) -> None:
        """A UserError for more tokens than can all attend to each other."""
        n = grid[0] * grid[1]
        check_memory(
            f"{n:,} tokens that all attend to each other: the scores of one head", n * n,
            "take larger patches, smaller images or local_vit",
        )  # fmt: skip

    def no_weight_decay(self) -> set[str]:
        """Names of parameters, beside norms and biases, that weight decay must leave alone."""
        inside = ("registers", "temperature", "relative_position_bias_table", "attn_pool.latent")
        names = (name for name, _ in self.named_parameters())
        return {"positions.pos_embed", "cls_token"} | {n for n in names if n.endswith(inside)}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layers of parameters by name, for timm's decay of the learning rate by layer."""
        return {
            "stem": r"^cls_token|^positions|^patch_embed",
            "blocks": [(r"^(?:blocks|rel_bias)\.(\d+)", None), (r"^norm|^attn_pool", (99999,))],
        }

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Name, channels and pixels a token of each block, for timm's `FeatureInfo`."""
        same = {"num_chs": self.embed_dim, "reduction": max(self.patch_embed.patch_size)}
        return [{"module": f"blocks.{i}", **same} for i in range(len(self.blocks))]

    def enter(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, C, h, w) -> tokens (B, N, D) with positions, the class token first; their grid."""
        grid = self.patch_embed.grid_size
        if self.patch_embed.dynamic_img_size:  # else no function of x, as fx wants it
            grid = self.patch_embed.grid_of(x)
        x = self.positions(self.patch_embed(x), grid)
        if self.cls_token is not None:
            x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), 1)
        return self.pos_drop(x), grid

    def layer(self, index: int, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """A block, with what it takes beside the tokens."""
        return self.blocks[index](x, **self.beside_tokens(index, grid))

    def beside_tokens(self, block: int, grid: tuple[int, int]) -> dict[str, Any]:
        """What the mixer of a block takes beside the tokens: positions, or the grid."""
        beside: dict[str, Any] = {}
        if self.rel_bias is not None:
            beside["bias"] = self.rel_bias[block](grid)
        if self.rotary is not None:
            beside["rotary"] = self.rotary(grid)
        own = self.blocks[block]
        if isinstance(own, EncoderBlock) and getattr(own.attn, "on_grid", False):
            beside["grid_size"] = grid
        return beside

    def pool(self, x: Tensor) -> Tensor:
        """Tokens (B, N, D) -> (B, D), by `global_pool`."""
        if self.attn_pool is not None:
            return self.attn_pool(x)
        if self.global_pool == "token":
            return x[:, 0]
        return x[:, self.num_prefix_tokens :].mean(1) if self.global_pool else x

    def start_head(self, head: nn.Module) -> None:
        """Initial weights of linear layers, the head's too."""
        if isinstance(head, nn.Linear):
            trunc_normal_(head.weight, std=0.02)
            if head.bias is not None:
                nn.init.zeros_(head.bias)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """As in the base class; a class token or a query that the model has not is refused too."""
        for name, part in (("token", self.cls_token), ("map", self.attn_pool)):
            if global_pool == name and part is None:
                raise UserError(f"global_pool={name!r} needs parameters that this model has not")
        super().reset_classifier(num_classes, global_pool)
        if self.global_pool != "map":
            self.attn_pool = None


def attention_pool(
    dim: int, num_heads: int, mlp_ratio: float = 4.0, *, fused: bool = True, norm_eps: float = 1e-5
) -> AttentionPoolLatent:
    """Attention by one learned query, then an MLP: (B, N, D) -> (B, D); timm's module and names.

    Its maps start as Xavier's. A deviation of 0.02, as in the blocks, leaves little of the signal
    at small widths, and no norm comes after it: such a model starts to learn late.
    """
    pool = AttentionPoolLatent(
        dim,
        num_heads=num_heads,
        mlp_ratio=mlp_ratio,
        norm_layer=partial(nn.LayerNorm, eps=norm_eps),  # type: ignore[arg-type]
    )
    pool.fused_attn = pool.fused_attn and fused  # type: ignore[misc]
    for module in pool.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return pool


def check_sizes(
    img_size: int | tuple[int, int],
    patch_size: int | tuple[int, int],
    in_chans: int,
    embed_dim: int,
    depth: int,
    num_heads: int,
    mlp_ratio: float,
) -> None:
    """A UserError for sizes of a transformer that no machine, or no model, can have."""
    check_pair(img_size=img_size, patch_size=patch_size)
    check_whole(in_chans=in_chans, embed_dim=embed_dim, num_heads=num_heads)
    check_whole(0, 1000, depth=depth)
    check_real(0, 1024, open="low", mlp_ratio=mlp_ratio)
    width = int(embed_dim * mlp_ratio)
    if width < 1:
        raise UserError(f"mlp_ratio {mlp_ratio} of embed_dim {embed_dim} leaves no hidden width")
    (h, w), (p, q) = to_2tuple(img_size), to_2tuple(patch_size)
    check_memory(
        f"embed_dim {embed_dim:,} at depth {depth}: the weights",
        depth * embed_dim * (4 * embed_dim + 2 * width) + in_chans * p * q * embed_dim,
        "take a narrower model",
    )
    check_memory(
        f"img_size {h:,} x {w:,} in patches of {p} x {q}: the tokens of one image",
        (h // p) * (w // q) * embed_dim,
        "take larger patches or smaller images",
    )
