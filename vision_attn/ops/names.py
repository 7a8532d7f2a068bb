"""What other libraries call an argument: a wrong name is refused with the right one.

The names are those that users of torch, timm, diffusers and transformers type first.
"""

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, get_args

from vision_attn.errors import UserError
from vision_attn.ops.checks import check_known

__all__ = ["plain_names"]

Function = TypeVar("Function", bound=Callable[..., Any])

_HERE = {  # the argument here, then how to write it: what others call it
    "dim": "embed_dim d_model query_dim hidden_size channels in_channels in_chans in_dim",
    "in_channels": "in_chans in_dim",
    "num_heads": "heads nhead n_heads n_head num_attention_heads",
    "num_heads, as a head is dim / num_heads wide": "dim_head head_dim attn_head_dim "
    "attention_head_dim",
    "attn_drop or proj_drop": "dropout attention_dropout attn_dropout attn_pdrop dropout_p",
    "qkv_bias and proj_bias": "bias",
    "num_registers=1, a learned key and value": "add_bias_kv add_zero_attn",
    "fused": "fused_attn",
    "scale": "qk_scale scale_qk",
    "mlp_ratio, the hidden width over dim": "dim_feedforward hidden_features mlp_dim ffn_dim "
    "intermediate_size",
    "act_layer": "activation activation_fn act_fn hidden_act",
    "norm_layer=partial(nn.LayerNorm, eps=...)": "layer_norm_eps norm_eps eps",
    "init_values": "ls_init_value layer_scale_init_value",
    "drop_path": "drop_path_rate stochastic_depth_prob",
    "kdim and vdim": "cross_attention_dim",
    "mask or, to add to the scores, bias": "attn_mask",
    "mask": "mask",
    "mask=~{}, True = may attend": "src_mask",
    "key_mask=~{}, True = may be attended to": "key_padding_mask src_key_padding_mask",
    "key_mask={}.bool(), (B, N), True = may be attended to": "attention_mask "
    "encoder_attention_mask",
    "key_mask, True = may be attended to": "key_mask padding_mask",
    "causal": "is_causal causal",
    "bias, added to the scores": "attn_bias rel_pos_bias shared_rel_pos_bias bias",
    "return_weights": "need_weights return_attention return_attn output_attentions need_attn "
    "return_weights",
    "return_weights and w.mean(1)": "average_attn_weights",
    "rotary": "rope rotary_pos_emb image_rotary_emb rotary_emb freqs_cis rotary",
    "key and value": "context encoder_hidden_states memory",
    "x": "hidden_states src inputs input tokens",
    "query": "hidden_states tgt",
}
_ALWAYS = {
    "batch_first": "tokens are always (B, N, D)",
    "norm_first": "the norm always comes first",
    "device": "move the layer by .to(device, dtype)",
    "dtype": "move the layer by .to(device, dtype)",
}
_ELSEWHERE = {
    **dict.fromkeys(("mask", "key_mask", "causal", "bias", "return_weights", "rotary"),
                    "MultiHeadSelfAttention"),
    **dict.fromkeys(("kdim", "key"), "MultiHeadAttention"),
}  # fmt: skip


def plain_names(function: Function) -> Function:
    """The function, which refuses a name that it does not take with a UserError, not a TypeError.

    The error says what the argument is called here, or where it is; else it has names near it. Of
    names that are handed on (`**options: Any`), only those are refused that stand for an argument
    of the function's own which is not given, as `embed_dim` does for `dim`.
    """
    signature = inspect.signature(function)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = [p.name for p in signature.parameters.values() if p.kind in named]
    rest = [p.annotation for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    taken += [name for options in rest for o in get_args(options) for name in o.__annotations__]
    handed_on = bool(rest) and not get_args(rest[0])

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        for name in given:
            if name not in taken:
                own = signature.bind_partial(*args, **given).arguments if handed_on else {}
                if not handed_on or any(m in taken and m not in own for m in _meanings(name)):
                    _refuse(name, taken)
        return function(*args, **given)

    return call  # type: ignore[return-value]


def _meanings(name: str) -> dict[str, str]:
    """Arguments that another library's name may stand for, and how to write each."""
    advice = [text.format(name) for text, names in _HERE.items() if name in names.split()]
    return {re.split("[=, ]", text)[0]: text for text in advice}


def _refuse(name: str, taken: list[str]) -> None:
    if name in _ALWAYS:
        raise UserError(f"there is no argument {name!r}; {_ALWAYS[name]}")
    for known, text in _meanings(name).items():
        if known in taken:
            raise UserError(f"there is no argument {name!r}; use {text}")
    for known, text in _meanings(name).items():
        if known in _ELSEWHERE:
            raise UserError(f"there is no argument {name!r} here; {_ELSEWHERE[known]} has {text}")
    check_known("argument", [name], taken)
