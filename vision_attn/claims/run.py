"""The claims about attention, measured: one table, one figure and a few sentences for each."""

import io
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import torch
from rich.markdown import Markdown

from vision_attn.claims.common import Claim, Settings
from vision_attn.claims.convolution import measure_conv
from vision_attn.claims.cost import measure_cost
from vision_attn.claims.models import Models
from vision_attn.claims.order import measure_order
from vision_attn.claims.scale import measure_scale
from vision_attn.claims.self_weight import measure_self
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.errors import UserError
from vision_attn.files import as_json, write_bytes, write_text

__all__ = ["FULL", "QUICK", "check_out", "diagnose", "terminal_view", "write_claims"]

FULL = Settings()
QUICK = Settings(
    widths=(4, 16, 64, 256), draws=3, steps=30, seeds=2, heads=(1, 4), alphas=(4, 8, 12, 20, 46),
    convs=2, sides=(8, 16, 24), turns=2, matrix=24,
)  # fmt: skip


def check_out(out: Path, overwrite: bool) -> None:
    """UserError if `out` is a file, or holds files and `overwrite` is false."""
    if out.exists() and not out.is_dir():
        raise UserError(f"out {out} is a file; wanted a folder, new or empty")
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise UserError(f"out {out} holds files already; give --overwrite, or another --out")


def diagnose(
    source: Source,
    settings: Settings = FULL,
    *,
    device: torch.device | None = None,
    tell: Callable[[str], None] = lambda text: None,
    show: Callable[[Claim], None] = lambda claim: None,
) -> list[Claim]:
    """Measure every claim on the embedded digits; self-weight also on `source` if it is another.

    Args:
        source: images; `Source` of the digits for the digits alone.
        settings: how much work.
        device: where models run; None is the accelerator, or the CPU if there is none.
        tell: called with what is being measured, for a status line.
        show: called with each claim when it is finished.
    """
    if device is None:
        device = L.Fabric(accelerator="auto", devices=1).device
    same = source.name == "digits"
    digits = Models(source if same else load(DataConfig()), settings, device, tell)
    every = [digits] if same else [digits, Models(source, settings, device, tell)]
    measures: Sequence[tuple[str, Callable[[], Claim]]] = (
        ("scale", lambda: measure_scale(digits, settings)),
        ("self_weight", lambda: measure_self(every, settings)),
        ("order", lambda: measure_order(digits, settings)),
        ("convolution", lambda: measure_conv(digits, settings)),
        ("cost", lambda: measure_cost(settings, device)),
    )
    claims = []
    for name, measure in measures:
        tell(f"{name}: measuring")
        start = time.perf_counter()
        claim = measure()
        claim.seconds = time.perf_counter() - start
        claims.append(claim)
        show(claim)
    return claims


def write_claims(claims: Sequence[Claim], settings: Settings, out: Path) -> None:
    """diagnose.json, diagnose.md, a CSV of the repeats for each table, a PNG for each claim."""
    out.mkdir(parents=True, exist_ok=True)
    about = {
        "vision_attn": version("vision-attn"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "settings": asdict(settings),
        "seconds": sum(c.seconds for c in claims),
    }
    by_name = {
        c.name: {
            "question": c.question,
            "answers": c.answers,
            "numbers": c.numbers,
            "seconds": c.seconds,
            "tables": {k: t.table().to_dict("records") for k, t in c.tables.items()},
        }
        for c in claims
    }
    write_text(out / "diagnose.json", as_json({"about": about, "claims": by_name}))
    write_text(out / "diagnose.md", markdown(claims, about))
    for claim in claims:
        for name, table in claim.tables.items():
            content = table.raw.to_csv(index=False, lineterminator="\n")
            write_text(out / f"{claim.name}_{name}.csv", content)
        image = io.BytesIO()
        claim.figure.savefig(image, format="png", dpi=130)
        write_bytes(out / f"{claim.name}.png", image.getvalue())


def markdown(claims: Sequence[Claim], about: dict[str, Any]) -> str:
    """All claims as a Markdown page: sentences, figures and tables."""
    parts = [
        "# The claims about attention, measured\n",
        f"`vision-attn diagnose`, {about['seconds']:.0f} s, {about['threads']} threads, torch"
        f" {about['torch']}, {about['machine']}. Brackets are 95 % intervals (Student's t) over"
        " repeats, or of a fitted slope.\n",
    ]
    for claim in claims:
        parts += [f"## {claim.question}\n", *(f"- {a}" for a in claim.answers), ""]
        parts.append(f"![{claim.name}]({claim.name}.png)\n")
        parts += _tables(claim)
    return "\n".join(parts)


def terminal_view(claim: Claim) -> list[Any]:
    """One claim for a terminal: its tables, then its sentences."""
    return [Markdown("\n".join(_tables(claim))), *claim.answers]


def _tables(claim: Claim) -> Iterator[str]:
    """Lines of a claim's tables in Markdown, each value as `mean ± half of the interval`."""
    for table in claim.tables.values():
        yield f"{table.title[0].upper()}{table.title[1:]}:\n"
        rows = [[*table.by, *table.values, "repeats"]]
        rows.append(["---"] * len(table.by) + ["---:"] * (len(table.values) + 1))
        for _, row in table.table().iterrows():
            cells = [f"{row[name]:g}" if isinstance(row[name], float) else str(row[name])
                     for name in table.by]  # fmt: skip
            for name in table.values:
                mean, high = row[f"{name}_mean"], row[f"{name}_high"]
                exact = pd.isna(high) or high == mean
                half = "" if exact else f" ± {float(f'{high - mean:.2g}'):g}"
                cells.append(f"{float(f'{mean:.4g}'):g}{half}")
            rows.append([*cells, f"{row['count']:.0f}"])
        yield from (f"| {' | '.join(row)} |" for row in rows)
        yield ""
