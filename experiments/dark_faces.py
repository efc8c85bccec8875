"""Does the map of heads find dark faces as it finds light ones?

    python -m experiments.dark_faces     # results/dark_faces.json and a sentence of docs/crops.md

The one large face of every picture for choosing that has one (``experiments.faces``) is darkened inside an ellipse with
soft edges, to some shares of its light. A head counts as found where it would move a window: a head of the map holds
the middle of the face and weighs more than ``COUNTS``.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from experiments.common import DOCS, RESULTS, Record, about, make_parser, parse, write_record
from experiments.crops import read_parts
from experiments.faces import CHOSEN, Face, Photo
from experiments.pages import fill
from fastgaze.core.pictures import open_picture
from fastgaze.runtime.headroom import find_heads, map_heads

LIGHT = (1.0, 0.6, 0.4, 0.25)
COUNTS = 0.3


def darkened(pixels: npt.NDArray[np.uint8], face: Face, light: float) -> npt.NDArray[np.uint8]:
    """RGB (h, w, 3) with the face at a share of its light."""
    inside = face.ellipse((pixels.shape[0], pixels.shape[1]))
    return np.asarray((pixels * (1 - inside * (1 - light))[:, :, None]).round(), np.uint8)


def is_found(photo: Photo, light: float) -> bool:
    """Whether the map has a head that counts at the darkened face."""
    face = photo.face
    assert face is not None
    pixels = darkened(np.asarray(open_picture(photo.path).rgb()), face, light)
    x, y = face.left + face.width / 2, face.top + face.height / 2
    heads = find_heads(map_heads(open_picture(Image.fromarray(pixels))))
    return any(head.weight > COUNTS and head.left < x < head.right and head.top < y < head.bottom for head in heads)


def shown(record: Record) -> str:
    """The sentence of the page."""
    found = [f"{row['found']} at {100 * row['light']:.0f}%" for row in record["rows"][1:]]
    return (
        f"Of {record['heads']} heads, each alone in a picture for choosing, it finds {record['rows'][0]['found']} as "
        f"they are; where the face is darkened to a share of its light, {', '.join(found)} "
        "(`python -m experiments.dark_faces`)."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, write the figures and the page."""
    options = parse(make_parser(__doc__, __file__, out=RESULTS / "dark_faces.json"), arguments)
    parts = read_parts(options.data, CHOSEN).values()
    photos = [photo for some in parts for photo in some if photo.face]
    rows = [{"light": light, "found": sum(is_found(photo, light) for photo in photos)} for light in LIGHT]
    record = about(options, counts=COUNTS) | {"heads": len(photos), "rows": rows}
    write_record(options.out, record)
    fill(DOCS / "crops.md", "dark", shown(record))


if __name__ == "__main__":
    main()
