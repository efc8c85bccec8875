"""What a head may cost: damaged heads and fixations kept at several prices, with our map of heads and with the judge's.

    python -m experiments.crop_prices    # results/crop_prices.json and a table of docs/crops.md

On the pictures that the rule is chosen on (``faces.CHOSEN``): neither has the map of heads learned from them, nor are
they reported. A price is the attention that a window may lose to leave one sure head whole (``runtime.crop.HEAD``).
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.common import DOCS, RESULTS, about, make_parser, parse, write_record
from experiments.crops import informed, judged_heads, read_parts, score
from experiments.faces import CHOSEN, Photo
from experiments.pages import fill, table
from fastgaze.core.pictures import open_picture
from fastgaze.runtime.crop import HEAD
from fastgaze.runtime.headroom import Head, find_heads, map_heads
from fastgaze.runtime.predictor import Predictor, load
from fastgaze.runtime.zoo import models

PRICES = (0.0, 0.1, 0.2, 0.3, HEAD, 0.55)
RATIOS = ("2:1", "16:9", "1:1")
MAPS = {"ours": "our map", "judge": "the judge's heads"}
PAGE = DOCS / "crops.md"
Starts = dict[Path, dict[str, float]]


def compare(options: argparse.Namespace) -> None:
    """Score every price with both kinds of heads."""
    photos = read_parts(options.data, CHOSEN)
    model = load(models()[0].name, threads=1)
    found: dict[tuple[str, float], Starts] = {(kind, price): {} for kind in MAPS for price in PRICES}
    for photo in (photo for some in photos.values() for photo in some):
        for key, starts in _priced(model, photo).items():
            found[key][photo.path] = starts
    rows = [
        score(kind, ratio, starts, photos) | {"price": price}
        for (kind, price), starts in found.items()
        for ratio in RATIOS
    ]
    counts = {
        name: {"pictures": len(some), "heads": sum(photo.face is not None for photo in some)}
        for name, some in photos.items()
    }
    write_record(RESULTS / "crop_prices.json", about(options, price=HEAD) | {"pictures": counts, "rows": rows})
    text = shown(rows)
    print(text)
    fill(PAGE, "prices", text)


def _priced(model: Predictor, photo: Photo) -> dict[tuple[str, float], dict[str, float]]:
    """Where the windows begin, by kind of heads and price. The price of a head is that of all heads times its weight,
    so other weights do for other prices."""
    gaze = model.predict(photo.path)
    integral = gaze._integral
    kinds = {"ours": find_heads(map_heads(open_picture(photo.path))), "judge": judged_heads(photo)}
    return {
        (kind, price): informed(integral, photo, weighed(heads, price / HEAD))
        for kind, heads in kinds.items()
        for price in PRICES
    }


def weighed(heads: Sequence[Head], factor: float) -> list[Head]:
    """The same heads, whose damage counts ``factor`` times as much."""
    return [replace(head, weight=head.weight * factor) for head in heads]


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Percent of heads damaged, and the share of OSIE's fixations kept; a line for each price."""
    cells = {(row["cropper"], row["price"], row["ratio"]): row for row in rows}
    header = ["price", *(f"{name}, {ratio}" for name in MAPS.values() for ratio in RATIOS)]
    return table(
        header,
        [[f"{price:g}", *(_cell(cells[kind, price, r]) for kind in MAPS for r in RATIOS)] for price in PRICES],
    )


def _cell(row: Mapping[str, Any]) -> str:
    return f"{100 * row['damaged'] / row['heads']:.0f}%, {row['kept_osie']:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Score and write."""
    compare(parse(make_parser(__doc__, __file__), arguments))


if __name__ == "__main__":
    main()
