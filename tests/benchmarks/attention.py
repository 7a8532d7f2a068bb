"""The fused block against attention written out by hand and against the field's own blocks.

    python tests/benchmarks/attention.py [--turns N] [--threads N]

Forward and backward in float32, same sizes, same process, in turns; a ratio is the median over the
turns of ours to the other's in that turn. Under 1 is faster than the other.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable

import timm.layers
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vision_attn import MultiHeadSelfAttention

SHAPES = ((128, 64, 96, 3), (128, 65, 192, 3), (16, 1024, 64, 4), (2, 4096, 64, 4))


class ByHand(nn.Module):
    """What one writes who needs nothing but the kernel."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, d // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(b, n, d))


class Torch(nn.MultiheadAttention):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


def peers(dim: int, num_heads: int) -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {
        "ours": MultiHeadSelfAttention(dim, num_heads),
        "by hand": ByHand(dim, num_heads),
        "torch": Torch(dim, num_heads, bias=False, batch_first=True),
        "timm": timm.layers.Attention(dim, num_heads),
    }
    if importlib.util.find_spec("vit_pytorch"):
        from vit_pytorch.vit import Attention

        found["vit-pytorch"] = Attention(dim, num_heads, dim // num_heads)
    return found


def seconds(layer: Callable[[Tensor], Tensor], x: Tensor) -> float:
    start = time.perf_counter()
    layer(x).sum().backward()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if not importlib.util.find_spec("vit_pytorch"):
        print("vit-pytorch is not installed: left out")
    print(f"torch {torch.__version__}, {args.threads} threads, {args.turns} turns\n")
    for i, (b, n, d, h) in enumerate(SHAPES):
        layers = peers(d, h)
        x = torch.randn(b, n, d, requires_grad=True)
        times: dict[str, list[float]] = {name: [] for name in layers}
        for turn in range(args.turns + 2):
            order = list(layers) if turn % 2 else list(layers)[::-1]
            for name in order:
                spent = seconds(layers[name], x)
                if turn > 1:
                    times[name].append(spent)
        ours = times.pop("ours")
        if not i:
            print(f"| B, N, D, heads | ours, ms | {' | '.join(f'ours / {n}' for n in times)} |")
            print("| --- |" + " ---: |" * (len(times) + 1))
        ratios = [
            f"{statistics.median(a / b for a, b in zip(ours, theirs, strict=True)):.3f}"
            for theirs in times.values()
        ]
        mine = 1e3 * statistics.median(ours)
        print(f"| {b}, {n}, {d}, {h} | {mine:.1f} | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
