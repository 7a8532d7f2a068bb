"""The command line: a mistake is one line and exit code 2, and nothing on disk changes."""

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from said import refused

from vision_attn import __version__
from vision_attn.cli import main

# Lightning's notes on devices and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

COMMANDS = (
    "compare",
    "plot",
    "budget",
    "explain",
    "diagnose",
    "fit",
    "validate",
    "test",
    "predict",
)


def images(root: Path, part: str, name: str, n: int = 3, side: int = 8) -> None:
    place = root / part / name
    place.mkdir(parents=True)
    for i in range(n):
        Image.fromarray(np.full((side, side), 40 * i, np.uint8)).save(place / f"{i}.png")


def folder(root: Path) -> Path:
    for part in ("train", "test"):
        for name in ("ant", "bee"):
            images(root, part, name)
    return root


BAD = {
    "frobnicate": "frobnicate",
    "Compare": "Compare",
    "compare --out o --modls [vit]": "--modls",
    "compare --out o --model [vit]": "--model [vit]",
    "compare --out o --optim.lerning_rate 0.1": "--optim.lerning_rate",
    "compare --out o --optim '{lerning_rate: 0.1}'": "lerning_rate",
    "compare --out o extra": "extra",
    "compare --out": "--out",
    "compare --out o --config none.yaml": "none.yaml",
    "compare --out o --models [vit,vat]": "vat",
    "compare --out o --models vat": "vat",
    "compare --out o --models timm:resnet17": "timm:resnet17",
    "compare --out o --data.name cifar11": "cifar11",
    "compare --out o --data.img_size 9": "data.img_size",
    "compare --out o --sizes [20,5000]": "size 5000 is larger than the 1078",
    "compare --out o --sizes 7": "size 7 is smaller than the 10 classes",
    "compare --out o --sizes [no]": "sizes",
    "compare --out o --sizes [20.5]": "sizes",
    "compare --out o --args.vit.patch_size 3": "patch_size 3",
    "compare --out o --args '{vit: {patch_size: 2, num_heads: 5, embed_dim: 64}}'": "num_heads 5",
    "compare --out o --args '{vit: {hedas: 4}}'": "hedas",
    "compare --out o --args '{vat: {}}'": "args.vat",
    "compare --out o --budget.steps 3 --budget.epochs 0": "budget.epochs is 0",
    "compare --out o --controls permutd": "controls",
    "compare --out o --tune -2": "tune is -2",
    "compare --out o --budget.steps 1e3": "budget.steps",
    "compare --out o --budget.stepz 3": "stepz",
    "compare --out o --optim.lr fast": "optim.lr",
    "compare --out o --optim.lr -1": "lr is -1.0",
    "compare --out o --optim.lr .nan": "lr is nan",
    "compare --out o --optim.compile maybe": "optim.compile",
    "compare --out o --augment.pad -1": "augment.pad",
    "compare --out o --match size": "match",
    "compare --out o --draws 0": "draws",
    "compare --out o --precision 8": "precision",
    "compare --out o --select first": "select",
    "compare --out o --workers 0": "workers is 0",
    "compare --out o --workers many": "workers",
    "budget --models [vit,vat]": "vat",
    "budget --draws few": "draws",
    "plot none": "none is no directory",
    "plot": "dir",
    "fit --trainer.max_epoch 3": "--trainer.max_epoch",
    "fit --data.siz 20": "--data.siz",
    "fit --model.lr fast": "model.lr",
    "fit --model.lr -1": "lr is -1.0",
    "fit --model.name vat": "vat",
    "fit --model.args.patch_size 3": "patch_size 3",
    "fit --model.args '{embed_dim: 10, num_heads: 3, patch_size: 2}'": "num_heads 3",
    "fit --model.num_classes 3": "model.num_classes",
    "fit --data.name cifar11": "cifar11",
    "fit --data.size 5000": "size 5000",
    "fit --data.size 7": "size 7",
    "fit --data.batch_size 0": "data.batch_size",
    "fit --trainer.devices 0": "devices",
    "test --ckpt_path none.ckpt": "none.ckpt",
    "test --ckpt_path best": "best",
}  # fmt: skip


@pytest.mark.parametrize("argv", BAD)
def test_a_mistake_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], argv: str) -> None:
    assert BAD[argv] in refused(argv, capsys)


BAD_YAML = {
    "top": ("compare", "modles: [vit]", "modles"),
    "optim": ("compare", "optim: {lerning_rate: 0.1}", "line 1: optim.lerning_rate is no option"),
    "budget": ("compare", "budget: {step: 3}", "did you mean budget.steps?"),
    "data": ("compare", "data: {nam: digits}", "data.nam is no option; did you mean data.name?"),
    "lightning": ("fit", "trainer: {max_epoch: 3}", "trainer.max_epoch"),
    "model": ("fit", "model: {lerning_rate: 0.1}", "model.lerning_rate"),
    "fit top": ("fit", "modle: {lr: 0.1}", "modle"),
    "twice": ("compare", "draws: 1\ndraws: 2", "line 2: duplicate key 'draws'"),
    "twice within": ("compare", "optim: {lr: 1e-3, warmup: 0, lr: 1e-2}", "duplicate key 'lr'"),
    "twice for fit": ("fit", "model: {lr: 1e-3, lr: 1e-2}", "line 1: duplicate key 'lr'"),
    "octal": ("compare", "sizes: [050]", "number 050 begins with 0"),
    "octal seed": ("fit", "seed_everything: 010", "number 010 begins with 0"),
    "no": ("compare", "models: [no]", "models"),
    "text for a number": ("compare", "draws: three", "draws"),
    "no yaml": ("compare", "draws: [1", "while parsing a flow sequence"),
    "no mapping": ("compare", "- draws", "config"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_YAML)
def test_a_mistake_in_a_file_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    command, text, names = BAD_YAML[case]
    Path("bad.yaml").write_text(text)
    assert names in refused(f"{command} --config bad.yaml", capsys)


@pytest.mark.parametrize(
    "command", ["compare --out o --sizes [2] --config c.yaml", "fit --config c.yaml"]
)
@pytest.mark.parametrize("fault", ["train", "empty", "missing", "broken", "text"])
def test_a_folder_that_will_not_do(
    here: Path, capsys: pytest.CaptureFixture[str], fault: str, command: str
) -> None:
    root = folder(here / "scans")
    bee = root / "train" / "bee"
    name = {
        "train": "train/", "empty": "bee", "missing": "wasp", "broken": "1.png",
        "text": "2.png",
    }[fault]  # fmt: skip
    if fault == "train":
        (root / fault).rename(root / "other")
    elif fault == "empty":
        for p in bee.iterdir():
            p.unlink()
    elif fault == "missing":
        (root / "test" / "bee").rename(root / "test" / "wasp")
    elif fault == "broken":
        whole = (bee / "1.png").read_bytes()
        (bee / "1.png").write_bytes(whole[: len(whole) - 30])
    else:
        (bee / "2.png").write_text("no image")
    Path("c.yaml").write_text(f"data: {{name: folder, root: {root}}}")
    assert name in refused(command, capsys)


def test_a_folder_without_a_root(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "data.root" in refused("compare --data.name folder", capsys)


@pytest.mark.parametrize("content", ["file", "directory", "study"])
def test_an_out_that_holds_something_else(
    here: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    if content == "file":
        Path("out").write_text("mine")
    else:
        Path("out").mkdir()
        name = "study.yaml" if content == "study" else "notes.txt"
        Path("out", name).write_text("subject: mine\n")
    assert "out" in refused("compare --out out", capsys)


@pytest.mark.parametrize(
    ("command", "named"),
    [("test", "text.ckpt"), ("fit", "empty.ckpt"), ("predict", "list.ckpt"), ("validate", "a.zip")],
)
def test_a_file_that_is_no_checkpoint(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, named: str
) -> None:
    Path("text.ckpt").write_text("no checkpoint")
    Path("empty.ckpt").touch()
    torch.save([1, 2], "list.ckpt")
    with zipfile.ZipFile("a.zip", "w") as z:
        z.writestr("a", "b")
    said = refused(f"{command} --ckpt_path {named}", capsys)
    assert f"error: {named} is no checkpoint" in said


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["--help"]):
        with pytest.raises(SystemExit) as end:
            main(argv)
        assert end.value.code == 0
        text = capsys.readouterr().out
        assert all(f"\n  {c} " in text for c in COMMANDS)


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("vision_attn.commands.study.plot", interrupt)
    assert main(["plot", "x"]) == 130
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_budget_shows_both_costs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = "{vit: {patch_size: 4, embed_dim: 12, depth: 1, num_heads: 3}, cnn: {widths: [37]}}"
    assert main(["budget", "--models", "vit,cnn", "--args", args]) == 0
    lines = [line.strip("| ") for line in capsys.readouterr().out.splitlines()]
    rows = [line.split(" | ") for line in lines if line.startswith(("vit |", "cnn |"))]
    # patches 16 x 12, positions 4 x 12, two norms and one at the end, qkv, projection, MLP, head
    vit = 17 * 12 + 4 * 12 + 3 * 24 + 13 * 36 + 13 * 12 + 13 * 24 + 25 * 12 + 13 * 10
    cnn = 9 * 37 + 9 * 37 * 37 + 2 * 74 + 38 * 10
    flops = 2 * 9 * 37 * 64 + 2 * 9 * 37 * 37 * 64 + 2 * 37 * 10
    assert [r[:2] for r in rows[:2]] == [["vit", f"{vit:,}"], ["cnn", f"{cnn:,}"]]
    assert f"{flops / 1e6:.2f} M" == rows[1][2] == "1.62 M"
    assert [r[3] for r in rows[:2]] == ["not matched", "not matched"]  # its widths were given
    assert rows[3][:2] == ["cnn", f"{4 * cnn / 2**10:.1f} KiB"]
    said = f"Not of the size of vit, as a fair comparison needs: cnn has {cnn:,} parameters."
    assert said in lines
    assert list(here.iterdir()) == []


def test_a_class_of_the_current_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data_of_this_folder.py").write_text(
        "import numpy as np\n"
        "from vision_attn.data.sources import Source\n"
        "def made():\n"
        "    x, y = np.zeros((12, 5, 7), np.uint8), np.arange(12) % 3\n"
        "    return Source.from_arrays(x, y, x, y)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != ""])
    line = ["budget", "--models", "linear", "--data.name", "data_of_this_folder.made"]
    assert main(line) == 2  # called from Python, it leaves Python's path alone
    assert "No module named 'data_of_this_folder'" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["/usr/bin/vision-attn", *line])
    assert main() == 0
    assert "linear" in capsys.readouterr().out
    assert sys.path[-1] == ""
