"""What stays true of the figures of a stored study: curves, labels and ids; not their looks."""

import re
from collections import Counter
from pathlib import Path

import pytest

from vision_attn.report.analysis import analyse
from vision_attn.report.figures import figures
from vision_attn.report.style import render, style
from vision_attn.study.results import read

STUDY = Path(__file__).parents[2] / "docs" / "results" / "cifar10_cpu"
MODELS = ["cnn", "conv_init_vit", "conv_stem_vit", "local_vit", "pooled_stem_vit", "vit"]
SIZES = ["250", "500", "1,000", "2,500", "5,000", "10,000"]
CURVES = {  # and how many parts each has, by the order in which they are drawn
    "accuracy_vs_size": [7, 4, 3, 7, 3, 3],
    "gap_vs_size": [7, 4, 3, 7, 3, 3],
    "senses_vs_size": [6, 6, 6, 6, 6, 6],
    "error_loglog": [5, 5, 6, 5, 6, 6],
    "multiplier": [1],
    "protocol_split": [11, 11, 11],
    "training_curves": [],
    "attention_distance": [1, 1, 1, 1],
}
LABELS = {
    "accuracy_vs_size": [*MODELS, *SIZES, "test accuracy", "equal updates", "equal epochs"],
    "gap_vs_size": [*MODELS, *SIZES, "train minus test accuracy, points", "equal epochs"],
    "senses_vs_size": [*MODELS, *SIZES, "points behind cnn", "rise from its minimum, nats"],
    "error_loglog": [*MODELS, *SIZES, "test error", "power law, fitted", "its forecast"],
    "multiplier": ["training images of cnn", "vit needs … times the images of cnn"],
    "protocol_split": [*SIZES, "cnn minus vit, points", "undertraining: what equal epochs add"],
    "training_curves": [*MODELS, *SIZES, "update", "loss", "validation", "training"],
    "attention_distance": [*SIZES, "distance, pixels", "layer 0"],
}


@pytest.fixture(scope="module")
def drawings() -> dict[str, str]:
    """Each figure as SVG."""
    with style():
        return {
            picture.name: render(picture.figure, picture.name, ["svg"])["svg"].decode()
            for picture in figures(analyse(read(STUDY)))
        }


def test_the_figures_of_a_stored_study(drawings: dict[str, str]) -> None:
    assert list(drawings) == list(CURVES)


@pytest.mark.parametrize("name", CURVES)
def test_curves_labels_and_ids_stand(drawings: dict[str, str], name: str) -> None:
    ids = re.findall(r'id="([^"]+)"', drawings[name])
    assert len(ids) == len(set(ids))
    parts = Counter(match[1] for i in ids if (match := re.match(r"(curve\d+)\.\d+$", i)))
    assert [parts[f"curve{i}"] for i in range(len(parts))] == CURVES[name]
    labels = re.findall(r"<!-- (.*?) -->", drawings[name])
    assert set(LABELS[name]) <= set(labels)
    assert "CIFAR-10 (JPEG copy)" in labels
