"""What a study leaves open follows its images, and large attention is named before it is built."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vision_attn.cli import main
from vision_attn.commands.study import study_of
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.errors import UserError
from vision_attn.study import defaults
from vision_attn.study.cells import plan
from vision_attn.study.config import Study
from vision_attn.study.defaults import follow_images, large_attention, patch_for, start_args

WIDTH = {"embed_dim": 64, "depth": 4, "num_heads": 4}


def photos(h: int = 32, w: int | None = None, n: int = 301, classes: int = 3) -> Source:
    """Black images of a folder; the last class has fewer than the others."""
    labels = np.sort(np.append(np.arange(n - 1) % classes, 0))
    black = torch.zeros(1, 3, h, w or h, dtype=torch.uint8)
    names = tuple("abcdefghij"[:classes])
    return Source(
        "folder", names, True, black.expand(n, -1, -1, -1), labels,
        black.expand(7, -1, -1, -1), labels[:7], "black", label="pets",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("h", "w", "patch", "tokens"),
    [(32, 32, 4, 64), (64, 64, 8, 64), (224, 224, 32, 49), (28, 28, 4, 49), (96, 96, 16, 36),
     (480, 640, 80, 48), (160, 160, 20, 64), (100, 100, 20, 25), (8, 8, 1, 64), (40, 24, 4, 60)],
)  # fmt: skip
def test_case_fh_1_a_patch_makes_36_to_64_tokens(h: int, w: int, patch: int, tokens: int) -> None:
    assert patch_for(h, w) == patch
    assert h * w // patch**2 == tokens


def test_case_fh_1_sides_without_a_patch_get_another_size() -> None:
    with pytest.raises(UserError, match=r"97 x 97 pixels .* add --data.img_size 96"):
        patch_for(97, 97)
    with pytest.raises(UserError, match=r"add --data\.img_size 224"):
        patch_for(500, 375)


def test_case_fh_1_args_and_sizes_follow_a_folder() -> None:
    models = ["vit", "cnn", "near=local_vit", "pixel_vit"]
    study, line = follow_images(Study(models=models), photos(64))
    assert study.args == {"vit": {"patch_size": 8, **WIDTH}, "near": {"patch_size": 8}}
    assert study.sizes == [20, 50, 100, 200, "all"]
    assert line == (
        "64 x 64 pixels: patch_size 8, 64 tokens; sizes 20, 50, 100, 200, all; batch_size 32"
    )
    assert study.batch_size == 32
    assert (study.data.name, study.data.label) == ("folder", "pets")
    assert follow_images(study, photos(64)) == (study, None)
    cells = plan(Study(draws=2), photos(32)).cells
    assert {c.config.size for c in cells} == {20, 50, 100, 200, 271}
    assert {c.config.args["patch_size"] for c in cells if c.arm.label == "vit"} == {4}


def test_case_fh_1_sizes_are_balanced_in_every_draw_and_not_nearly_all() -> None:
    few = photos(32, n=60)  # 54 after validation
    assert follow_images(Study(), few)[0].sizes == [20, "all"]
    rare = replace(few, train_labels=np.repeat([0, 1, 2], [30, 21, 9]))
    study, _ = follow_images(Study(draws=3), rare)
    assert study.sizes == [20, "all"]
    plan(study, rare)
    assert follow_images(Study(), photos(32, n=19))[0].sizes == ["all"]


def test_case_fh_1_photos_by_default_take_minutes() -> None:
    cells = plan(Study(), photos(64, n=235, classes=4)).cells
    images = [c.config.steps * min(c.config.batch_size, c.config.size or 0) for c in cells]
    flops = sum(3 * n * c.arm.cost.flops for n, c in zip(images, cells, strict=True))
    assert flops < 1e14  # a core does 7e10 a second


def test_case_fh_1_what_is_given_wins() -> None:
    given = Study(args={"vit": {"embed_dim": 24}}, sizes=[30], batch_size=48)
    study, line = follow_images(given, photos(64))
    assert (study.args, study.sizes, line) == (given.args, [30], None)


def test_case_fh_1_digits_keep_their_own() -> None:
    study, line = follow_images(Study(), load(DataConfig()))
    assert study.args == {"vit": {"patch_size": 2, **WIDTH}}
    assert study.sizes == [20, 50, 100, 200, 400, "all"]
    assert study.batch_size == 64
    assert line is None


@pytest.mark.parametrize(
    ("argv", "args"),
    [
        ("", None),
        ("--models vit,cnn", None),
        ("--args.vit.depth 2", {"vit": {"patch_size": 2, **WIDTH, "depth": 2}}),
        ("--data.root x --args.vit.depth 2", {"vit": {"patch_size": None, **WIDTH, "depth": 2}}),
        ("--data.root x --models vit,local_vit --args.local_vit.radius 2",
         {"vit": {"patch_size": None, **WIDTH}, "local_vit": {"patch_size": None, "radius": 2}}),
    ],
)  # fmt: skip
def test_case_fh_1_one_argument_keeps_the_other_defaults(argv: str, args: Any) -> None:
    _, study = study_of("compare", "", argv.split())
    assert study.args == args
    assert study.sizes is None
    if args is not None and study.data.root:
        assert plan(study, photos(64)).arms["vit"].args == {**args["vit"], "patch_size": 8}


def test_case_fh_1_print_config_leaves_it_open(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "--data.root", "x", "--print_config"])
    lines = capsys.readouterr().out.splitlines()
    assert {"args: null", "sizes: null", "  name: null"} <= set(lines)


def test_case_fh_1_many_tokens_are_named_with_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = Study(
        models=["vit", "local_vit", "cnn"],
        args={"vit": {"patch_size": 4, **WIDTH}, "local_vit": {"patch_size": 4}},
    )
    monkeypatch.setattr(defaults, "_memory", lambda: 2**33)
    (line,) = large_attention(study, photos(224))
    gib = 4 * 4 * 3136**2 * 6 / 2**30  # bytes, heads, pairs of tokens, layers and two more
    assert line == (
        f"vit: 3,136 tokens that all attend to each other, {gib:.1f} GiB for the scores of one"
        " image; smaller: --args.vit.patch_size 32 or --data.img_size 64"
    )
    assert large_attention(study, photos(128)) == []
    monkeypatch.setattr(defaults, "_memory", lambda: 2**30)
    with pytest.raises(UserError, match=r"vit: 3,136 tokens .* \(this machine has 1 GiB\)"):
        large_attention(study, photos(224))
    monkeypatch.setattr(defaults, "_memory", lambda: None)
    assert large_attention(study, photos(224)) == [line]
    monkeypatch.setattr(defaults, "_memory", lambda: 2**36)
    with pytest.raises(UserError, match=r"pixel_vit: 50,176 tokens .* smaller: --data.img_size 32"):
        large_attention(Study(models=["pixel_vit"]), photos(224))


def test_start_args_are_for_models_with_a_patch() -> None:
    archs = {"a": "conv_stem_vit", "cnn": "cnn", "t": "timm:resnet18", "pixel_vit": "pixel_vit"}
    assert start_args("cifar10", archs) == {
        "a": {"patch_size": None}, "vit": {"patch_size": None, **WIDTH},
    }  # fmt: skip


def test_case_fh_8_the_label_stands_in_study_yaml_and_may_change(tmp_path: Path) -> None:
    from vision_attn.study.store import Store

    source = photos()
    study, _ = follow_images(Study(models=["linear"], draws=1, sizes=[20]), source)
    store = Store(tmp_path / "out")
    store.open(plan(study, source))
    assert "label: pets" in (tmp_path / "out/study.yaml").read_text(encoding="utf-8")
    other = replace(source, label="cats and dogs")
    store.check(plan(study, other))
    assert [c.key for c in plan(study, other).cells] == [c.key for c in plan(study, source).cells]
