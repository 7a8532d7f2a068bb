"""How often the study's 95 % intervals hold the truth, over simulated studies.

    python tests/benchmarks/coverage.py [--studies N] [--draws 3 5]

Each study is made up from two known laws: `cnn`, 4 n^-0.4 + 0.02, and `vit`, which needs 2.5
times its images (for the crossing, 8.31 n^-0.5 + 0.02, which meets `cnn` at 1,500). Errors are
multiplied by noise: 1 % shared by all sizes of a draw, 1 % shared by both models at a size, 1.5 %
of each run's own. The sizes are those of cifar10_cpu and three times the largest. About two
minutes.
Beside each share stands the interval's median width. At 30,000 images of `cnn` the multiplier is
beyond the data, so its interval has no upper end.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from vision_attn.stats.intervals import interval
from vision_attn.stats.multiplier import crossing, data_multiplier
from vision_attn.stats.paired import RATIO, differences, paired, protocol_split
from vision_attn.stats.power_law import errors_of, fit_law

SIZES = np.array([250, 500, 1000, 2500, 5000, 10000, 30000])
TIMES, MEETS = 2.5, 1500
SHOWN = 1000
"""Size at which a single size is judged."""

Law = Callable[[float], float]
Limits = tuple[float, float, float]
"""Truth, low and high."""


def cnn(n: float) -> float:
    return 4 * n**-0.4 + 0.02


def vit(n: float) -> float:
    return cnn(n / TIMES)


def chaser(n: float) -> float:
    return 4 * MEETS**0.1 * n**-0.5 + 0.02


def study(laws: dict[str, Law], draws: int, rng: np.random.Generator) -> list[pd.DataFrame]:
    """Runs of one simulated study by epochs and by steps; `epochs` has 1.1 or 1.2 times the errors.

    Subsets and seeds are shared, so noise is: of a draw, and of a draw at a size.
    """
    rows = []
    for draw in range(draws):
        whole = 0.01 * rng.standard_normal()
        at_size = 0.01 * rng.standard_normal(len(SIZES))
        for model, law in laws.items():
            for protocol, factor in (("steps", 1.0), ("epochs", 1.2 if model == "vit" else 1.1)):
                for size, shared in zip(SIZES, at_size, strict=True):
                    noise = whole + shared + 0.015 * rng.standard_normal()
                    error = factor * law(size) * np.exp(noise)
                    rows.append((model, size, draw, protocol, 1 - error))
    table = pd.DataFrame(rows, columns=["model", "size", "draw", "protocol", "test_acc"])
    table = table.assign(seed=0, fitted=True)
    return [table[table["protocol"] == protocol] for protocol in ("epochs", "steps")]


def judged(draws: int, rng: np.random.Generator, resamples: int) -> Iterator[tuple[str, Limits]]:
    """Every interval of one study, by name."""
    epochs, results = study({"cnn": cnn, "vit": vit}, draws, rng)
    # the t intervals look at one size at a time
    one, one_epochs = (runs[runs["size"] == SHOWN] for runs in (results, epochs))
    accuracy = one.loc[one["model"] == "cnn", "test_acc"]
    yield "mean accuracy (t)", (1 - cnn(SHOWN), *interval(accuracy)[1:3])
    low, high = _limits(differences(paired(one, "vit")))
    yield "difference (t)", (vit(SHOWN) - cnn(SHOWN), low, high)
    low, high = _limits(differences(paired(one, "cnn", [RATIO])))
    yield "error ratio (t)", (vit(SHOWN) / cnn(SHOWN), low, high)
    low, high = _limits(protocol_split(one_epochs, one, "cnn", "vit"), "undertraining_")
    yield "undertraining (t)", (0.2 * vit(SHOWN) - 0.1 * cnn(SHOWN), low, high)

    times = data_multiplier(results, "cnn", "vit", resamples=resamples)
    for n in (SHOWN, 10000, 30000):
        yield f"multiplier at {n:,}", (TIMES, *_limits(times[times["n"] == n]))

    sizes, errors = errors_of(results, "cnn")
    for name, count, held in (("7 sizes", 7, 0), ("5 sizes", 7, 2)):
        law = fit_law(sizes[:count], errors[:, :count], hold_out=held, resamples=resamples)
        yield f"exponent b, {name}", (0.4, law.b_low, law.b_high)
        for f in law.forecast:
            yield f"forecast at {f.size:,}", (f.observed, f.low, f.high)
    alone = fit_law(sizes, errors[0], hold_out=0, resamples=resamples)
    yield "exponent b, 1 draw", (0.4, alone.b_low, alone.b_high)

    _, meeting = study({"cnn": cnn, "vit": chaser}, draws, rng)
    met = crossing(meeting, "cnn", "vit", resamples=resamples)
    yield "crossing", (MEETS, met.low, met.high)
    logs = np.log(errors[:, list(SIZES).index(SHOWN)])
    picks = rng.integers(draws, size=(resamples, draws))
    naive = np.quantile(logs[picks].mean(1), [0.025, 0.975])
    yield "(plain bootstrap of draws)", (float(np.log(cnn(SHOWN))), naive[0], naive[1])


def _limits(table: pd.DataFrame, prefix: str = "") -> tuple[float, float]:
    low, high = (table[prefix + end].to_numpy(float) for end in ("low", "high"))
    return float(low[0]), float(high[0])


def coverage(
    draws: int, studies: int, resamples: int = 400, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """By name: share of the intervals that hold the truth, and their median width."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {}
    width: dict[str, list[float]] = {}
    for _ in range(studies):
        for name, (truth, low, high) in judged(draws, rng, resamples):
            held.setdefault(name, []).append(bool(low <= truth <= high))
            width.setdefault(name, []).append(high - low)
    return {k: (float(np.mean(held[k])), float(np.median(width[k]))) for k in held}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--draws", type=int, nargs="+", default=[3, 5])
    args = parser.parse_args()
    found = {d: coverage(d, args.studies) for d in args.draws}
    print(f"share of {args.studies} studies whose 95 % interval holds the truth (median width)")
    head = "".join(f"{f'{d} draws':>22}" for d in found)
    print(f"{'':30}{head}")
    for name in next(iter(found.values())):
        cells = "".join(f"{100 * f[name][0]:>11.1f} % ({f[name][1]:7.4f})" for f in found.values())
        print(f"{name:30}{cells}")


if __name__ == "__main__":
    main()
