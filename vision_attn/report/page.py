"""report.html: the whole study on one page that needs no network and no other file."""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vision_attn.report.analysis import Analysis
from vision_attn.report.figures import Picture
from vision_attn.report.numbers import FIT
from vision_attn.report.sentences import lines, short_terms, together, verdict
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
    results = analysis.stored.results
    blocks, first = page_blocks(analysis), len(results_blocks(analysis))
    return _template().render(
        mark=MARK,
        title=" and ".join(analysis.pair or analysis.main["model"].unique()),
        data=analysis.data,
        runs=results[results["status"] == "ok"],
        verdict=verdict(analysis),
        lines=lines(analysis),
        terms=short_terms(analysis),
        short=in_short(analysis.comparison) if analysis.comparison else None,
        together=together(analysis),
        drawings=[(picture, *_inside(picture.name, svg)) for picture, svg in pictures.items()],
        curves={picture.name: picture.chart.tips() for picture in pictures},
        blocks=blocks[:first],
        more=blocks[first:],
        failures=failures(analysis),
        configs=list(_configs(analysis)),
        studies=analysis.stored.studies,
        fit=FIT,
    )


def _inside(name: str, svg: bytes) -> tuple[str, Markup]:
    """The box of an SVG and what is in it, to stand inside the page.

    It is without what only a file needs, and its ids are those of no other figure of the page.
    """
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg.decode(), flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    root = re.search(r'<svg[^>]*viewBox="([^"]*)"[^>]*>', text)
    if root is None:
        raise ValueError(f"the SVG of {name} has no viewBox")
    return root[1], Markup(text[root.end() : text.rindex("</svg>")])


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("vision_attn.report", ""), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {"data_uri": _data_uri, "word_columns": _word_columns}
    return environment.get_template("report.html.j2")


def _data_uri(content: bytes | str, kind: str) -> str:
    content = content.encode() if isinstance(content, str) else content
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _word_columns(block: Block) -> list[bool]:
    """Which columns hold words and no numbers; these stand at the left."""
    number = re.compile(r"[-+<>]?\s?\d")
    return [
        bool(block.rows) and not any(number.match(row[i]) for row in block.rows)
        for i in range(len(block.header))
    ]


def _configs(analysis: Analysis) -> Iterator[dict[str, str]]:
    """Every configuration that the directories were started with.

    Its `file`, the directory `out` that it makes, its YAML as `text`.
    """
    several = len(analysis.stored.studies) > 1
    for name, study in analysis.stored.studies.items():
        word = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        configs = starts(study)
        for i, config in enumerate(configs, 1):
            file = "study-config" + f"-{word}" * several + f"-{i}" * (len(configs) > 1) + ".yaml"
            text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
            yield {"file": file, "out": word if several else "DIR", "text": text}
