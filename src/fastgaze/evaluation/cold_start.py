"""One prediction in a fresh process, for ``bench``.

    python -m fastgaze.evaluation.cold_start PHOTO ENGINE THREADS [MODEL]

It does what a program does that loads one model and asks it about one picture: peaks and a window.
"""

import os
import sys


def main(photo: str, engine: str, threads: str, model: str | None = None) -> None:
    """Load, predict, describe; prints nothing."""
    # numpy reads these once, when it is imported.
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), threads))
    from fastgaze.runtime.predictor import load

    load(model, engine, int(threads)).predict(photo).to_json(ratios=["16:9"])


if __name__ == "__main__":
    main(*sys.argv[1:])
