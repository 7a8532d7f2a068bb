"""Time of the fused block against attention by hand, torch, timm and vit-pytorch.

    python tests/benchmarks/attention.py [--device cuda] [--pairs 15] [--threads 1]

Prints a Markdown table: milliseconds of ours, forward and backward, and ours over each other one.
Each ratio is the median over pairs measured one after the other in one process, in an order that
alternates, so that a machine that slows down slows both. Weights are copied where layouts agree.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vision_attn.layers.attention import MultiHeadSelfAttention

SHAPES = [(128, 64, 96, 3), (128, 65, 192, 3), (16, 1024, 64, 4), (2, 4096, 64, 4)]


class ByHand(nn.Module):
    """What one writes without a library: (B, N, D) -> (B, N, D)."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        B, N, D = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, D // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(B, N, D))


class Torch(nn.Module):
    """nn.MultiheadAttention without weights, its fastest way: (B, N, D) -> (B, N, D)."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, num_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        return self.attn(x, x, x, need_weights=False)[0]


def others(dim: int, num_heads: int) -> dict[str, nn.Module]:
    """Every rival that is installed."""
    found: dict[str, nn.Module] = {
        "by hand": ByHand(dim, num_heads),
        "torch": Torch(dim, num_heads),
    }
    try:
        from timm.layers import Attention

        found["timm"] = Attention(dim, num_heads, qkv_bias=True)
    except ImportError as e:
        print(f"timm skipped: {e}")
    try:
        from vit_pytorch.vit import Attention as VitPytorch

        found["vit-pytorch"] = VitPytorch(dim, num_heads, dim // num_heads)  # a norm is in it
    except ImportError as e:
        print(f"vit-pytorch skipped: {e}")
    return found


def timer(layer: nn.Module, x: Tensor, repeats: int) -> Callable[[], float]:
    """Seconds of one forward and backward, mean of `repeats`."""

    def run() -> float:
        start = _now(x.device)
        for _ in range(repeats):
            layer(x).sum().backward()
        return (_now(x.device) - start) / repeats

    return run


def _now(device: torch.device) -> float:
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    names = list(others(8, 2))
    print(f"torch {torch.__version__}, {args.device}, {args.threads} threads, {args.pairs} pairs\n")
    print("| B, N, D, heads | ours, ms | " + " | ".join(f"ours / {n}" for n in names) + " |")
    print("|---" * (len(names) + 2) + "|")
    for batch, tokens, dim, heads in SHAPES:
        x = torch.randn(batch, tokens, dim, device=args.device, requires_grad=True)
        layer = MultiHeadSelfAttention(dim, heads, qkv_bias=True).to(args.device)
        ours = timer(layer, x, 1)
        ours()
        repeats = max(1, round(0.05 / ours()))  # about a twentieth of a second each
        ours, milliseconds, cells = timer(layer, x, repeats), [], []
        for rival in others(dim, heads).values():
            if isinstance(rival, ByHand):
                rival.load_state_dict(layer.state_dict())
            theirs = timer(rival.to(args.device), x, repeats)
            theirs(), ours()
            ratios = []
            for i in range(args.pairs):
                if i % 2:
                    b, a = theirs(), ours()
                else:
                    a, b = ours(), theirs()
                ratios.append(a / b)
                milliseconds.append(a * 1000)
            cells.append(f"{statistics.median(ratios):.3f}")
        mean = statistics.median(milliseconds)
        print(f"| {batch}, {tokens}, {dim}, {heads} | {mean:.1f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
