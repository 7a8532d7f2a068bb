"""The command line: which command, and what a mistake prints."""

import argparse
import atexit
import gc
import io
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

from vision_attn import __version__
from vision_attn.errors import UserError

__all__ = ["main"]

COMMANDS = {
    "compare": "train models on growing subsets, plot accuracy and gap against size",
    "plot": "figures and tables again, from the stored results of a compare",
    "budget": "parameters and FLOPs of models, side by side",
    "explain": "what a trained model attends to: a picture, or a page to point at",
    "diagnose": "the claims about scaling, self-weight, order and cost of attention, measured",
    "fit": "train one model (LightningCLI)",
    "validate": "measure one model on validation images (LightningCLI)",
    "test": "measure one model on test images (LightningCLI)",
    "predict": "class probabilities of test images, as a CSV file (LightningCLI)",
}


class _Top(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as of any other mistake; argparse's own has the usage before it."""
        raise UserError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 0 done, 1 a part failed, 2 the user's mistake."""
    for stream in (sys.stdout, sys.stderr):  # a name that it cannot show is shown in escapes
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    args = list(sys.argv[1:] if argv is None else argv)
    top = _Top(
        prog="vision-attn",
        description="Self-attention on images, compared with a CNN on growing data sets.",
        epilog="commands:\n"
        + "".join(f"  {name:<10}{text}\n" for name, text in COMMANDS.items())
        + "\n`vision-attn COMMAND --help` lists a command's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=__version__)
    top.add_argument("command", metavar="COMMAND")
    try:
        command = top.parse_args(args[:1] if args else ["--help"]).command
        if command not in COMMANDS:
            near = get_close_matches(command, COMMANDS, n=1)
            asked = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(COMMANDS)}"
            raise UserError(f"command {command!r} is not known; {asked}")
        if command not in ("explain", "plot"):
            from vision_attn.commands.strict_yaml import config_files

            config_files(args[1:])  # a slip in a file is told before anything heavy is imported
        if command in ("compare", "plot", "budget"):
            from vision_attn.commands import study

            return getattr(study, command)(COMMANDS[command], args[1:])
        if command in ("explain", "diagnose"):
            from vision_attn.commands import look

            return getattr(look, command)(COMMANDS[command], args[1:])
        from vision_attn.commands.lightning import lightning

        return lightning(args)
    except UserError as e:
        return _refused(str(e))
    except OSError as e:
        if e.filename is None or e.strerror is None:
            raise  # of no file, so nothing that the user can mend
        return _refused(f"{e.filename}: {e.strerror}")
    except KeyboardInterrupt:
        if argv is None:  # the process ends, and a second Ctrl-C may end it at once, in silence
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        atexit.register(gc.freeze)  # or the end looks through all that torch has loaded
        print("interrupted; what was finished is kept, start again to go on", file=sys.stderr)
        if argv is None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        return 130


def _refused(said: str) -> int:
    print(f"error: {' '.join(said.split())}", file=sys.stderr)
    return 2
