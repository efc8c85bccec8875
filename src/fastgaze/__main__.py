"""``python -m fastgaze``."""

from fastgaze.app.cli import main

main()
