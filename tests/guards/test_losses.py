"""Ten updates give the losses that they gave when the stored results were made."""

import json

import pytest
import record

RECORDED = json.loads(record.RECORDED.read_text(encoding="utf-8"))["losses"]


def test_every_run_is_recorded() -> None:
    assert list(RECORDED) == list(record.RUNS)
    assert all(len(set(values)) == 13 for values in RECORDED.values())


@pytest.mark.parametrize("name", RECORDED)
def test_losses_stand(name: str) -> None:
    # CPUs from SSE to AVX512 differ by 2e-7; another order of draws by 1e-3
    assert record.losses(name) == pytest.approx(RECORDED[name], rel=1e-5)
