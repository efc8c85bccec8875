"""Keep a trained checkpoint in the repository: weights of convolutions as float16, its record as it is.

    python -m experiments.keep runs/lite0/best.safetensors checkpoints/litegaze-lite0.safetensors
    python -m experiments.keep runs/teacher/ensemble.safetensors checkpoints/deepgaze2.safetensors --without-trunk

Without its trunk, which is VGG-19 as it was published, DeepGaze II takes 1 MB; `fastgaze.load("deepgaze2")` puts both
together again.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from fastgaze.networks import load_checkpoint, save_checkpoint


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False)
    parser.add_argument("source", type=Path, help="checkpoint of a run")
    parser.add_argument("target", type=Path, help="file to write, in checkpoints/")
    parser.add_argument("--without-trunk", action="store_true", help="leave out a trunk that was never trained")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the smaller file."""
    options = common.parse(make_parser(), arguments)
    model, record = load_checkpoint(options.source)
    save_checkpoint(model, options.target, record, dtype="float16", trunk=not options.without_trunk)
    print(f"{options.target}: {options.target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
