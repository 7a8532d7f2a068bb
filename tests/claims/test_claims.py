"""The claims about attention: each measure by values, a tiny run of all of them, the command."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from vision_attn.claims import order, run
from vision_attn.claims.common import Claim, Settings, Summary, span
from vision_attn.claims.convolution import measure_conv
from vision_attn.claims.cost import PeakMemory
from vision_attn.claims.models import Key, Models, permute_patches
from vision_attn.claims.order import change_of_logits, shift_error
from vision_attn.claims.scale import gain_words, score_measures, softmax_gradient
from vision_attn.claims.self_weight import spread_words
from vision_attn.cli import main
from vision_attn.data.sources import DataConfig, load
from vision_attn.errors import UserError
from vision_attn.models.registry import create_model

TINY = Settings(
    widths=(4, 64), draws=2, steps=4, seeds=2, heads=(1, 4), alphas=(4, 8, 12, 20), convs=2,
    sides=(8, 12, 16), turns=2, matrix=12,
)  # fmt: skip
CPU = torch.device("cpu")


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_words_of_an_interval() -> None:
    assert span((1.234, 1.0, 1.5)) == "1.23 [1.00, 1.50]"
    assert span((0.5, 0.25, 0.75), 0, 100) == "50 [25, 75]"


def test_summary_is_a_row_a_group_in_the_order_of_the_rows() -> None:
    raw = pd.DataFrame({"a": ["y", "x", "y"], "b": [1, 2, 1], "v": [1.0, 5.0, 3.0]})
    table = Summary("t", raw, ("a", "b"), ("v",)).table()
    assert table[["a", "b", "count", "v_mean"]].to_numpy().tolist() == [
        ["y", 1, 2, 2],
        ["x", 2, 1, 5],
    ]
    assert table["v_high"][0] == pytest.approx(2 + 12.7062)
    assert math.isnan(table["v_low"][1])


def test_gradient_through_softmax_is_the_norm_of_its_jacobian() -> None:
    scores = draw(5, 7)
    for row in scores:
        jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), row)
        assert_close(softmax_gradient(row.softmax(-1)), jacobian.norm())
    assert_close(softmax_gradient(torch.tensor([1.0, 0.0])), torch.tensor(0.0))
    assert_close(softmax_gradient(torch.full((4,), 0.25)), torch.tensor((3 / 16) ** 0.5))


def test_scores_by_hand() -> None:
    q = torch.tensor([[[[1.0], [100.0]]]])
    k = torch.tensor([[[[0.0], [1.0]]]])  # scores 0, 2 and 0, 200
    measures = score_measures(q, k, 2.0)
    assert measures["variance"] == pytest.approx(np.var([0, 2, 0, 200], ddof=1))
    assert measures["saturated"] == 0.5
    p = 1 / (1 + math.exp(-2))
    assert measures["gradient"] == pytest.approx(p * (1 - p))  # |J| = 2 p (1-p), and 0; their mean
    q, k = draw(2, 9, 3, 31, 16)
    many = score_measures(q, k, 0.25)
    s = q @ k.mT / 4
    assert many["variance"] == pytest.approx(float(np.mean([s[:, h].var() for h in range(3)])))


def test_shift_of_sines_is_a_rotation_and_of_others_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shift_error(12, 50, 7) < 1e-13
    assert torch.get_default_dtype() == torch.float32
    right = order.sincos_1d
    monkeypatch.setattr(order, "sincos_1d", lambda p, dim: right(p**1.01, dim))
    assert shift_error(12, 50, 7) > 1e-3


@pytest.mark.parametrize("patch", [1, 2])
def test_order_matters_only_with_positions(patch: int) -> None:
    x = draw(3, 1, 4, 6).float()
    order = torch.randperm(24 // patch**2, generator=torch.Generator().manual_seed(3))
    for positions, low, high in (("none", 0, 1e-14), ("learn", 1e-4, 1), ("rotary", 1e-9, 1)):
        torch.manual_seed(0)
        model = create_model("vit", img_size=(4, 6), in_chans=1, num_classes=5,
                             args={"patch_size": patch, "depth": 2, "embed_dim": 8, "num_heads": 1,
                                   "pos_embed": positions}).eval()  # fmt: skip
        change = change_of_logits(model, x, order)
        assert low <= change < high
        assert change_of_logits(model, x, torch.arange(len(order))) == 0
        assert next(model.parameters()).dtype == torch.float32


def test_patches_in_another_order() -> None:
    source = load(DataConfig())
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    moved = permute_patches(source, order)
    assert isinstance(moved.test_images, torch.Tensor)
    assert isinstance(source.test_images, torch.Tensor)
    for place in (0, 5, 15):
        r, c = divmod(place, 4)
        from_r, from_c = divmod(int(order[place]), 4)
        came = source.test_images[:, :, 2 * from_r :, 2 * from_c :][:, :, :2, :2]
        assert_close(moved.test_images[:, :, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2], came)
    back = permute_patches(moved, order.argsort())
    assert_close(back.train_images, source.train_images)


def test_models_are_trained_once_and_reproducible() -> None:
    messages: list[str] = []
    models = Models(load(DataConfig()), TINY, CPU, messages.append)
    key = Key(heads=4)
    random = torch.get_rng_state()
    start = models.start(key)
    assert_close(torch.get_rng_state(), random)
    assert_close(start.state_dict(), models.start(key).state_dict(), rtol=0, atol=0)
    model, accuracy = models.trained(key)
    assert models.trained(key)[0] is model
    assert messages == ["digits: training with 4 heads, scale 1/sqrt(K), positions learn, seed 0"]
    assert 0 < accuracy < 1
    assert not torch.equal(model.head.weight, start.head.weight)  # type: ignore[union-attr,arg-type]
    again = Models(load(DataConfig()), TINY, CPU).trained(key)
    assert again[1] == accuracy
    assert_close(again[0].state_dict(), model.state_dict(), rtol=0, atol=0)


def test_words_follow_the_interval() -> None:
    assert spread_words((-0.2, -0.3, -0.1)) == "more heads do spread it"
    assert "do not spread it" in spread_words((0.2, 0.1, 0.3))
    assert "no effect" in spread_words((0.1, -0.1, 0.3))
    assert "no effect" in spread_words((0.1, math.nan, math.nan))
    assert gain_words((1.4, 0.1, 2.7)) == "is better"
    assert gain_words((-1.4, -2.7, -0.1)) == "is worse"
    assert gain_words((0.1, math.nan, math.nan)).startswith("makes no difference")


def test_convolution_and_its_bound() -> None:
    claim = measure_conv(Models(load(DataConfig()), TINY, CPU), TINY)
    raw = claim.tables["error"].raw
    assert (raw["error"] <= raw["bound"]).all()
    assert claim.numbers["slope of log error over alpha"][0] == pytest.approx(-1, abs=0.02)
    assert raw["error"][raw["alpha"] == 20].max() < 1e-6
    assert claim.answers[0].startswith("Every error of 2 random convolutions lies under")


def test_peak_memory_counts_what_lives_at_one_time() -> None:
    x = torch.zeros(1000)  # from outside: not counted
    with PeakMemory() as seen:
        a = x + 1
        b = a.view(10, 100) * 2  # the view holds nothing of its own
        del a
        c = b + 1
        del b, c
        d = x * 2
    assert seen.peak == 2 * 4000
    assert seen.live == 4000
    del d
    assert seen.live == 0


@pytest.fixture(scope="module")
def claims() -> list[Claim]:
    return run.diagnose(load(DataConfig()), TINY, device=CPU)


def test_everything_in_small(claims: list[Claim], tmp_path: Path) -> None:
    assert [c.name for c in claims] == ["scale", "self_weight", "order", "convolution", "cost"]
    scale, own, order, _, cost = claims
    table = scale.tables["scores"].table().set_index(["inputs", "scale", "K"])
    assert table.loc[("independent", "1", 64), "variance_mean"] == pytest.approx(64, rel=0.1)
    assert table.loc[("independent", "1/sqrt(K)", 64), "variance_mean"] == pytest.approx(1, rel=0.1)
    assert set(table.index.get_level_values("inputs")) == {"independent", "start", "trained"}
    heads = own.tables["heads"].table()
    assert set(heads["heads"]) == {1, 4}
    assert heads["self_weight_mean"].to_numpy() == pytest.approx(1 / 16, rel=0.2)  # 4 updates only
    change = order.tables["permuted"].table().set_index("positions")["change_mean"]
    assert change["none"].max() < 1e-14 < 1e-4 < change["learn"].min()
    assert "is refused (images of shape (1, 12, 10)" in order.answers[-1]
    assert (
        order.numbers["points of accuracy by shuffling at test only, without positions"] == (0,) * 3
    )
    cases = cost.tables["cost"].table()
    assert cases[cases["layer"] == "full, matrix"]["N"].tolist() == [64, 144]
    memory = cases.set_index(["layer", "N"])["MiB_mean"]
    assert memory["full, matrix", 144] > 2 * memory["full, fused", 144]
    assert all(c.seconds > 0 and c.answers for c in claims)

    run.write_claims(claims, TINY, tmp_path / "new")
    names = {p.name for p in (tmp_path / "new").iterdir()}
    assert {f"{c.name}.png" for c in claims} | {"diagnose.json", "diagnose.md"} <= names
    for claim in claims:
        with Image.open(tmp_path / "new" / f"{claim.name}.png") as image:
            assert min(image.size) > 300
    saved = json.loads(
        (tmp_path / "new" / "diagnose.json").read_text(),
        parse_constant=lambda word: pytest.fail(f"{word} is not JSON"),
    )
    assert saved["about"]["settings"]["steps"] == 4
    assert saved["claims"]["scale"]["answers"] == scale.answers
    repeats = pd.read_csv(tmp_path / "new" / "self_weight_heads.csv")
    again = Summary("", repeats, ("data", "when", "heads"), ("self_weight",)).table()
    assert_close(torch.tensor(again["self_weight_mean"]), torch.tensor(heads["self_weight_mean"]))
    page = (tmp_path / "new" / "diagnose.md").read_text()
    for claim in claims:
        assert f"![{claim.name}]({claim.name}.png)" in page
        assert all(answer in page for answer in claim.answers)


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    claims: list[Claim],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "diagnose", lambda *_, show, **__: [show(c) or c for c in claims])
    assert main(["diagnose", "--quick"]) == 0
    said = capsys.readouterr().out
    assert "Without positions a random permutation" in " ".join(said.split())
    assert said.endswith("are in runs/diagnose\n")
    before = {p: p.read_bytes() for p in Path("runs/diagnose").iterdir()}
    Path("runs/diagnose/mine.txt").write_text("kept")

    def refused(*argv: str) -> str:
        code = main(["diagnose", *argv])
        lines = capsys.readouterr().err.splitlines()
        assert code == 2
        assert len(lines) == 1
        return lines[0]

    assert "runs/diagnose holds files already; give --overwrite" in refused("--quick")
    assert "cats is not known" in refused("--data.name", "cats", "--out", "x").replace("'", "")
    assert "epochs" in refused("--epochs", "3", "--out", "x")
    Path("file").write_text("")
    assert "out file is a file" in refused("--overwrite", "--out", "file")
    assert not Path("x").exists()
    assert {p: p.read_bytes() for p in before} == before
    assert main(["diagnose", "--overwrite"]) == 0
    assert Path("runs/diagnose/mine.txt").read_text() == "kept"
    assert (
        json.loads(Path("runs/diagnose/diagnose.json").read_text())["about"]["settings"]["steps"]
        > 4
    )


def test_other_images_join_the_self_weight(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("test", 5)):
        for name in ("ant", "bee"):
            place = tmp_path / part / name
            place.mkdir(parents=True)
            for i in range(count):
                pixels = np.random.default_rng(i).integers(0, 255, (12, 16, 3), np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.png")
    source = load(DataConfig(name="folder", root=str(tmp_path), label="insects"))
    models = Models(source, TINY, CPU)
    assert (models.patch, models.tokens) == (2, 48)
    from vision_attn.claims.self_weight import measure_self

    digits = Models(load(DataConfig()), TINY, CPU)
    claim = measure_self([digits, models], TINY)
    assert list(dict.fromkeys(claim.tables["heads"].raw["data"])) == ["digits", "insects"]
    assert len(claim.answers) == 4
    assert "(N = 48)" in claim.answers[2]


def test_images_that_no_patch_fits() -> None:
    source = load(DataConfig())
    assert isinstance(source.train_images, torch.Tensor)
    from dataclasses import replace

    odd = replace(source, train_images=torch.zeros(3, 1, 31, 37, dtype=torch.uint8))
    with pytest.raises(UserError, match=r"31 x 37 pixels have no patch .*--data.img_size 32"):
        Models(odd, TINY, CPU)
