"""A study of 36 cells, killed ten times at random moments, ends as one that was left alone.

    python tests/benchmarks/kill.py [--kills N] [--seed N]

SIGKILL goes to the main process; its workers must end by themselves. The two results.csv are
compared, less the columns that a clock has measured.
"""

import argparse
import csv
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "train.py"
CLOCK = {"seconds", "images_per_second"}


def start(out: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), "compare", "--budget.steps", "60", "--out", str(out)],
            stdout=file,
            stderr=file,
        )


def results(out: Path) -> list[dict[str, str]]:
    with (out / "results.csv").open(newline="") as file:
        return [{k: v for k, v in r.items() if k not in CLOCK} for r in csv.DictReader(file)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as place:
        root, log = Path(place), Path(place) / "log"
        began = time.monotonic()
        if start(root / "alone", log).wait():
            print(log.read_text(errors="replace"))
            return 1
        whole = time.monotonic() - began
        print(f"left alone: {len(results(root / 'alone'))} cells in {whole:.0f} s", flush=True)
        killed = 0
        while killed < args.kills:
            study = start(root / "killed", log)
            # at any moment: while it starts, within cells, between them
            time.sleep(chance.uniform(0.02, 0.5) * whole)
            if study.poll() is not None:
                break
            study.send_signal(signal.SIGKILL)
            study.wait()
            killed += 1
            done = len(list((root / "killed" / "cells").glob("[!.]*/result.json")))
            print(f"kill {killed}: {done} cells are kept", flush=True)
        code = start(root / "killed", log).wait()
        same = code == 0 and results(root / "alone") == results(root / "killed")
        print(f"killed {killed} times: results are {'the same' if same else 'NOT the same'}")
    return 0 if same and killed == args.kills else 1


if __name__ == "__main__":
    sys.exit(main())
