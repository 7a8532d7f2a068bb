"""The small CNN: its layers one after another, its maps, what it refuses."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn import SmallCNN
from vision_attn.errors import UserError
from vision_attn.models.cnn import stage_sizes
from vision_attn.models.cost import cost


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def images(n: int = 2) -> Tensor:
    return torch.randn(n, 7, 6, 10)


@pytest.mark.parametrize(
    ("img", "stages", "want"),
    [
        ((8, 8), 3, [(8, 8), (4, 4), (2, 2)]),
        ((28, 28), 4, [(28, 28), (14, 14), (7, 7), (4, 4)]),
        ((5, 9), 4, [(5, 9), (3, 5), (2, 3), (2, 3)]),
        ((2, 17), 2, [(2, 17), (2, 17)]),
    ],
)
def test_maps_halve_but_never_below_two(
    img: tuple[int, int], stages: int, want: list[tuple[int, int]]
) -> None:
    assert stage_sizes(img, stages) == want
    cnn = SmallCNN(img, 1, 3, widths=[2] * stages)
    x, seen = torch.zeros(1, 1, *img), []
    for stage in cnn.stages:
        x = stage(x)
        seen.append(tuple(x.shape[2:]))
    assert seen == want


def test_pools_halve_as_strides_do_and_cost_the_same() -> None:
    stride, pool = (SmallCNN((7, 10), 3, 5, widths=(3, 5, 7), pool=p) for p in ("stride", "max"))
    x, y = torch.randn(2, 3, 7, 10), torch.randn(2, 3, 7, 10)
    assert sum(p.numel() for p in stride.parameters()) == sum(p.numel() for p in pool.parameters())
    assert cost(stride, 3, (7, 10)) == cost(pool, 3, (7, 10))
    for a, b in zip(stride.stages, pool.stages, strict=True):
        x, y = a(x), b(y)
        assert x.shape == y.shape
    first = nn.functional.max_pool2d(x, 3, 2, 1)
    assert_close(pool.stages[1][0](x), first)
    with pytest.raises(UserError, match="pool='mean' is not known; choose one of stride, max"):
        SmallCNN(pool="mean")  # type: ignore[arg-type]


def test_squeeze_and_excitation_tells_every_pixel_what_is_elsewhere() -> None:
    x = torch.randn(1, 1, 40, 40)
    far = x.clone()
    far[..., -1, -1] += 3

    def corner(**given: Any) -> Tensor:
        torch.manual_seed(0)
        cnn = SmallCNN(40, 1, 0, widths=(5, 7), global_pool="", **given).eval()
        return (cnn(x) - cnn(far))[..., 0, 0]

    assert corner().abs().max() == 0
    assert corner(attn_layer="se").abs().max() > 0


def test_another_layer_is_refused() -> None:
    other: Any = "cbam"
    with pytest.raises(UserError, match="attn_layer='cbam' is not known; choose se, or None"):
        SmallCNN(attn_layer=other)


@pytest.mark.parametrize("stages", [1, 3, 6])
def test_cnn_trains_with_a_batch_of_one(stages: int) -> None:
    cnn = SmallCNN((8, 8), 1, 3, widths=[5] * stages)
    optimizer = torch.optim.SGD(cnn.parameters(), 0.3)
    x, label, losses = torch.randn(1, 1, 8, 8), torch.tensor([2]), []
    for _ in range(9):
        loss = nn.functional.cross_entropy(cnn(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in cnn.parameters())


def test_cnn_is_its_layers_one_after_another() -> None:
    cnn, x = SmallCNN((6, 10), 7, 11, widths=(5, 13), depth=1).eval(), images()
    first, second = cnn.stages[0], cnn.stages[1]
    for norm in (first[1], second[1]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    maps = x
    for stride, stage in ((1, first), (2, second)):
        conv, norm = stage[0], stage[1]
        maps = nn.functional.conv2d(maps, conv.weight, stride=stride, padding=1)
        spread = (norm.running_var + norm.eps).sqrt()[:, None, None]
        maps = ((maps - norm.running_mean[:, None, None]) / spread).clamp(min=0)
    assert_close(cnn(x), maps.mean((2, 3)) @ cnn.head.weight.T + cnn.head.bias)


@pytest.mark.parametrize(("widths", "depth"), [([], 2), ([4, 0], 2), ([4], 0)])
def test_cnn_refuses_empty_widths_and_depth(widths: list[int], depth: int) -> None:
    with pytest.raises(UserError) as e:
        SmallCNN(widths=widths, depth=depth)
    assert "; wanted a " in str(e.value)
    assert "widths is" in str(e.value) or "depth is 0" in str(e.value)
