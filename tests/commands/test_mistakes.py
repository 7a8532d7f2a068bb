"""Mistakes that once were tracebacks, hangs or accepted; what is right stands beside the wrong."""

import errno
import math
import time
from pathlib import Path
from typing import Any

import pytest
from said import printed, refused

from vision_attn.cli import main
from vision_attn.commands.strict_yaml import Doubtful, load_yaml
from vision_attn.errors import UserError
from vision_attn.study.config import Budget, Study
from vision_attn.training.optim import OptimConfig

# Lightning's notes on devices and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

TRACEBACKS = {
    "compare --models timm:inception_v3": "timm:inception_v3",
    "compare --models timm:vgg11": "timm:vgg11",
    "compare --out /proc/x --sizes 20": "/proc/x",
    "compare --out /dev/null --sizes 20": "/dev/null",
    "compare --out '' --sizes 20": "out is empty",
    "diagnose --out ''": "out is empty",
    "plot ''": "dir is empty",
    "compare --args.vit.num_heads 010": "010 begins with 0, which may mean octal; write 10",
    "compare --args.vit.depth '[1'": "--args.vit.depth is '[1'",
    "compare --args.vit.depth ''": "--args.vit.depth has no value",
    "compare --args.cnn.depth '[1]'": "depth",
    "compare --args.cnn.depth x": "depth",
    "fit --trainer.accelerator foo": "accelerator='foo'",
    "fit --trainer.devices foo": "`devices`",
    "fit --trainer.strategy foo": "strategy='foo'",
    "fit --trainer.num_nodes 0": "num_nodes",
    "fit --trainer.barebones true": "barebones",
    "fit --trainer.accumulate_grad_batches 0": "trainer.accumulate_grad_batches is 0; wanted 1",
    "fit --trainer.check_val_every_n_epoch 0": "trainer.check_val_every_n_epoch is 0; wanted 1",
    "fit --seed_everything -1": "seed_everything is -1; wanted 0 to 4294967295",
    "fit --optimizer AdamW": "optimizer comes with the model",
}


@pytest.mark.parametrize("argv", TRACEBACKS)
def test_case_73_a_traceback_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], argv: str
) -> None:
    assert TRACEBACKS[argv] in refused(argv, capsys)


FILES: dict[str, tuple[bytes, str]] = {
    "latin1": ("draws: 2 # é".encode("latin1"), "no UTF-8 text (byte 0xe9 at 11)"),
    "utf16": ("draws: 2".encode("utf-16"), "no UTF-8 text"),
    "binary": (bytes(range(256)), "no UTF-8 text"),
    "empty": (b"", "is empty"),
    "only a comment": (b"# draws: 2\n", "is empty"),
    "a list": (b"- draws\n", "holds no options"),
    "a word": (b"draws", "holds no options"),
    "a group that is null": (b"data: null\n", "data is null; wanted its options"),
    "a number as key": (b"draws: 2\n3: 4\n", "line 2: key 3 is no text"),
    "a list as key": (b"? [draws]\n: 2\n", "line 1: a key is a list"),
    "a tag": (b"draws: !!int '2'\n", "line 1: tag tag:yaml.org,2002:int is not read"),
    "itself": (b"config: c.yaml\n", "names another in `config`"),
    "many digits": (b"draws: 1" + b"0" * 5000, "line 1: number 10000000000000000000... of 5001"),
    "not closed": (b"draws: 2\nseeds: [1\n", "line 3: while parsing a flow sequence"),
}


@pytest.mark.parametrize("command", ["compare", "fit", "diagnose"])
@pytest.mark.parametrize("fault", FILES)
def test_case_73_a_file_that_is_no_configuration(
    here: Path, capsys: pytest.CaptureFixture[str], fault: str, command: str
) -> None:
    content, names = FILES[fault]
    Path("c.yaml").write_bytes(content)
    said = refused(f"{command} --config c.yaml", capsys)
    assert said.startswith("error: config c.yaml")
    assert names in said


@pytest.mark.parametrize(("name", "what"), [("a folder", "a folder"), ("none", "no file")])
def test_case_73_a_configuration_that_is_no_file(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, what: str
) -> None:
    Path("a folder").mkdir()
    assert f"config {name!r} is {what}" in refused(["compare", "--config", name], capsys)


def test_case_73_a_read_only_place_and_a_full_disk_are_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "runs/x/cells")

    monkeypatch.setattr("vision_attn.commands.study.plot", write)
    assert refused("plot x", capsys) == "error: runs/x/cells: No space left on device\n"


def test_case_73_a_fault_of_the_program_stays_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError("handle is closed")

    monkeypatch.setattr("vision_attn.commands.study.plot", fail)
    with pytest.raises(OSError, match="handle is closed"):
        main(["plot", "x"])


ACCEPTED = {
    "compare --optim.lr 0": "lr is 0.0; wanted a number above 0",
    "compare --optim.lr .inf": "lr is inf",
    "compare --optim.lr 1e400": "lr is inf",
    "compare --optim.lr 1:30": "optim.lr: 1:30 is a number to the base of 60",
    "compare --optim.lr 010": "optim.lr: number 010 begins with 0",
    "compare --optim.warmup 1": "warmup is 1.0; wanted 0 to under 1",
    "compare --optim.label_smoothing 1": "label_smoothing is 1.0; wanted 0 to under 1",
    "compare --optim.weight_decay -1": "weight_decay is -1.0; wanted 0 or more",
    "compare --optim.ema 1": "ema is 1.0",
    "compare --optim '{lr: null}'": "optim.lr is null; wanted number",
    "compare --optim '{lr: \"010\"}'": "optim.lr: number 010 begins with 0",
    "compare --budget.steps 010": "budget.steps: number 010 begins with 0",
    "compare --budget.steps 1:30": "budget.steps: 1:30 is a number to the base of 60",
    "compare --budget.steps 10000000000": "budget.steps is 10000000000",
    "compare --budget.steps 99999999999999999999": "too large",
    "compare --sizes 020": "sizes: number 020 begins with 0",
    "compare --sizes [0]": "sizes has 0; wanted 1 or more images, or all",
    "compare --sizes -1": "sizes is -1",
    "compare --sizes 1.5": "sizes is 1.5; wanted whole number, all",
    "compare --sizes all,all": "names one twice",
    "compare --models ''": "models is empty",
    "compare --rows 1000000000": "rows is 1000000000; wanted 1 to 10,000",
    "compare --threads 100000": "threads is 100000; wanted 1 to ",
    "compare --workers 100000": "workers is 100000; wanted 1 to ",
    "compare --draws 1000000000": "2,000,000,000 runs (2 models x 1,000,000,000 draws",
    "compare --seeds 1000000000": "6,000,000,000 runs",
    "compare --tune 1000000000": "1,000,000,000 tries",
    "fit --model.lr 010": "model.lr: number 010 begins with 0",
    "fit --model.warmup 1": "warmup is 1.0",
    "fit --model.args.depth 010": "model.args.depth: number 010 begins with 0",
    "fit --trainer.max_epochs 1:30": "trainer.max_epochs: 1:30 is a number to the base of 60",
    "fit --trainer.gradient_clip_val -1": "trainer.gradient_clip_val is -1",
    "fit --data.seed 99999999999999999999": "data.seed: number 99999999999999999999",
    "fit --data.draw -1": "data.draw is -1; wanted 0 or more",
    "explain --ckpt a --image b --out c.png --layers 010": "layers is '010'",
}


@pytest.mark.parametrize("argv", ACCEPTED)
def test_case_74_nonsense_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], argv: str
) -> None:
    assert ACCEPTED[argv] in refused(argv, capsys)


IN_FILES = {
    "optim: {lr: 1:30}": "base of 60; write it in digits, or '1:30'",
    "optim: {lr: '1:30'}": "optim.lr: 1:30 is a number to the base of 60",
    "budget: {steps: '010'}": "budget.steps: number 010 begins with 0",
    "args: {vit: {depth: '010'}}": "args.vit.depth: number 010 begins with 0",
    "draws: null": "draws is null; wanted whole number",
    "models: null": "models is null; wanted list",
    "out: null": "out is null; wanted text",
    "optim: {lr: null}": "optim.lr is null; wanted number",
    "tuning: {lr: [1e-4, .inf]}": "tuning.lr is",
}  # fmt: skip


@pytest.mark.parametrize("text", IN_FILES)
def test_case_74_nonsense_in_a_file_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    Path("c.yaml").write_text(text)
    assert IN_FILES[text] in refused("compare --config c.yaml", capsys)


@pytest.mark.parametrize("name", ["in_chans", "img_size", "num_classes"])
def test_case_74_a_shape_in_a_file_of_fit_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    Path("c.yaml").write_text(f"model: {{{name}: 3}}")
    said = refused("fit --config c.yaml", capsys)
    assert f"config c.yaml, line 1: model.{name} comes from the data" in said


def test_case_74_what_looks_alike_and_is_meant(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.yaml").write_text(
        "budget: {steps: null, epochs: 1_0}\nworkers: null\nprecision: bf16-mixed\n"
    )
    got = printed("compare --config c.yaml --out 010 --data.root 1:30 --optim.lr 0.5", capsys)
    assert (got["out"], got["data"]["root"]) == ("010", "1:30")
    assert (got["budget"], got["workers"]) == ({"steps": None, "epochs": 10}, None)
    assert got["optim"]["lr"] == 0.5
    assert (
        printed("fit --trainer.max_time 00:00:10:00", capsys)["trainer"]["max_time"]
        == "00:00:10:00"
    )
    Path("c.yaml").write_text(
        "args:\n  vit: &small {depth: 2}\n  pixel_vit: {<<: *small, num_heads: 2}\n"
    )
    assert printed("compare --config c.yaml", capsys)["args"]["pixel_vit"] == {
        "depth": 2,
        "num_heads": 2,
    }


def test_case_74_an_argument_that_is_no_finite_number_stays_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "compare --models vit --args.vit.scale .nan --args.vit.a -.inf --args.vit.b 1e-5"
    got = printed(f"{line} --args.vit.c '1e3x' --args.vit.d 'no'", capsys)["args"]["vit"]
    assert math.isnan(got["scale"])
    assert [got[k] for k in "abcd"] == [-math.inf, 1e-5, "1e3x", False]


@pytest.mark.parametrize(
    ("change", "meant"),
    [
        ({"lr": 0}, {"lr": 1e-9}),
        ({"lr": math.inf}, {"lr": 1e30}),
        ({"weight_decay": math.inf}, {"weight_decay": 0}),
        ({"warmup": 1}, {"warmup": 0.999}),
        ({"label_smoothing": 1.0}, {"label_smoothing": 0.0}),
        ({"ema": math.nan}, {"ema": 0.0}),
    ],
)
def test_case_74_ranges_of_the_optimiser(change: dict[str, Any], meant: dict[str, Any]) -> None:
    OptimConfig(**meant).check()
    with pytest.raises(UserError, match=f"{next(iter(change))} is "):
        OptimConfig(**change).check()


def test_case_74_cells_are_counted_before_they_are_made() -> None:
    study = Study(models=["vit"], sizes=[20, 50], draws=10_000, seeds=5)
    study.check()
    for change in ({"seeds": 6}, {"tune": 1}, {"controls": ["none", "shuffled"]}):
        more = Study(**{"models": ["vit"], "sizes": [20, 50], "draws": 10_000, "seeds": 5} | change)
        with pytest.raises(
            UserError, match=r"the study has [12]\d\d,\d\d\d runs .* at most 100,000"
        ):
            more.check()


def test_case_74_epochs_count_as_updates() -> None:
    assert Budget(epochs=10**6).protocols(640, 64) == {"epochs": 10**7}
    with pytest.raises(UserError, match=r"budget\.epochs asks for 10,000,000,000 updates at 640"):
        Budget(epochs=10**9).protocols(640, 64)


def nested(levels: int, item: str) -> str:
    """YAML of some 700 bytes that stands for 9 ** levels values."""
    lines = [f"a0: &a0 {item}"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize("command", ["compare", "fit", "diagnose", "budget"])
@pytest.mark.parametrize(
    ("text", "what"),
    [
        (nested(12, "{b: 1}"), "more than 10,000 values"),
        ("args: &a {vit: *a}", "line 1: an anchor holds itself"),
        ("args: {vit: {b: &a [*a]}}", "line 1: an anchor holds itself"),
        ("args: " + "[" * 3000 + "]" * 3000, "nested too deep"),
        ("args:\n " + "- " * 3000, "nested too deep"),
        ("#" * 100_001, "at most 100,000 are read"),
    ],
)
def test_case_75_yaml_that_explodes_is_refused_at_once(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, what: str, command: str
) -> None:
    Path("c.yaml").write_text(text)
    begin = time.monotonic()
    said = refused(f"{command} --config c.yaml", capsys)
    assert time.monotonic() - begin < 10
    assert said.startswith("error: config c.yaml")
    assert what in said


def test_case_75_each_shared_value_counts() -> None:
    def text(times: int) -> str:  # 5 values, 99 of the list and 99 each time it is named
        return f"a: &a [{', '.join(['1'] * 98)}]\nb: [{', '.join(['*a'] * times)}]"

    assert len(load_yaml(text(99))["b"]) == 99
    with pytest.raises(Doubtful, match="more than 10,000 values"):
        load_yaml(text(101))


HUGE = {
    "compare --args.cnn.depth 99999999999999999999": "too large",
    "compare --args.cnn.depth 1000000": "args.cnn.depth is 1000000; wanted 1 to 100",
    "compare --args.vit.depth 99999999999999999999": "too large",
    "fit --model.args.depth 99999999999999999999": "too large",
    "compare --args '[[[[[' --sizes 20": "args",
    "compare --data.img_size 100000": "data.img_size",
}


@pytest.mark.parametrize("argv", HUGE)
def test_case_75_huge_numbers_are_refused_at_once(
    here: Path, capsys: pytest.CaptureFixture[str], argv: str
) -> None:
    begin = time.monotonic()
    assert HUGE[argv] in refused(argv, capsys)
    assert time.monotonic() - begin < 10


NEAR = {
    "comparee": "command 'comparee' is not known; did you mean compare?",
    "compare --draw 1": "unrecognized arguments: --draw 1; did you mean --draws?",
    "compare --data.nam digits": "did you mean --data.name?",
    "fit --trainer.max_epoch 1": "did you mean --trainer.max_epochs?",
    "compare --sizes 50 100": "--sizes takes one list: write --sizes 50,100",
    "compare --models vit cnn": "--models takes one list: write --models vit,cnn",
    "compare --config c.yaml": "c.yaml, line 1: modles is no option; did you mean models?",
    "compare --match size": "match is size; wanted params, flops, both, none",
    "compare --draws few": "draws is few; wanted whole number",
}


@pytest.mark.parametrize("argv", NEAR)
def test_a_mistake_names_what_is_near(
    here: Path, capsys: pytest.CaptureFixture[str], argv: str
) -> None:
    Path("c.yaml").write_text("modles: [vit]")
    assert NEAR[argv] in refused(argv, capsys)
