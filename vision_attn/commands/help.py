"""What `--help` prints: one line of usage, examples, and the options that most people need.

`--help-all` prints every option, from the parsers themselves.
"""

from textwrap import fill

from vision_attn.commands.presets import presets
from vision_attn.data.config import NAMES
from vision_attn.names import MODELS
from vision_attn.texts import program

__all__ = ["COMMON", "EXAMPLES", "help_text"]

_DATA = {
    "--data.root DIR": "your images: DIR/<class>/*, or DIR/train/<class>/* and DIR/test/<class>/*",
    "--data.name NAME": f"one of {', '.join(NAMES)}, hf:NAME, torchvision:NAME, a class",
    "--data.img_size N": "resize your images to N x N pixels",
}
_CONFIG = {"--config FILE": "options from a YAML file"}
_MODELS = {
    "--models vit,cnn": f"{', '.join(MODELS)}, timm:NAME; LABEL=NAME to have one twice",
    "--args.MODEL.KEY VALUE": "one argument of a model, such as --args.vit.depth 6",
    "--match params": "what the CNN has as much of: params, flops, both; none is as it is",
}
_CKPT = {"--ckpt_path FILE": "weights: a file of fit, or last or best of the newest fit"}
_TRAINER = {
    "--trainer.accelerator auto": "or cpu, gpu, ...; see --trainer.devices too",
    "--trainer.default_root_dir DIR": "where to write; runs by default",
}

EXAMPLES = {
    "compare": {
        "": "embedded digits, 2 to 4 minutes",
        "--data.root DIR --data.img_size 64": "your images",
        "--config quick --models vit,cnn,linear": "a preset, changed",
    },
    "plot": {
        "runs/compare": "in its own directory",
        "runs/a runs/b --out runs/both": "of two studies together",
        "runs/compare --format pdf --width 3.3 --models cnn,vit": "for a paper",
    },
    "budget": {
        "--models vit,pixel_vit,cnn": "on embedded digits",
        "--config cifar10_cpu --data.root DIR": "models of a preset on your images",
        "--models vit,timm:resnet18 --match none": "models as they are",
    },
    "explain": {
        "--ckpt CHECKPOINT --image a.png --out maps.png": "a picture",
        "--ckpt CHECKPOINT --image DIR --out page.html": "a page to point at",
        "--model timm:vit_tiny_patch16_224 --image a.png --out maps.png": "timm's weights",
    },
    "diagnose": {
        "--quick": "a trial, about a minute",
        "": "in full, on embedded digits",
        "--data.root DIR --out runs/mine": "on your images",
    },
    "fit": {
        "--data.name digits --model.name cnn": "embedded digits",
        "--data.root DIR --data.img_size 64 --model.name cnn": "your images",
        "--ckpt_path last --trainer.max_epochs 100": "go on with the newest",
    },
    "validate": {
        "--ckpt_path last --data.name digits": "the newest fit",
        "--ckpt_path best --data.root DIR --data.img_size 64": "on your images",
        "--ckpt_path CHECKPOINT --data.size 100": "with another subset",
    },
    "test": {
        "--ckpt_path last --data.name digits": "the newest fit",
        "--ckpt_path best --data.root DIR --data.img_size 64": "on your images",
        "--ckpt_path CHECKPOINT --trainer.accelerator cpu": "on the CPU",
    },
    "predict": {
        "--ckpt_path last --image a.jpg b.jpg": "files without labels",
        "--ckpt_path CHECKPOINT --image DIR --out sure.csv": "all images in a folder",
        "--ckpt_path last --data.name digits": "a test set, beside its labels",
    },
}
"""Words after each command, and what they are for."""

COMMON = {
    "compare": {
        **_CONFIG, **_DATA, **_MODELS,
        "--sizes 50,100,all": "numbers of training images",
        "--draws 3": "random subsets of each size, for intervals",
        "--budget.steps 400": "updates of a run; --budget.epochs N for passes",
        "--reference cnn": "what the report compares the others with",
        "--out runs/compare": "results; the same command goes on where it ended",
        "--workers N": "runs at the same time; one a core by default",
    },
    "plot": {
        "DIR ...": "what compare was given as --out",
        "--out DIR": "write elsewhere; needed for several DIR",
        "--format svg,png": "of figures: svg, png, pdf",
        "--models cnn,vit": "show these in figures",
        "--reference cnn": "what the others are compared with",
        "--width INCHES": "of a figure",
        "--font POINTS": "size of letters",
        "--dpi N": "of png",
        "--style FILE": "a matplotlib style",
    },
    "budget": {**_CONFIG, **_DATA, **_MODELS, "--match_to MODEL": "whose cost the CNN gets"},
    "explain": {
        "--ckpt FILE": "a checkpoint of fit, or of compare --checkpoint true",
        "--model timm:NAME": "a model of timm instead; --weights FILE, pretrained or none",
        "--image FILE ...": "images, or folders of images",
        "--out FILE": "a .png, .pdf or .svg, or an .html to point at",
        "--layers 0,2": "some layers; all by default; --heads likewise",
        "--query ROW,COLUMN": "what this pixel attends to; else the class token, or the mean",
        "--scale even": "colours: even (times the even share), max, or shared by all maps",
        "--rollout mean": "over layers: mean, max, or gradient of the likeliest class",
        "--convert true": "grey to colour, or colour to grey",
        "--overwrite true": "replace --out",
    },
    "diagnose": {
        **_CONFIG, **_DATA,
        "--quick": "little work, wide intervals",
        "--out runs/diagnose": "results",
        "--overwrite": "replace results that are there",
    },
    "fit": {
        **_CONFIG, **_DATA,
        "--data.size N": "train on N images; all by default",
        "--data.batch_size 64": "images an update",
        "--model.name vit": f"{', '.join(MODELS)}, timm:NAME",
        "--model.args.KEY VALUE": "an argument of the model, such as --model.args.depth 6",
        "--model.lr 0.001": "largest learning rate",
        "--trainer.max_epochs 50": "passes over the images",
        **_TRAINER,
        "--ckpt_path FILE": "go on from a file of fit, or last or best of the newest fit",
    },
    "validate": {**_CKPT, **_CONFIG, **_DATA, **_TRAINER},
    "test": {**_CKPT, **_CONFIG, **_DATA, **_TRAINER},
    "predict": {
        **_CKPT,
        "--image FILE ...": "images without labels, or folders of them",
        "--out FILE": "the table of --image; runs/predictions.csv by default",
        "--convert true": "grey to colour, or colour to grey, for --image",
        **_DATA, **_TRAINER,
    },
}  # fmt: skip
"""Options with a value in place, and what they are, by command."""


def help_text(command: str, about: str) -> str:
    """The short help of a command."""
    start = f"{program()} {command}"
    examples = [(f"  {start} {words}".rstrip(), what) for words, what in EXAMPLES[command].items()]
    options = {**COMMON[command], "--help-all": "every option"}
    lines = [f"usage: {start} [--option value ...]", "", f"{about[0].upper()}{about[1:]}.", ""]
    lines += ["examples:", *(f"{line}\n      {what}" for line, what in examples), ""]
    lines += ["options:", *(_option(name, what) for name, what in options.items())]
    if presets := _presets(command):
        words = f"presets: --config NAME, of {', '.join(presets)}"
        lines += ["", fill(words, 80, subsequent_indent="  ")]
    return "\n".join(lines)


def _option(name: str, what: str) -> str:
    """Two columns, or the name on a line of its own where it is long."""
    text = fill(what, 80, initial_indent=" " * 26, subsequent_indent=" " * 26)
    return f"  {name:<24}{text[26:]}" if len(name) < 24 else f"  {name}\n{text}"


def _presets(command: str) -> list[str]:
    """Names of the presets that a command takes."""
    if command in ("compare", "budget"):
        return [name for name in presets() if name not in _CLASSES]
    return [*_CLASSES] if command in ("fit", "validate", "test") else []


_CLASSES = ("dense", "detr")
"""Presets of models that are named by their class."""
