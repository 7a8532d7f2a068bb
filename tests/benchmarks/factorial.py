"""Main effects and interactions of tokens, mixing and norm, with 95 % t intervals over draws.

    python tests/benchmarks/factorial.py docs/results/cifar10_attention

Reads the runs of {patch, pooled}_{attention, conv, none}, which have layer norm, and of
{patch, pooled}_{attention, none}_bn, which have batch norm. Every effect is made in each draw;
points of test accuracy, and nats of test loss.
"""

import argparse
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pandas as pd

from vision_attn.stats.intervals import interval
from vision_attn.study.results import read_results

TOKENS, MIXING = ("patch", "pooled"), ("attention", "conv", "none")
PLAIN = [f"{t}_{m}" for t in TOKENS for m in MIXING]
NORMS = [f"{t}_{m}{n}" for t in TOKENS for m in ("attention", "none") for n in ("", "_bn")]


def plain_effects(of: pd.DataFrame) -> dict[str, pd.Series]:
    """Tokens and mixing, under layer norm; a row of `of` is a draw."""
    cost = {t: of[[f"{t}_conv", f"{t}_none"]].mean(axis=1) - of[f"{t}_attention"] for t in TOKENS}
    pools = [of[f"pooled_{m}"] - of[f"patch_{m}"] for m in MIXING]
    convolution = [of[f"{t}_none"] - of[f"{t}_conv"] for t in TOKENS]
    return {
        "no attention, over attention": mean(cost.values()),
        "pooled tokens, over patches": mean(pools),
        "interaction of the two": cost["pooled"] - cost["patch"],
        "nothing, over convolution": mean(convolution),
    }


def norm_effects(of: pd.DataFrame) -> dict[str, pd.Series]:
    """The norm, and what attention costs under each."""
    cost = {
        norm: mean(of[f"{t}_none{norm}"] - of[f"{t}_attention{norm}"] for t in TOKENS)
        for norm in ("", "_bn")
    }
    gain = {
        (t, m): of[f"{t}_{m}_bn"] - of[f"{t}_{m}"] for t in TOKENS for m in ("attention", "none")
    }
    pooled = mean(gain["pooled", m] - gain["patch", m] for m in ("attention", "none"))
    return {
        "batch norm, over layer norm": mean(gain.values()),
        "nothing, over attention, layer norm": cost[""],
        "nothing, over attention, batch norm": cost["_bn"],
        "interaction of norm and mixing": cost["_bn"] - cost[""],
        "interaction of norm and tokens": pooled,
    }


def mean(values: Iterable[pd.Series]) -> pd.Series:
    """Of several columns, draw by draw."""
    return pd.concat(list(values), axis=1).mean(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    runs = read_results(parser.parse_args().study)
    print("| images | effect | points | test loss |")
    print("|---:|:---|---:|---:|")
    for (size, group), (names, effects) in product(
        runs.groupby("size"), ((PLAIN, plain_effects), (NORMS, norm_effects))
    ):
        rows: dict[str, list[str]] = {}
        for measure, scale, digits in (("test_acc", 100, 1), ("test_loss", 1, 2)):
            of = group.pivot_table(index="draw", columns="model", values=measure)
            if not all(name in of for name in names):
                continue
            for name, values in effects(of[names].dropna()).items():
                ends = [f"{round(scale * x, digits):.{digits}f}" for x in interval(values)[:3]]
                rows.setdefault(name, []).append(f"{ends[0]} ({ends[1]} to {ends[2]})")
        for name, texts in rows.items():
            print(f"| {size:,} | {name} | {' | '.join(texts)} |")


if __name__ == "__main__":
    main()
