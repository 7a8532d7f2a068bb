"""The command line of vision_attn, run from a checkout: `python train.py --help`."""

from vision_attn.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
