"""Training and eval mode of a model for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["in_eval"]


@contextmanager
def in_eval(model: nn.Module) -> Iterator[None]:
    """Eval mode; afterwards, also after an error, each module's mode is as before."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
