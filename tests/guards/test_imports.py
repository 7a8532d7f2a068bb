"""Imports run one way, and the heavy ones wait until they are needed."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vision_attn

PACKAGE = Path(vision_attn.__file__).parent
BASE = {"errors", "files", "names", "texts"}
# What each part may import beside itself. `vision_attn` itself is its top-level __init__.
MAY: dict[str, set[str]] = {
    "errors": set(),
    "files": {"errors"},
    "names": {"errors"},
    "texts": set(),
    "ops": BASE,
    "stats": BASE,
    "layers": BASE | {"ops"},
    "models": BASE | {"ops", "layers"},
    "data": BASE | {"ops"},
    "training": BASE | {"ops", "layers", "models", "data"},
}
MAY["explain"] = MAY["training"] | {"training"}
MAY["claims"] = MAY["explain"] | {"explain", "stats"}
MAY["study"] = MAY["explain"] | {"explain", "stats"}
MAY["report"] = MAY["study"] | {"study"}
MAY["commands"] = MAY["report"] | {"claims", "report"}
MAY["cli"] = {"errors", "names", "texts", "commands", "vision_attn"}
MAY["__main__"] = {"cli"}


def imported(source: str) -> Iterator[str]:
    """Every module that a source imports, wherever in it; the names of `from` imports included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used in this package"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parts(source: str) -> set[str]:
    """The parts of the package that a source imports; `vision_attn` for names of the package."""
    ours = [name.split(".") for name in imported(source) if name.split(".")[0] == "vision_attn"]
    return {name[1] if len(name) > 1 and name[1] in MAY else "vision_attn" for name in ours}


def modules() -> list[str]:
    found = (p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py"))
    return sorted(name for name in found if name != "__init__.py")


def test_the_reader_sees_imports_of_every_kind() -> None:
    source = """
import os, vision_attn.ops.tokens as t
from vision_attn import layers, __version__
if TYPE_CHECKING:
    from vision_attn.models.vit import VisionTransformer
def f():
    from vision_attn.study import cells
"""
    assert parts(source) == {"ops", "layers", "vision_attn", "models", "study"}
    assert {"os", "vision_attn.study.cells"} <= set(imported(source))


@pytest.mark.parametrize("module", modules())
def test_imports_run_one_way(module: str) -> None:
    part = module.split("/")[0].removesuffix(".py")
    assert part in MAY, f"say in MAY what {part} may import"
    wrong = parts((PACKAGE / module).read_text()) - MAY[part] - {part}
    assert not wrong, f"{module} imports {sorted(wrong)}"


def test_reports_read_studies_and_run_none() -> None:
    """Nor do the parts of `study` that read results."""
    readers = [*PACKAGE.glob("report/*.py"), *PACKAGE.glob("study/[rj][eo]*.py")]
    assert len(readers) > 8
    for file in readers:
        source = set(imported(file.read_text()))
        assert not [m for m in source if re.match(r"vision_attn\.study\.(execute|workers|tune)", m)]


def test_the_table_has_no_circle() -> None:
    done: set[str] = {"vision_attn"}
    for part, may in MAY.items():
        assert may <= done | {part}, part
        done.add(part)


def in_fresh_python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


HEAVY = "{'torch', 'lightning', 'timm', 'pandas', 'matplotlib', 'sklearn'} & set(sys.modules)"


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, vision_attn; print(vision_attn.__version__, {HEAVY})"
    assert in_fresh_python(code).split() == [vision_attn.__version__, "set()"]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_loads_nothing_heavy(option: str) -> None:
    code = f"""
import sys
from vision_attn.cli import main
try:
    main([{option!r}])
except SystemExit as e:
    assert not e.code
print("heavy", {HEAVY})
"""
    *text, last = in_fresh_python(code).splitlines()
    assert last == "heavy set()"
    assert ("usage: vision-attn" if option == "--help" else vision_attn.__version__) in text[0]


def test_importing_timm_first_registers_the_models() -> None:
    code = "import timm, vision_attn; print(*timm.list_models('vision_attn_*'))"
    assert {"vision_attn_vit", "vision_attn_cnn"} <= set(in_fresh_python(code).split())


def test_public_names_are_those_of_their_modules() -> None:
    """And a type checker is told of the same."""
    own = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    for name in vision_attn.__all__:
        thing = getattr(vision_attn, name)
        assert thing.__name__ == name
        assert name in dir(vision_attn)
        home = vision_attn._HOME[name]
        assert f"from {home} import " in own, name
        assert re.search(rf"\b{name} as {name}\b", own), name
    assert len(re.findall(r"\w+ as \w+", own)) == len(vision_attn.__all__)
    with pytest.raises(AttributeError, match="module 'vision_attn' has no attribute 'Nothing'"):
        vision_attn.Nothing  # noqa: B018
