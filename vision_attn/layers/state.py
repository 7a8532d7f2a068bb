"""State of modules: training and eval mode for a while, and tables over a grid in a state dict."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

__all__ = ["GridTables", "in_eval"]


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


class GridTables(nn.Module):
    """A module with tables over a grid, as its state is saved and loaded.

    A fixed table is a function of the grid: no state holds it, and one in an older state is left
    aside. A learned table's shape does not show its grid, as 2 x 8 and 4 x 4 have as many rows. So
    the grid stands in the metadata of a state (`state_dict()._metadata`, which files keep), and a
    table of another grid with as many rows is refused. A state without metadata, as of an older
    version or a plain dict, is taken to be of the module's own grid.
    """

    table_grid: tuple[int, int] | None = None
    """Rows and columns of the learned table, whose product is its length; None without one."""

    def fixed_table(self, name: str, table: Tensor) -> None:
        """Register a table that is computed and never loaded."""
        self.register_buffer(name, table, persistent=False)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.table_grid is not None and hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]]["grid"] = tuple(self.table_grid)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        for name in self._non_persistent_buffers_set:
            state_dict.pop(prefix + name, None)
        grid, own = local_metadata.get("grid"), self.table_grid
        if grid and own and tuple(grid) != own and grid[0] * grid[1] == own[0] * own[1]:
            error_msgs.append(
                f"{prefix[:-1]}: the learned table is one of {grid[0]} x {grid[1]} positions, this"
                f" model has {own[0]} x {own[1]}; resample it with"
                " vision_attn.ops.positions.resize_positions and load dict(state)"
            )
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
