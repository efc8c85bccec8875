"""Is a model too sure of itself because of the kind of picture, or because of the viewers?

    python -m experiments.temperatures

The temperature that fits a model best in each of CAT2000's twenty categories, with the centre bias of the whole set. A
network that is at a loss with unfamiliar pictures is too sure of fractals and right about streets; if it is too sure of
streets as well, the viewers differ, and no training on other kinds of pictures can know that. Nothing was chosen by
these figures. Writes results/temperatures.json and a part of docs/models.md.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from experiments import common, scoring
from experiments.common import DOCS, RESULTS, Record
from experiments.pages import fill, table
from fastgaze.evaluation.calibrate import fitted_temperature
from fastgaze.runtime.predictor import load
from fastgaze.runtime.zoo import default_name

ORDINARY = ("Action", "Indoor", "OutdoorManMade", "OutdoorNatural", "Social")
"""Categories that hold everyday photographs, as the sets that the models learned from do."""
DRAWN = ("Art", "Cartoon", "LineDrawing", "Sketch", "Fractal", "Pattern")
"""Categories that hold no photographs at all."""
PER_ROW = 5


def by_category(names: Sequence[str]) -> dict[str, list[int]]:
    """Numbers of the images of each category; a name is ``Category-001``."""
    found: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        found[name.rsplit("-", 1)[0]].append(number)
    return dict(found)


def shown(record: Record) -> str:
    """The part of the page."""
    categories: dict[str, float] = record["categories"]
    ordered = sorted(categories, key=lambda kind: categories[kind])
    rows = [
        [f"{kind} {categories[kind]:.2f}" for kind in ordered[first : first + PER_ROW]]
        for first in range(0, len(ordered), PER_ROW)
    ]
    ordinary, drawn = (float(np.mean([categories[kind] for kind in kinds])) for kinds in (ORDINARY, DRAWN))
    comparison = "lower than" if ordinary < drawn else "not lower than"
    about = (
        f"Temperatures of `{record['settings']['model']}` in the categories of CAT2000 "
        f"(`python -m experiments.temperatures`). Their mean over everyday photographs ({', '.join(ORDINARY)}) is "
        f"{ordinary:.2f}, {comparison} the {drawn:.2f} of pictures that are not photographs ({', '.join(DRAWN)})."
    )
    header = ["lowest first", *[""] * (PER_ROW - 1)]
    return f"{table(header, rows)}\n\n{about}"


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, out=RESULTS / "temperatures.json")
    parser.add_argument("--model", default=default_name(), help="a bundled model")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit every category and set, write the figures and the page."""
    options = common.parse(make_parser(), arguments)
    predictor = load(options.model, threads=1)
    wide = scoring.load_set("cat2000", options.data)
    categories = {
        kind: round(fitted_temperature(predictor, wide, numbers), 2)
        for kind, numbers in by_category(wide.names).items()
    }
    record = common.about(options, model=options.model, threads=1) | {"categories": categories}
    common.write_record(options.out, record)
    fill(DOCS / "models.md", "categories", shown(record))
    print(shown(record))


if __name__ == "__main__":
    main()
