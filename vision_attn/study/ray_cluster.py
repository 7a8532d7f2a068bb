"""Ray's processes, begun before this one imports torch, so that both do so at the same time."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from vision_attn.errors import UserError

__all__ = ["cluster"]


@contextmanager
def cluster(
    threads: int,
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_cell: float = 0.0,
) -> Iterator[Any]:
    """The module `ray`, connected; what was begun here ends with the context.

    Args:
        threads, workers, address, gpus_per_cell: as in `ray_runner.on_ray`.

    Raises:
        UserError: Ray is not installed, or the cluster is not there.
    """
    try:
        import ray
    except ImportError as e:
        raise UserError("runner ray needs Ray; pip install 'vision_attn[ray]'") from e
    if ray.is_initialized():
        yield ray
        return
    _check_address(address)
    try:
        ray.init(
            address=address,
            num_cpus=workers * threads if workers and address is None else None,
            log_to_driver=False,
            include_dashboard=False,
        )
    except (ConnectionError, ValueError, RuntimeError) as e:
        first = str(e).splitlines()[0]
        raise UserError(f"ray.address {address}: {first}; begin with `ray start`") from e
    try:
        if not gpus_per_cell:  # or torch would be imported where Ray shows no GPU
            room = int(ray.cluster_resources().get("CPU", 0) // threads)
            ready = ray.remote(_import).options(num_cpus=threads)
            for _ in range(min(room, workers or room)):
                ready.remote()
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str | None) -> None:
    """Ray itself tries a wrong address for minutes."""
    host, _, port = (address or "").rpartition(":")
    if not host or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as e:
        raise UserError(f"ray.address {address}: {e}; start a cluster with `ray start`") from e


def _import() -> None:
    import_module("vision_attn.study.ray_runner")
