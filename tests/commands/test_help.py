"""Help and mistakes are told before anything heavy is imported, in words of one screen."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from said import refused

from vision_attn.cli import COMMANDS, main
from vision_attn.commands.help import COMMON, EXAMPLES, help_text
from vision_attn.commands.options import known_options, names_class, trainer_options
from vision_attn.data.config import NAMES
from vision_attn.data.sources import _TORCHVISION
from vision_attn.models.registry import known_models
from vision_attn.names import MODELS
from vision_attn.texts import program

pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

AT_ONCE = {
    "compar": "did you mean compare?",
    "compare --draw 1": "did you mean --draws?",
    "compare --sizes 50 100": "--sizes takes one list: write --sizes 50,100",
    "compare --sizes 0": "sizes has 0; wanted 1 or more images",
    "compare --data.name cifar": "data.name 'cifar' is not known; did you mean cifar10?",
    "compare --data.name folder": "data.name folder needs data.root",
    "compare --data.name digits --data.root x": "data.root is x, but digits come with scikit-learn",
    "compare --models vat": "model 'vat' is not known; did you mean vit?",
    "compare --args.vitt.depth 3": "args.vitt is for no model of the study; did you mean vit?",
    "compare --config key.yaml": "key.yaml, line 2: modles is no option; did you mean models?",
    "compare --config value.yaml": "config value.yaml, line 3: optim.lr is fast; wanted number",
    "compare --config syntax.yaml": "config syntax.yaml, line 3: while parsing a flow sequence",
    "compare --config quik": "config 'quik' is no file and no preset; did you mean quick?",
    "budget --data.nam digits": "did you mean --data.name?",
    "plot --formats svg x": "did you mean --format?",
    "plot runs/none": "runs/none is no directory",
    "explain --chkpt x": "did you mean --ckpt?",
    "diagnose --data.name cifar": "did you mean cifar10?",
    "fit --model.arg 4": "--model.arg is no option of fit; did you mean --model.args?",
    "fit --model.num_classes 4": "model.num_classes comes from the data",
    "fit --trainer.max_epoch 4": "did you mean --trainer.max_epochs?",
    "fit --config fit.yaml": "config fit.yaml, line 2: trainer.max_epoch is no option of fit",
    "fit --data.name cifar": "did you mean cifar10?",
    "test --model.name vat": "did you mean vit?",
    "predict --imag x": "did you mean --image?",
}  # fmt: skip
"""FIRST-HOUR's typical mistakes, as far as neither images nor a model are needed to see them."""

FILES = {
    "key.yaml": "draws: 1\nmodles: [vit]\n",
    "value.yaml": "draws: 1\noptim:\n  lr: fast\n",
    "syntax.yaml": "draws: 1\nmodels: [vit\n",
    "fit.yaml": "trainer:\n  max_epoch: 3\n",
}


@pytest.fixture
def files(here: Path) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text)


@pytest.mark.parametrize("line", AT_ONCE)
def test_a_mistake_is_told_in_one_line(
    files: None, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert AT_ONCE[line] in refused(line, capsys)


def test_help_and_mistakes_import_nothing_heavy(files: None) -> None:
    lines = [[], ["--help"], *([c, "--help"] for c in COMMANDS), *(a.split() for a in AT_ONCE)]
    code = f"""
import contextlib, io, json, sys
from vision_attn.cli import main
heavy = {{"torch", "lightning", "timm", "pandas", "matplotlib", "sklearn", "torchvision"}}
found = {{}}
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    for line in {lines!r}:
        with contextlib.suppress(SystemExit):
            main(line)
        if seen := sorted(heavy & sys.modules.keys()):
            found[" ".join(line)] = seen
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_short(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, "--data.name", "x", "--help"]) == 0  # whatever else is typed
    usage, *lines = capsys.readouterr().out.splitlines()
    assert usage.startswith(f"usage: vision-attn {command} ")
    assert not lines[0]
    examples = [line for line in lines if line.startswith(f"  vision-attn {command}")]
    assert len(examples) == 3
    assert len(lines) < 60
    assert not [line for line in lines if len(line) > 80 and line not in examples]
    assert any(line.startswith("  --help-all ") for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_options_that_there_are(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """In its table and in its examples."""
    with pytest.raises(SystemExit) as end:
        main([command, "--help-all"])
    assert end.value.code == 0
    whole = capsys.readouterr().out
    known = set(re.findall(r"--[\w.-]+", whole)) | {"--help-all"}
    if command == "predict":
        known |= {"--image", "--out", "--convert"}
    typed = [*COMMON[command], *EXAMPLES[command]]
    for option in re.findall(r"--[\w.-]+", " ".join(typed)):
        assert re.sub(r"(args)\..*", r"\1", option.rstrip(".")) in known, option
    assert whole.splitlines()[0].strip().startswith("usage: vision-attn")


def test_names_known_without_torch_are_all_there_are() -> None:
    assert sorted(MODELS) == sorted(known_models())
    assert set(NAMES) == {"digits", "relational", "folder", "npz", *_TORCHVISION}


def test_budget_shows_what_a_cost_depends_on() -> None:
    names = re.findall(r"--[\w.-]+", help_text("budget", "costs").split("options:")[1])
    assert {n.split(".")[0] for n in names} == {
        "--config", "--data", "--models", "--args", "--match", "--match_to", "--help-all",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("/usr/bin/vision-attn", "vision-attn"),
        ("train.py", "python train.py"),
        ("/lib/vision_attn/__main__.py", "python -m vision_attn"),
        ("/lib/pytest/__main__.py", "vision-attn"),
    ],
)
def test_the_program_has_the_name_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, name: str
) -> None:
    monkeypatch.setattr(sys, "argv", [typed])
    assert program() == name
    assert main(["plot", "--help"]) == 0
    assert f"usage: {name} plot" in capsys.readouterr().out


def test_names_known_without_lightning_are_those_of_its_parser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vision_attn.commands.lightning import ClassifierCLI
    from vision_attn.commands.strict_yaml import set_strict_yaml

    found: dict[str, set[str]] = {}

    def look(self: ClassifierCLI, parser: object, args: object) -> None:
        for command in self.subcommands():
            words = [
                s[2:]
                for a in self._parser(command)._actions
                for s in a.option_strings
                if s[:2] == "--"
            ]
            found[command] = {w for w in words if w != "help" and not w.endswith((".help", "+"))}
        raise SystemExit

    monkeypatch.setattr(ClassifierCLI, "parse_arguments", look)
    set_strict_yaml()
    with pytest.raises(SystemExit):
        ClassifierCLI(["fit"])
    assert len(found) == 4
    for command, names in found.items():
        own = {"image", "out", "convert"} if command == "predict" else set()
        assert set(known_options(command)) - own == (names | {"trainer"}) - {""}
    assert "max_epochs" in trainer_options()


def test_a_class_path_brings_options_of_its_own(
    files: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert names_class(["--model", "x.Y"], {})
    assert names_class([], {"a": {"model": {"class_path": "x.Y"}}})
    assert not names_class(["--model.lr", "1"], {"a": {"model": {"lr": 1}}})
    said = refused("fit --config dense --model.depht 1", capsys)
    assert "depht" in said
