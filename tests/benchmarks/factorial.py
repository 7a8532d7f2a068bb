"""Main effects and interaction of tokens and mixing, with 95 % t intervals over draws.

    python tests/benchmarks/factorial.py docs/results/cifar10_attention

Reads the runs of {patch, pooled}_{attention, conv, none}. Every effect is made in each draw; points
of test accuracy, and nats of test loss.
"""

import argparse
from pathlib import Path

from vision_attn.stats.intervals import interval
from vision_attn.study.results import read_results

TOKENS, MIXING = ("patch", "pooled"), ("attention", "conv", "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    runs = read_results(parser.parse_args().study)
    print("| images | effect | points | test loss |")
    print("|---:|:---|---:|---:|")
    for size, group in runs.groupby("size"):
        cells = {
            measure: group.pivot_table(index="draw", columns="model", values=measure)
            for measure in ("test_acc", "test_loss")
        }
        names = [f"{t}_{m}" for t in TOKENS for m in MIXING]
        if not all(name in cells["test_acc"] for name in names):
            continue
        rows: dict[str, list[str]] = {}
        for measure, of in cells.items():
            of = of[names].dropna()
            cost = {
                t: of[[f"{t}_conv", f"{t}_none"]].mean(axis=1) - of[f"{t}_attention"]
                for t in TOKENS
            }
            pools = {m: of[f"pooled_{m}"] - of[f"patch_{m}"] for m in MIXING}
            effects = {
                "no attention, over attention": (cost["patch"] + cost["pooled"]) / 2,
                "pooled tokens, over patches": sum(pools.values()) / 3,
                "interaction of the two": cost["pooled"] - cost["patch"],
                "nothing, over convolution": sum(of[f"{t}_none"] - of[f"{t}_conv"] for t in TOKENS)
                / 2,
            }
            scale, digits = (100, 1) if measure == "test_acc" else (1, 2)
            for name, values in effects.items():
                mean, low, high, _ = (round(scale * x, digits) for x in interval(values))
                text = f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
                rows.setdefault(name, []).append(text)
        for name, texts in rows.items():
            print(f"| {size:,} | {name} | {' | '.join(texts)} |")


if __name__ == "__main__":
    main()
