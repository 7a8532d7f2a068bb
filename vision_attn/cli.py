"""The command line: which command, and what a mistake prints."""

import argparse
import atexit
import gc
import io
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from vision_attn import __version__
from vision_attn.errors import UserError
from vision_attn.names import near
from vision_attn.texts import program

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
    "predict": "classes of images without labels, or of a test set, as a CSV file",
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
    if argv is None and "" not in sys.path:
        sys.path.append("")  # classes of the user's own in the current directory
    name = program()
    top = _Top(
        prog=name,
        description="Self-attention on images, compared with a CNN on growing data sets.",
        epilog="commands:\n"
        + "".join(f"  {command:<10}{text}\n" for command, text in COMMANDS.items())
        + f"\n`{name} COMMAND --help` shows how a command is used.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=__version__)
    top.add_argument("command", metavar="COMMAND")
    try:
        command = top.parse_args(args[:1] if args else ["--help"]).command
        if command not in COMMANDS:
            raise UserError(f"command {command!r} is not known; {near(command, COMMANDS)}")
        return _run(command, args[1:])
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


def _run(command: str, args: list[str]) -> int:
    """One command; its own modules wait until it is known what is asked for."""
    if {"-h", "--help"} & set(args):
        from vision_attn.commands.help import help_text

        print(help_text(command, COMMANDS[command]))
        return 0
    from vision_attn.commands.presets import with_presets

    line = with_presets("--help" if word == "--help-all" else word for word in args)
    if command in ("compare", "plot", "budget"):
        from vision_attn.commands import study

        return getattr(study, command)(COMMANDS[command], line)
    if command in ("explain", "diagnose"):
        from vision_attn.commands import look

        return getattr(look, command)(COMMANDS[command], line)
    if command == "predict" and any(word.partition("=")[0] == "--image" for word in line):
        from vision_attn.commands.predict import predict

        return predict(COMMANDS[command], line)
    from vision_attn.commands.options import check_options

    check_options(command, line)  # a slip is told before Lightning is imported
    from vision_attn.commands.lightning import lightning

    return lightning([command, *line])


def _refused(said: str) -> int:
    print(f"error: {' '.join(said.split())}", file=sys.stderr)
    return 2
