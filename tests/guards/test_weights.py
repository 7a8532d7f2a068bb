"""Initial weights at seed 0 are those that the stored results began with."""

import json

import pytest
import record
import torch

RECORDED = json.loads(record.RECORDED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def weights() -> dict[str, dict[str, object]]:
    return record.weights()


def test_every_model_is_recorded(weights: dict[str, dict[str, object]]) -> None:
    assert weights.keys() == RECORDED["weights"].keys()


@pytest.mark.parametrize("name", RECORDED["weights"])
def test_initial_weights_stand(weights: dict[str, dict[str, object]], name: str) -> None:
    made, recorded = weights[name], RECORDED["weights"][name]
    assert made["names"] == recorded["names"], "other names, shapes or dtypes of parameters"
    # 1e-5 is what rounding of the plainest CPU makes of three million numbers
    assert made["sum"] == pytest.approx(recorded["sum"], abs=1e-4), "other random draws"
    if record.cpu() == RECORDED["cpu"]:
        assert made["bytes"] == recorded["bytes"]
    else:
        print(f"bytes not compared: recorded by {RECORDED['cpu']}, this is {record.cpu()}")


def test_the_guard_sees_two_draws_in_another_order() -> None:
    def layers(*order: int) -> torch.nn.Module:
        torch.manual_seed(0)
        made = {i: torch.nn.Linear(5, 7) for i in order}
        return torch.nn.Sequential(made[0], made[1])

    values = [record.tensors(layers(*order)) for order in ((0, 1), (1, 0))]
    assert list(values[0]) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    assert not torch.equal(values[0]["0.weight"], values[1]["0.weight"])
    norm = record.tensors(torch.nn.BatchNorm2d(3))
    assert {"running_mean", "running_var", "weight"} < norm.keys()
