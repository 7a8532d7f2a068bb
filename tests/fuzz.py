"""Random inputs: command lines with their YAML files, and calls of the attention operators.

    python tests/fuzz.py --examples 2000 --each    # every line is done or refused in one line
    python tests/fuzz.py --calls 1000              # every call equals a loop in float64

What comes out otherwise is printed, with what shows it again. The parts are in tests/fuzzing/.
"""

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Try what is asked for; 1 where something came out otherwise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, help="command lines; 2000 where --calls is absent")
    parser.add_argument("--each", action="store_true", help="every bad value of each option too")
    parser.add_argument("--command", action="append", help="--each for these commands only")
    parser.add_argument("--calls", type=int, help="calls of operators")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.calls is not None:
        from fuzzing import operators

        operators.run(args.calls, start=args.seed)
        local = max(1, args.calls // 3)
        print(f"{args.calls} calls of attend and weights, {local} of windows and fields: equal")
    if args.examples is None and args.calls is not None:
        return 0
    from fuzzing import answers

    commands = args.command or (["compare", "fit", "explain", "diagnose"] if args.each else [])
    return answers.run(2000 if args.examples is None else args.examples, commands, args.seed)


if __name__ == "__main__":
    sys.exit(main())
