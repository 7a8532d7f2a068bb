"""report.html: the whole study on one page that needs no network, no script and no other file."""

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import yaml

from vision_attn.compare.identity import starts
from vision_attn.compare.stored import Stored
from vision_attn.report.page_style import STYLE
from vision_attn.report.tables import Block

__all__ = ["MARK", "Picture", "page"]

MARK = '<meta name="generator" content="vision-attn">'
"""By this a report is known as one that may be written again."""

_KEY = (
    "± is half of a 95 % t interval over draws; * marks a gap whose runs did not all fit (train"
    " accuracy under 99 %)."
)


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Args:
        title: its name, in words.
        caption: how to read it.
        alt: what it shows, for those who do not see it.
        svg: the picture.
        tall: higher than wide; two others have room beside it.
    """

    title: str
    caption: str
    alt: str
    svg: bytes
    tall: bool


def page(
    stored: Stored,
    title: str,
    verdict: Sequence[str],
    remarks: Sequence[str],
    pictures: Sequence[Picture],
    blocks: Sequence[Block],
) -> str:
    """The page as HTML; every text in it is escaped.

    Args:
        stored: results and studies, for facts, failures and configuration.
        title: heading of the page.
        verdict: the sentences at the top.
        remarks: sentences below them.
        pictures, blocks: figures and tables, in order.
    """
    body = [
        _tag("h1", title),
        _tag("p", _facts(stored), 'class="facts"'),
        '<section class="verdict" id="verdict" aria-label="Verdict">',
        *(_tag("p", sentence) for sentence in verdict),
        "</section>",
        *(_tag("p", remark) for remark in remarks),
        _tag("h2", "Figures"),
        '<div class="figures">',
        *(_figure(p) for p in pictures),
        "</div>",
        _tag("h2", "Tables"),
        _tag("p", _KEY),
        *(_table(b) for b in blocks),
        *_failures(stored.results),
        _tag("h2", "How to run it again"),
        *_again(stored),
        *_machines(stored),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            MARK,
            '<link rel="icon" href="data:,">',
            _tag("title", title),
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            "</body>",
            "</html>\n",
        ]
    )


def _tag(name: str, text: object, attributes: str = "") -> str:
    opening = f"{name} {attributes}" if attributes else name
    return f"<{opening}>{html.escape(str(text))}</{name}>"


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _figure(picture: Picture) -> str:
    alt = html.escape(picture.alt)
    kind = ' class="tall"' if picture.tall else ""
    return (
        f'<figure{kind}><img src="{_uri("image/svg+xml", picture.svg)}" alt="{alt}">'
        f"<figcaption>{_tag('b', picture.title + '.')} {html.escape(picture.caption)}</figcaption>"
        "</figure>"
    )


def _table(block: Block) -> str:
    """In a box of its own, which scrolls sideways and can be reached by keyboard."""
    words = [
        bool(block.rows) and not any(_number(row[i]) for row in block.rows)
        for i in range(len(block.header))
    ]

    def cell(name: str, text: str, i: int) -> str:
        kind = ["word"] * words[i] + ["long"] * (len(text) > 60 and name == "td")
        scope = ' scope="col"' if name == "th" else ""
        return _tag(name, text, f'class="{" ".join(kind)}"' if kind else scope.strip())

    head = "".join(cell("th", h, i) for i, h in enumerate(block.header))
    rows = [
        "<tr>" + "".join(cell("td", text, i) for i, text in enumerate(row)) + "</tr>"
        for row in block.rows
    ]
    label = html.escape(block.title or "results")
    return "\n".join(
        [
            f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>',
            _tag("caption", block.title),
            f"<thead><tr>{head}</tr></thead>",
            "<tbody>",
            *rows,
            "</tbody></table></div>",
        ]
    )


def _number(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] in "-+<>" and text[1:2].strip()[:1].isdigit())


def _facts(stored: Stored) -> str:
    good = stored.results[stored.results["status"] == "ok"]
    sizes = sorted({int(s) for s in good["size"]})
    span = f"{sizes[0]:,}" + (f" to {sizes[-1]:,}" if len(sizes) > 1 else "")
    data = {str(s["identity"]["data"]["name"]) for s in stored.studies.values()}
    where = f" on {' and '.join(sorted(data))}" if data else ""
    draws, models = good["draw"].nunique(), good["model"].nunique()
    return (
        f"{len(good)} finished runs{where}: {_count(models, 'model')}, {_count(len(sizes), 'size')}"
        f" ({span} training images), {_count(draws, 'draw')}"
        f", {_count(good['seed'].nunique(), 'seed')} each."
    )


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'s' * (n != 1)}"


def _failures(results: pd.DataFrame) -> Iterable[str]:
    failed = results[results["status"] != "ok"]
    if len(failed):
        names = ["model", "size", "draw", "seed", "protocol", "control", "error"]
        rows = [
            [f"{r[k]:,}" if k == "size" else "" if pd.isna(r[k]) else str(r[k]) for k in names]
            for r in failed.to_dict("records")
        ]
        yield _tag("h2", "Runs that failed")
        yield _table(Block(f"{_count(len(failed), 'run')} failed and counts nowhere", names, rows))


def _again(stored: Stored) -> Iterable[str]:
    """Every configuration that the directories were started with, to save, and its command."""
    several = len(stored.studies) > 1
    parts: list[tuple[str, str, dict[str, Any]]] = []
    for name, study in stored.studies.items():
        word = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        configs = starts(study)
        for i, config in enumerate(configs, 1):
            file = "study-config" + f"-{word}" * several + f"-{i}" * (len(configs) > 1) + ".yaml"
            parts.append((file, word if several else "DIR", config))
    if not parts:
        yield _tag("p", "No study.yaml is stored beside these results.")
        return
    one = len(parts) == 1
    yield _tag(
        "p",
        f"Save the configuration{'s' * (not one)} below, with every option as it was resolved, and"
        f" run{'' if one else ' one after the other'}:",
    )
    lines = [f"python train.py compare --config {file} --out {out}" for file, out, _ in parts]
    if several:
        outs = " ".join(dict.fromkeys(out for _, out, _ in parts))
        lines.append(f"python train.py plot {outs} --out DIR")
    yield _tag("pre", "\n".join(lines), 'class="command"')
    for file, _, config in parts:
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        link = html.escape(file)
        uri = _uri("application/yaml", text.encode())
        yield f'<p><a download="{link}" href="{uri}">Save {link}</a></p>'
        yield f"<details {'open' * one}>{_tag('summary', file)}{_tag('pre', text)}</details>"


def _machines(stored: Stored) -> Iterable[str]:
    held = {
        n: {k: s[k] for k in ("versions", "machine") if k in s} for n, s in stored.studies.items()
    }
    held = {n: parts for n, parts in held.items() if parts}
    if held:
        yield _tag("h2", "Versions and machine")
    for name, parts in held.items():
        words = [
            f"{k} {'none' if v is None else v}" for part in parts.values() for k, v in part.items()
        ]
        yield _tag("p", (f"{name}: " if len(held) > 1 else "") + ", ".join(words) + ".")
