"""The commands fit, validate, test and predict; a mistake in them becomes one line."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentError
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from vision_attn.commands.arguments import explained, one_line, refuse_config, refuse_values
from vision_attn.commands.strict import set_strict_yaml
from vision_attn.errors import UserError
from vision_attn.training.fit import AnyCLI, ClassifierCLI, names_class

__all__ = ["lightning"]

SEEDS = 2**32
"""NumPy's; Lightning's own message has no name in it."""


class _Checked(LightningCLI):
    """What Lightning and jsonargparse say of a mistake, in one line."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        command = self._parser(args[0])
        options = [] if command is None else command.get_defaults().keys()
        files = refuse_config(args, options)
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as e:
            raise UserError(explained(e, files, options)) from e
        except UnicodeDecodeError as e:  # of a file that stands for a group of options
            raise UserError("a file that the command line names is no UTF-8 text") from e
        given = self.config[self.config.subcommand].as_dict()
        refuse_values(args, given)
        seed = given.get("seed_everything")
        if isinstance(seed, int) and not 0 <= seed < SEEDS:
            raise UserError(f"seed_everything is {seed}; wanted 0 to {SEEDS - 1}")

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        try:
            return super().instantiate_trainer(**kwargs)
        except (MisconfigurationException, TypeError, ValueError) as e:
            raise UserError(f"trainer: {one_line(e)}") from e


class _Classifier(_Checked, ClassifierCLI):
    pass


class _Any(_Checked, AnyCLI):
    pass


def lightning(args: Sequence[str]) -> int:
    """Run one of LightningCLI's commands."""
    set_strict_yaml()
    refuse_config(args, ())  # before anybody else reads the files
    try:
        (_Any if names_class(args) else _Classifier)(args)
    except (ArgumentError, MisconfigurationException) as e:
        raise UserError(one_line(e)) from e
    return 0
