"""The paper as short scripts: ``python -m experiments.NAME --help`` explains each one, ``paper.sh`` runs them in order.

Numerical libraries read their number of threads once, when they are loaded. It is one here, so that times compare,
unless the environment already says otherwise.
"""

import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
