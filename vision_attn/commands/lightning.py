"""The commands fit, validate, test and predict; a mistake in them becomes one line."""

import math
from collections.abc import Sequence
from pydoc import locate
from typing import Any

from jsonargparse import ArgumentError
from lightning.pytorch.cli import LightningArgumentParser
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from vision_attn.commands.arguments import checked, one_line
from vision_attn.commands.strict_yaml import config_files, set_strict_yaml
from vision_attn.errors import UserError
from vision_attn.training.base import Optimised
from vision_attn.training.cli import AnyCLI, ClassifierCLI, names_class

__all__ = ["lightning"]

SEEDS = 2**32
"""NumPy's; Lightning's own message has no name in it."""


FROM_DATA = ("in_chans", "img_size", "num_classes")

LEAST = {
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "gradient_clip_val": 0,
    "log_every_n_steps": 0,
    "num_sanity_val_steps": -1,
}
"""What Lightning takes without a look, and divides by."""


class _Checked(ClassifierCLI):
    """What Lightning and jsonargparse say of a mistake, in one line."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        command, *line = args
        for file, content in config_files(line).items():
            model = content.get("model", {})
            for name in FROM_DATA:
                if isinstance(model, dict) and name in model:  # jsonargparse passes over it
                    raise UserError(
                        f"config {file}: model.{name} comes from the data, it is not set by hand"
                    )
        given = checked(
            self._parser(command), line, lambda line: parser.parse_args([command, *line])[command]
        )
        super().parse_arguments(parser, args)
        seed = given.get("seed_everything")
        if isinstance(seed, int) and not 0 <= seed < SEEDS:
            raise UserError(f"seed_everything is {seed}; wanted 0 to {SEEDS - 1}")
        for name, least in LEAST.items():
            value = given.get(f"trainer.{name}")
            if value is not None and not least <= value < math.inf:
                raise UserError(f"trainer.{name} is {value}; wanted {least} or more")

    def before_instantiate_classes(self) -> None:
        given = self.config[self.subcommand]
        model = locate(given.model.class_path) if self.subclasses else self.classes[0]
        for name in ("optimizer", "lr_scheduler"):
            if given.get(name) and isinstance(model, type) and issubclass(model, Optimised):
                raise UserError(f"{name} comes with the model; take it out, and set model.lr")
        super().before_instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> Any:
        try:
            return super().instantiate_trainer(**kwargs)
        except UserError:
            raise
        except (MisconfigurationException, TypeError, ValueError) as e:
            raise UserError(f"trainer: {one_line(e)}") from e


class _CheckedAny(_Checked, AnyCLI):
    pass


def lightning(args: Sequence[str]) -> int:
    """Run one of LightningCLI's commands."""
    set_strict_yaml()
    try:
        (_CheckedAny if names_class(args) else _Checked)(args)
    except (ArgumentError, MisconfigurationException) as e:
        raise UserError(one_line(e)) from e
    return 0
