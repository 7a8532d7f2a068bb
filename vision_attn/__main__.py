"""`python -m vision_attn` is the command `vision-attn`."""

from vision_attn.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
