"""What is shown: weights over the even share of what may be attended to, rollouts, tokens."""

from pathlib import Path
from typing import Any

import pytest
import torch
from made_model import ARGS, GRID, inspect, normalised, picture, save
from torch import Tensor
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.explain import attention_maps, attention_rollout
from vision_attn.explain.inspection import token_at
from vision_attn.explain.observe import Heads
from vision_attn.ops.masks import neighborhood_mask


def heads(**options: Any) -> Heads:
    q, k = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 7, 4)
    given = {"mask": None, "bias": None, "causal": False, "scale": 0.5} | options
    return Heads(layer=0, q=q, k=k, v=k, y=q, **given)


def test_the_even_share_is_one_over_the_keys_that_are_allowed() -> None:
    assert_close(heads().even(), torch.full((1, 1, 5, 7), 1 / 7))
    mask = torch.rand(5, 7) < 0.6
    mask[:, 2] = True
    want = mask / mask.sum(-1, keepdim=True)
    for given in (mask, mask.expand(3, 2, 5, 7), mask[None]):
        assert_close(heads(mask=given).even()[0, 0], want)
        assert_close(heads(mask=given).even([4, 1])[0, 0], want[[4, 1]])
    bias = torch.randn(2, 5, 7).masked_fill(~mask, -torch.inf)
    assert_close(heads(bias=bias).even()[0, 0], want)  # a finite bias changes weights, not this
    late = torch.ones(5, 7).tril(2)
    assert_close(heads(causal=True).even()[0, 0], late / late.sum(-1, keepdim=True))


def test_rows_made_on_demand_have_their_even_share() -> None:
    mask = torch.rand(5, 7) < 0.6
    mask[:, 2] = True

    def rows(part: Any) -> Tensor:
        return mask[list(part)]

    want = mask / mask.sum(-1, keepdim=True)
    assert_close(heads(mask=rows).even()[0, 0], want)
    assert_close(heads(mask=rows).even([3])[0, 0], want[[3]])


@pytest.mark.parametrize("token", [None, 9])
def test_ratios_are_weights_times_the_number_of_keys(tmp_path: Path, token: int | None) -> None:
    model = save(tmp_path / "m.ckpt", **ARGS, num_registers=2)
    shots = [picture(tmp_path / f"{i}.png", seed=i) for i in range(2)]
    shown = inspect(tmp_path / "m.ckpt", *shots, layers=[2, 0], heads=[1])
    ratios = shown.ratios(token)
    x = torch.cat([normalised(p) for p in shots])
    weights = attention_maps(model, x, heads=[1]).weights
    for ratio, layer in zip(ratios, (2, 0), strict=True):
        row = weights[layer].mean(2) if token is None else weights[layer][:, :, token]
        assert row.shape[-1] == 37  # two registers in front
        assert_close(ratio, 37 * row[..., 2:].unflatten(-1, GRID))


def test_the_class_token_asks_where_there_is_one(tmp_path: Path) -> None:
    model = save(tmp_path / "m.ckpt", **ARGS, global_pool="token")
    shot = picture(tmp_path / "a.png")
    (ratio,) = inspect(tmp_path / "m.ckpt", shot, layers=[1]).ratios(None)
    row = attention_maps(model, normalised(shot), layers=[1]).weights[1][:, :, 0]
    assert_close(ratio, 36 * row[..., 1:].unflatten(-1, GRID))


def test_in_a_neighbourhood_only_its_keys_count(tmp_path: Path) -> None:
    model = save(tmp_path / "m.ckpt", "local_vit", **ARGS, radius=1)
    shot = picture(tmp_path / "a.png")
    shown = inspect(tmp_path / "m.ckpt", shot, layers=[0])
    mask = neighborhood_mask(GRID, (3, 3))
    weights = attention_maps(model, normalised(shot), layers=[0]).weights[0]
    corner, middle = 0, 2 * 7 + 3
    for token, keys in ((corner, 4), (middle, 9)):
        assert mask[token].sum() == keys
        want = keys * weights[:, :, token].unflatten(-1, GRID)
        assert_close(shown.ratios(token)[0], want)
        assert ((want > 0).flatten(2) == mask[token]).all()
    even = mask / mask.sum(-1, keepdim=True)
    want = (weights.sum(2) / even.sum(0)).unflatten(-1, GRID)
    assert_close(shown.ratios(None)[0], want)


def test_rollouts_fuse_heads_or_follow_the_gradient(tmp_path: Path) -> None:
    model = save(tmp_path / "m.ckpt", **ARGS, global_pool="token")
    shots = [picture(tmp_path / f"{i}.png", seed=i) for i in range(2)]
    x = torch.cat([normalised(p) for p in shots])
    seen = []
    kinds: dict[Any, dict[str, Any]] = {
        "mean": {}, "max": {"head_fusion": "max"}, "gradient": {"gradient": "predicted"},
    }  # fmt: skip
    for kind, options in kinds.items():
        shown = inspect(tmp_path / "m.ckpt", *shots, rollout=kind)
        flow = attention_rollout(model, x, **options).relevance
        assert_close(shown.rollout, flow / flow.mean((1, 2), keepdim=True), rtol=1e-5, atol=1e-6)
        assert_close(shown.rollout.mean((1, 2)), torch.ones(2, dtype=torch.float64))
        seen.append(shown)
    assert [s.flow[0] for s in seen[:2]] == ["mean of heads", "largest head"]
    best = ["ant", "</script><b>", "cat"][int(seen[2].probabilities[1].argmax())]
    assert seen[2].flow[1] == f"gradient of {best}"
    assert not torch.allclose(seen[0].rollout, seen[1].rollout, rtol=1e-3)
    assert not torch.allclose(seen[0].rollout, seen[2].rollout, rtol=1e-3)


def test_tokens_are_pixels_only_where_they_are(tmp_path: Path) -> None:
    shot = picture(tmp_path / "a.png")
    save(tmp_path / "m.ckpt", **ARGS)
    shown = inspect(tmp_path / "m.ckpt", shot)
    assert (shown.unit, shown.title) == ("token", "vit")
    assert token_at((9, 5), shown.trained, shown.tokens) == 4 * 7 + 2
    with pytest.raises(UserError, match="query has row 10; wanted 0 to 9"):
        token_at((10, 0), shown.trained, shown.tokens)
    save(tmp_path / "p.ckpt", **ARGS | {"patch_size": 1})
    assert inspect(tmp_path / "p.ckpt", shot).unit == "pixel"
