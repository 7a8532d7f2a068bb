"""An update by each path to the same numbers: plain, channels_last, compiled.

    python tests/benchmarks/paths.py

Models and batch of configs/cifar10_attention.yaml, 32 x 32 pixels, one thread. All paths run in
this process in turns; the time is CPU time, the ratio the median over turns. Compilation counts by
itself: until the second update has ended.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from vision_attn.models.registry import create_model

TURNS, UPDATES, BATCH = 5, 6, 32
WIDTH: dict[str, Any] = {"patch_size": 4, "embed_dim": 64, "num_heads": 4, "pos_embed": "sincos2d"}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("vit", {**WIDTH, "depth": 4}),
    "pooled stem, attention": ("vit", {**WIDTH, "stem": "pooled", "depth": 3, "mlp_ratio": 2.7}),
    "cnn": ("cnn", {"widths": [24, 44, 88], "pool": "max"}),
}
PATHS: dict[str, dict[str, bool]] = {
    "plain": {},
    "channels_last": {"channels_last": True},
    "compiled": {"channels_last": True, "compile": True},
}


def updates(
    name: str, args: dict[str, Any], channels_last: bool = False, compile: bool = False
) -> Callable[..., float]:
    """What makes `UPDATES` updates and gives the last loss."""
    torch.manual_seed(0)
    model = create_model(name, img_size=(32, 32), in_chans=3, num_classes=10, args=args)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    if compile:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(BATCH, 3, 32, 32), torch.arange(BATCH) % 10

    def several(count: int = UPDATES) -> float:
        for _ in range(count):
            loss = F.cross_entropy(model(x.contiguous(memory_format=layout)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    return several


def main() -> None:
    torch.set_num_threads(1)
    for label, (name, args) in MODELS.items():
        made, line, first = {}, [], {}
        for path, options in PATHS.items():
            made[path] = updates(name, args, **options)
            start = time.perf_counter()
            first[path] = made[path](2)
            if path == "compiled":
                line.append(f"compiled in {time.perf_counter() - start:.0f} s")
        times: dict[str, list[float]] = {path: [] for path in PATHS}
        for _ in range(TURNS):
            for path, several in made.items():
                start = time.process_time()
                several()
                times[path].append((time.process_time() - start) / UPDATES)
        for path, values in times.items():
            ratio = statistics.median(a / b for a, b in zip(values, times["plain"], strict=True))
            apart = abs(first[path] - first["plain"])
            line.append(
                f"{path} {1e3 * statistics.median(values):.1f} ms, {ratio:.2f} of plain,"
                f" loss differs by {apart:.0e}"
            )
        print(f"{label}: {'; '.join(line)}", flush=True)


if __name__ == "__main__":
    main()
