"""What each option takes and what it refuses, and files that no command can take."""

# What an option takes and what it does not, as text on the line or in a file.
WHOLE = ["x", "", "1.5", "010", "1:30", "1e3", "nan", "[1]", "{a: 1}", "true", "9" * 20]
LEAST_ONE = [*WHOLE, "0", "-1", "null"]
REAL = ["x", "", "nan", ".nan", ".inf", "-1", "010", "1:30", "[1]", "true", "null", "1e400"]
FLAG = ["x", "", "2", "1.5", "[true]", "null"]
NAME = ["x", "3", "[a]", "null"]

Table = dict[str, tuple[list[str], list[str]]]

DATA: Table = {
    "data.name": (["digits", "null"], ["cifar11", "", "[digits]"]),
    "data.label": (["mine", "null"], ["", "' '"]),
    "data.test_fraction": (["0.2", "5e-1"], [*REAL, "0", "1"]),
    "data.val_fraction": (["0.1", "0.25", "1e-1"], [*REAL, "0", "1", "2"]),
    "data.img_size": (["null"], ["8", "0", "-1", "x", "1.5", "100000"]),
    "data.root": (["null"], ["nowhere", "", "[digits]"]),
}
STUDY: Table = DATA | {
    "models": (
        ["[vit]", "[cnn, vit]", "[linear]", "[small=vit, cnn]", "[vit, pixel_vit]"],
        ["[]", "[vat]", "[vit, vit]", "[vit, 3]", "[[vit]]", "null", "['=vit']", "['vit=']",
         "[timm:vgg11]", "[timm:resnet17]", "{vit: 1}", "[vit"],
    ),
    "sizes": (
        ["[20]", "[20, all]", "[50, 100]", "['30']", "null"],
        ["[]", "[0]", "[-1]", "[1.5]", "[20, 20]", "[all, all]", "[ALL]", "[020]", "[1:30]",
         "['020']", "[7]", "[5000]", "[null]", "[[20]]", "20 30", "[20", "[true]"],
    ),
    "draws": (["1", "3", "'2'"], [*LEAST_ONE, "1000000000"]),
    "seeds": (["1", "2"], [*LEAST_ONE, "1000000000"]),
    "batch_size": (["1", "64", "1000", "null"], [w for w in LEAST_ONE if w != "null"]),
    "rows": (["1", "10"], [*LEAST_ONE, "1000000000"]),
    "threads": (["1", "2"], [*LEAST_ONE, "100000"]),
    "tune": (["0", "2"], [*WHOLE, "-1", "null", "1000000000"]),
    "budget.steps": (["1", "400", "null", "1_000"], [*WHOLE, "0", "-1", "10000000000"]),
    "budget.epochs": (["1", "20", "null"], [*WHOLE, "0", "-1", "10000000000"]),
    "optim.lr": (["1e-3", "0.1", "1"], [*REAL, "0"]),
    "optim.weight_decay": (["0", "0.05", "1e-4"], REAL),
    "optim.warmup": (["0", "0.1"], [*REAL, "1", "2"]),
    "optim.label_smoothing": (["0", "0.1"], [*REAL, "1"]),
    "optim.ema": (["null", "0.9", "0"], [v for v in REAL if v != "null"] + ["1"]),
    "optim.compile": (["true", "false", "no"], FLAG),
    "augment.pad": (["0", "2"], [*WHOLE, "-1", "null"]),
    "augment.flip": (["true", "off"], FLAG),
    "augment.randaugment": (["null", "rand-m9-n2"], ["auto", "[1]"]),
    "augment.transforms": (
        ["null", "[]", "[{class_path: RandomInvert}]"], ["x", "[x]", "[{}]", "[{class_path: x}]"],
    ),
    "tuning.lr": (["[1e-4, 1e-2]"], ["[0, 1]", "[1]", "[2, 1]", "x", "null", "[1, .nan]"]),
    "precision": (["32-true", "bf16-mixed"], ["8", "", "null", "[32]"]),
    "select": (["last", "best"], NAME),
    "match": (["params", "none"], NAME),
    "controls": (["[none]", "[shuffled]"], ["[]", "[x]", "null", "[none, none]", "{a: b}"]),
    "checkpoint": (["true", "false"], FLAG),
    "measure": (["true", "false"], FLAG),
    "args.vit.depth": (["0", "1", "4"], [v for v in LEAST_ONE if v != "0"]),  # 0 has no attention
    "args.vit.scale": (["0.5", "null"], ["x", ".inf", "nan", "[1]"]),
    "args.vit.num_heads": (["2", "4"], LEAST_ONE),
    "args.vit.pos_embed": (["none", "sincos2d"], ["x", "[1]", "3"]),
    "args.vit.nothing": ([], ["1", "x", "null"]),
    "args.cnn.depth": (["1", "2"], LEAST_ONE),
    "args.vat.depth": ([], ["1"]),
}  # fmt: skip
COMPARE: Table = STUDY | {
    "out": (["o", "a/b", "010", "1:30"], ["", "/proc/x", "/dev/null", "a file/x"]),
    "workers": (["null", "1", "2"], [*WHOLE, "0", "-1", "100000"]),
}
FIT: Table = DATA | {
    "model.name": (["vit", "cnn", "linear"], ["vat", "", "null", "[vit]", "timm:resnet17"]),
    "model.lr": (["1e-3", "0.1"], [*REAL, "0"]),
    "model.warmup": (["0", "0.1"], [*REAL, "1"]),
    "model.weight_decay": (["0", "0.1"], REAL),
    "model.ema": (["null", "0.9"], [v for v in REAL if v != "null"] + ["1"]),
    "model.channels_last": (["true", "false"], FLAG),
    "model.num_classes": ([], ["3"]),
    "model.args.drop_rate": (["0", "0.1"], ["x", "[1]", "{a: 1}"]),
    "data.size": (["null", "20", "500"], [*WHOLE, "0", "-1", "7", "5000"]),
    "data.draw": (["0", "3"], [*WHOLE, "-1", "null"]),
    "data.batch_size": (["1", "64"], LEAST_ONE),
    "data.seed": (["0", "7"], [*WHOLE, "-1", "null"]),
    "data.augment.pad": (["0", "2"], ["x", "-1", "[1]"]),
    "seed_everything": (["0", "17", "true"], ["x", "", "-1", "010", "1:30", "[1]", "9" * 20]),
    "trainer.max_epochs": (["1", "50", "null"], ["x", "", "-7", "1.5", "010", "1:30", "9" * 20]),
    "trainer.max_steps": (["7", "-1"], ["x", "", "-7", "null", "010", "1:30"]),
    "trainer.accelerator": (["cpu", "auto"], ["x", "", "[cpu]", "null"]),
    "trainer.devices": (["1", "auto"], ["0", "-7", "x", "[]"]),
    "trainer.strategy": (["auto"], ["x", "", "3", "null"]),
    "trainer.precision": (["32-true", "null"], ["8", "x", "[32]"]),
    "trainer.accumulate_grad_batches": (["1", "4"], [*LEAST_ONE]),
    "trainer.check_val_every_n_epoch": (["1", "null"], ["0", "-1", "x", "010", "[1]"]),
    "trainer.gradient_clip_val": (["null", "1.0"], ["-1", "x", "1:30", "[1]"]),
    "trainer.limit_train_batches": (["null", "0.5", "3"], ["1.5", "-1", "x", "[1]"]),
    "trainer.profiler": (["null", "simple"], ["x", "3"]),
    "ckpt_path": (["null"], ["none.ckpt", "a file", "a folder", ""]),
    "optimizer": ([], ["AdamW", "x"]),
}
DIAGNOSE: Table = {k: v for k, v in DATA.items() if k != "data.val_fraction"} | {
    "out": (["o", "a/b"], ["", "a file"]),
}
EXPLAIN: Table = {
    "ckpt": (["a file"], []),
    "out": (["x.png", "x.pdf", "x.svg", "x.html"], [""]),
    "scale": (["even", "max", "shared"], ["", "min"]),
    "rollout": (["mean", "max", "gradient"], ["", "min"]),
    "weights": (["pretrained"], ["none"]),
    "layers": (["null", "0", "0,2", "[0, 1]"], ["", "x", "1:30", "010", "1.5", "0,,1"]),
    "heads": (["null", "1"], ["", "x", "1:30", "0x1"]),
    "query": (["null", "3,4"], ["", "3", "1,2,3", "x,y", "9" * 30 + ",1"]),
    "overwrite": (["true", "false"], ["x", "2"]),
}
TABLES: dict[str, Table] = {
    "compare": COMPARE,
    "budget": STUDY,
    "fit": FIT,
    "validate": FIT,
    "test": FIT,
    "predict": FIT,
    "diagnose": DIAGNOSE,
    "explain": EXPLAIN,
    "plot": {},
}
WEIGHTS = ("validate", "test", "predict")
"""Commands that want a checkpoint, so that no line of options alone is right."""
MOSTLY = ["compare"] * 6 + ["budget", "fit", "fit", "explain", "diagnose", "plot"] + [*TABLES]

BROKEN: list[bytes] = [
    b"", b"# nothing\n", b"\0", b"\xff\xfe", "é: 1".encode("latin1"), "a: 1".encode("utf-16"),
    bytes(range(256)), b"- a\n- b\n", b"just text", b"3", b"null", b"1: 2", b"null: 3",
    b"? [a]\n: 3", b"seed: [1", b"a: {b", b"a:\tb\n\tc: d", b"--- 1\n--- 2", b"&a {x: *a}",
    b"a: *b", b"a: !!python/object/apply:os.getcwd []", b"!!set {a}", b"a: !b c", b"config: a file",
    b"a: " + b"[" * 3000, b"a: " + b"[" * 3000 + b"]" * 3000, b"- " * 3000, b"a: 1" + b"0" * 5000,
    b"a0: &a0 {b: 1}\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)),
]  # fmt: skip
"""Files that no command can take."""
