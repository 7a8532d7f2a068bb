"""report.html: the whole study on one page that needs no network and no other file."""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vision_attn.report.analysis import Analysis
from vision_attn.report.figures import Picture
from vision_attn.report.marks import curves
from vision_attn.report.numbers import FIT
from vision_attn.report.remarks import remarks
from vision_attn.report.sentences import lines, terms, verdict
from vision_attn.report.tables import Block, failures, in_short, page_blocks, results_blocks
from vision_attn.study.study_file import starts

__all__ = ["MARK", "page"]

MARK = '<meta name="generator" content="vision-attn">'
"""Marks a page as ours, so that it may be overwritten."""


def page(analysis: Analysis, pictures: Mapping[Picture, bytes]) -> str:
    """The page as HTML; the template escapes every text in it.

    Args:
        analysis: what is said.
        pictures: each figure as SVG, in order.
    """
    configs = list(_configs(analysis))
    blocks, first = page_blocks(analysis), len(results_blocks(analysis))
    return _template().render(
        mark=MARK,
        title=_title(analysis),
        facts=_facts(analysis),
        verdict=verdict(analysis),
        lines=lines(analysis),
        terms=terms(analysis),
        short=in_short(analysis.comparison) if analysis.comparison else None,
        remarks=remarks(analysis),
        drawings=[_Drawing.of(picture, svg) for picture, svg in pictures.items()],
        curves={picture.name: curves(picture.figure) for picture in pictures},
        blocks=blocks[:first],
        more=blocks[first:],
        failures=failures(analysis),
        contents=list(_contents(analysis, len(pictures), len(blocks) > first)),
        configs=configs,
        commands=_commands(configs, len(analysis.stored.studies)),
        machines=list(_machines(analysis)),
        fit=FIT,
    )


class _Drawing(NamedTuple):
    """A figure with its SVG, ready to stand inside the page."""

    picture: Picture
    box: str
    inside: Markup

    @classmethod
    def of(cls, picture: Picture, svg: bytes) -> "_Drawing":
        """Without what only a file needs, and with ids that no other figure of the page has."""
        text = svg.decode()
        text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{picture.name}-", text)
        root = re.search(r'<svg[^>]*viewBox="([^"]*)"[^>]*>', text)
        if root is None:
            raise ValueError(f"the SVG of {picture.name} has no viewBox")
        inside = text[root.end() : text.rindex("</svg>")]
        return cls(picture, root[1], Markup(inside))


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("vision_attn.report", ""), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"data_uri": _data_uri, "word_columns": _word_columns}
    environment.globals["classes"] = _classes
    return environment.get_template("report.html.j2")


def _data_uri(content: bytes | str, kind: str) -> str:
    content = content.encode() if isinstance(content, str) else content
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _word_columns(block: Block) -> list[bool]:
    """Which columns hold words and no numbers; these stand at the left."""
    return [
        bool(block.rows) and not any(_is_number(row[i]) for row in block.rows)
        for i in range(len(block.header))
    ]


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] in "-+<>" and text[1:2].strip()[:1].isdigit())


def _classes(text: str, word: bool) -> str | None:
    return " ".join(["word"] * word + ["long"] * (len(text) > 60)) or None


def _title(analysis: Analysis) -> str:
    comparison = analysis.comparison
    names = f"{comparison.first} and {comparison.second}" if comparison else analysis.models[0]
    return f"{names} on growing training sets"


def _facts(analysis: Analysis) -> str:
    results = analysis.stored.results
    good = results[results["status"] == "ok"]
    sizes = sorted({int(s) for s in good["size"]})
    span = f"{sizes[0]:,}" + (f" to {sizes[-1]:,}" if len(sizes) > 1 else "")
    data = analysis.data
    where = f" on {data}" if data else ""
    draws, models = good["draw"].nunique(), good["model"].nunique()
    return (
        f"{len(good)} finished runs{where}: {_count(models, 'model')}, {_count(len(sizes), 'size')}"
        f" ({span} training images), {_count(draws, 'draw')}"
        f", {_count(good['seed'].nunique(), 'seed')} each."
    )


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'s' * (n != 1)}"


def _contents(analysis: Analysis, figures: int, tables: bool) -> Iterator[tuple[str, str]]:
    """The id and the name of each part that the page has."""
    yield from (("verdict", "Verdict"), ("curves-of-all", "Accuracy and gap"))
    yield "results", "Results"
    if figures > 2:
        yield "more-figures", "More figures"
    if tables:
        yield "more-tables", "More tables"
    if len(analysis.failures):
        yield "failures", "Runs that failed"
    yield "again", "Run it again"


class _Config(NamedTuple):
    """A configuration to save: its file, the directory that it makes, its YAML."""

    file: str
    out: str
    text: str


def _configs(analysis: Analysis) -> Iterator[_Config]:
    """Every configuration that the directories were started with."""
    several = len(analysis.stored.studies) > 1
    for name, study in analysis.stored.studies.items():
        word = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        configs = starts(study)
        for i, config in enumerate(configs, 1):
            file = "study-config" + f"-{word}" * several + f"-{i}" * (len(configs) > 1) + ".yaml"
            text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
            yield _Config(file, word if several else "DIR", text)


def _commands(configs: list[_Config], studies: int) -> list[str]:
    lines = [f"python train.py compare --config {c.file} --out {c.out}" for c in configs]
    if studies > 1:
        outs = " ".join(dict.fromkeys(c.out for c in configs))
        lines.append(f"python train.py plot {outs} --out DIR")
    return lines


def _machines(analysis: Analysis) -> Iterator[str]:
    """Versions and machine of each directory."""
    studies = {
        name: [study[k] for k in ("versions", "machine") if study.get(k)]
        for name, study in analysis.stored.studies.items()
    }
    studies = {name: parts for name, parts in studies.items() if parts}
    for name, parts in studies.items():
        words = [f"{k} {'none' if v is None else v}" for part in parts for k, v in part.items()]
        yield (f"{name}: " if len(studies) > 1 else "") + ", ".join(words) + "."
