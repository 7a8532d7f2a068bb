"""The page: the numbers that it holds are those of the model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from made_model import (
    ARGS,
    GRID,
    data_of,
    explain,
    inspect,
    normalised,
    numbers,
    page_weights,
    picture,
    save,
)
from PIL import Image

from vision_attn.explain import attention_maps, attention_rollout


def test_the_page_holds_the_weights(tmp_path: Path) -> None:
    model = save(tmp_path / "m.ckpt", **ARGS, global_pool="token", num_registers=2)
    shots = [picture(tmp_path / f"{i}.png", seed=i) for i in range(2)]
    out = tmp_path / "o.html"
    explain(tmp_path / "m.ckpt", shots, out, "--layers", "2,0", "--heads", "1")
    data = data_of(out)
    assert (data["grid"], data["size"], data["prefix"]) == ([5, 7], [10, 14], 1)
    assert (data["layers"], data["heads"], data["query"]) == ([2, 0], [1], 0)
    assert (data["unit"], data["scale"], data["model"]) == ("token", "even", "vit")
    x = torch.cat([normalised(p) for p in shots])
    maps = attention_maps(model, x, heads=[1])
    np.testing.assert_allclose(numbers(data["even"], "<f4", 2, 36), 1 / 38)
    relevance = attention_rollout(model, x).relevance
    for i, image in enumerate(data["images"]):
        weights = page_weights(data, i)
        sums = numbers(image["sums"], "<f4", 2, 1, 36)
        for at, layer in enumerate((2, 0)):
            want = maps.weights[layer][i, 0, :, 3:].numpy()
            np.testing.assert_allclose(sums[at, 0], want.sum(-1), rtol=1e-5)
            np.testing.assert_allclose(weights[at, 0], want, rtol=1e-5, atol=want.max() / 1e5)
        p = maps.output.softmax(-1)[i]
        best = p.argsort(descending=True).tolist()
        names = ["ant", "</script><b>", "cat"]
        assert [name for name, _ in image["scores"]] == [names[c] for c in best]
        assert [score for _, score in image["scores"]] == pytest.approx(p[best].tolist(), abs=2e-6)
        flow = numbers(image["rollout"], "<f4", *GRID)
        np.testing.assert_allclose(flow, relevance[i] / relevance[i].mean(), rtol=1e-4)
        seen = numbers(image["pixels"], "u1", 10, 14, 3)
        np.testing.assert_array_equal(seen[..., 1], np.array(Image.open(shots[i])))
    table = model.get_parameter("positions.pos_embed")[0]
    cosine = torch.cosine_similarity(table[:, None], table, dim=-1).detach().numpy()
    places = numbers(data["places"], "u1", 35, 35)
    np.testing.assert_allclose(places / 127.5 - 1, cosine, atol=0.0041)


def test_a_model_without_positions_and_the_query_of_the_page(tmp_path: Path) -> None:
    save(tmp_path / "m.ckpt", **ARGS, pos_embed="none")
    shot, out = picture(tmp_path / "a.png"), tmp_path / "o.html"
    explain(tmp_path / "m.ckpt", [shot], out)
    data = data_of(out)
    assert data["places"] is None
    assert data["query"] == 2 * 7 + 3
    explain(tmp_path / "m.ckpt", [shot], out, "--query", "9,5", "--scale", "shared")
    data = data_of(out)
    assert (data["query"], data["scale"]) == (4 * 7 + 2, "shared")


def test_of_many_classes_the_most_likely_are_listed(tmp_path: Path) -> None:
    save(tmp_path / "m.ckpt", **ARGS)
    stored = torch.load(tmp_path / "m.ckpt", weights_only=True)
    stored["hyper_parameters"]["num_classes"] = 25
    stored["state_dict"]["model.head.weight"] = torch.randn(25, 24)
    stored["state_dict"]["model.head.bias"] = torch.randn(25)
    stored["ImageData"]["classes"] = [f"c{i}" for i in range(25)]
    torch.save(stored, tmp_path / "m.ckpt")
    shot = picture(tmp_path / "a.png")
    explain(tmp_path / "m.ckpt", [shot], tmp_path / "o.html")
    p = inspect(tmp_path / "m.ckpt", shot).probabilities[0]
    order = p.argsort(descending=True)[:10].tolist()
    scores = data_of(tmp_path / "o.html")["images"][0]["scores"]
    assert [name for name, _ in scores] == [f"c{i}" for i in order]
