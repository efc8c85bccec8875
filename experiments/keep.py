"""Keep a trained checkpoint in the repository: convolution weights as float16, the record as it is.

python -m experiments.keep runs/lite0/best.safetensors checkpoints/litegaze-lite0.safetensors
"""

import sys
from pathlib import Path

from fastgaze.networks import load_checkpoint, save_checkpoint


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    model, record = load_checkpoint(source)
    save_checkpoint(model, target, record, dtype="float16")
    print(f"{target}: {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
