"""Figure 1: pruning methods without retraining, on FastGaze as in the paper, and on LeNet-5."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.common import Record
from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Picture, Points, Section, Table, Text
from experiments.reporting.inputs import Inputs, command, missing
from experiments.reporting.verdicts import (
    Claim,
    Estimate,
    Verdict,
    above,
    all_of,
    below,
    not_measured,
    paired,
    within,
)

MARKS = (75, 50, 25, 10)  # per cent of the cost
ALIKE = 0.02  # nats: methods this close count as equally good
ZERO, STAR = "Fisher, beta = 0", "Fisher, beta*"
Curves = dict[str, Record]


def figure1(inputs: Inputs, images: Path | None) -> Section:
    """Pruning methods without retraining, on FastGaze and on LeNet-5."""
    blocks: list[Block] = [Heading("Figure 1: pruning methods without retraining")]
    blocks.append(Text(f"In the paper: {paper.FIGURE1}."))
    claims: list[Claim] = []
    for name, title in (("figure1", "FastGaze"), ("figure1-lenet", "LeNet-5")):
        record = inputs.read(name)
        blocks.append(Heading(title, 3))
        if title == "FastGaze":
            claims += _curve_claims({} if record is None else record["curves"], command(name, record))
        else:
            blocks.append(Text(_NOT_IN_THE_PAPER))
        if record is None:
            blocks.append(missing(name, f"pruning methods on {title}"))
            continue
        if images is not None:
            drawings.figure1(record["curves"], images / f"{name}.png")
        blocks += _curve_blocks(record, name, title)
    return blocks, claims


_NOT_IN_THE_PAPER = (
    "The paper has no such figure of LeNet-5, so nothing in it is a claim. It shows how far the statements above hold "
    "for another network."
)


def _curve_blocks(record: Record, name: str, title: str) -> list[Block]:
    about = curve_words(record, title)
    bands = "Bands: 95% intervals of the rise over images. Every panel repeats Fisher with β = 0 (black) and "
    bands += f"β* (orange). What is below {drawings.LOWEST_RISE:g} nats is not drawn."
    caption = f"{about} {bands}"
    rises = (
        f"Rise of the loss in nats when so much of the cost is left, with 95% bootstrap intervals over images. {about}"
    )
    rest = [method for method in record.get("methods", []) if method not in record["curves"]]
    words = f"{len(rest)} of {len(record.get('methods', []))} methods: {'; '.join(rest)}".replace("beta", "β")
    return [
        *([missing(name, words)] if rest else []),
        Picture(f"images/results/{name}.png", caption),
        _rises(record["curves"], rises),
        _curve_sentences(record["curves"]),
        Command(command(name, record)),
    ]


def curve_words(record: Record, title: str) -> str:
    """How the curves were made, from their own record."""
    settings = record["settings"]
    unit = "GFLOP at 640x480" if record["unit_flops"] == 1e9 else "million FLOPs"
    gaze = record["unit_flops"] == 1e9
    width, height = settings["size"] if gaze else (28, 28)
    precision = (
        f"torch, signals in {settings['signal_precision']}, losses in {settings['loss_precision']}"
        if gaze
        else "torch, fp32"
    )
    return (
        f"{title} (`{Path(settings['model']).stem}`), parameters fixed, {settings['maps']} maps removed per round; "
        f"signals from {settings['signal_images']} images of {settings['data']} at {width}x{height}, loss on "
        f"{settings['loss_images']} others; β in nats per {unit}, at quantiles of the method's own β_i; {precision}, "
        f"one thread, one run."
    )


def rise(curves: Curves, name: str, mark: float, part: slice = slice(None)) -> np.ndarray | None:
    """Rise of the loss of every image (or of some) when ``mark`` per cent of the cost are left, None if unmeasured."""
    points = {point["mark"]: point["losses"] for point in curves.get(name, {}).get("measured", [])}
    if mark not in points:
        return None
    risen: np.ndarray = (np.array(points[mark]) - np.array(points[100.0]))[part]
    return risen


def _rises(curves: Curves, about: str) -> Table:
    def cell(name: str, mark: float) -> str:
        risen = rise(curves, name, mark)
        return "-" if risen is None else paired(risen, np.zeros_like(risen)).shown()

    def weight(found: Record) -> str:
        return "" if found["beta"] is None else f"{found['beta']:.2g}"

    rows = tuple(
        (name.replace("beta", "β"), weight(found), *(cell(name, mark) for mark in MARKS))
        for name, found in curves.items()
    )
    return Table(("method", "β", *(f"{mark}% left" for mark in MARKS)), rows, about)


def compare(
    curves: Curves, ours: list[str], others: list[str], mark: float, part: slice | None = None
) -> Estimate | None:
    """Rise of the best of ``ours`` minus that of the best of ``others``, image by image.

    Where there are several, the even images choose and the odd ones are compared, so that choosing costs nothing.

    part: the images to compare, if something else has chosen.
    """
    chosen = [_best(curves, names, mark) for names in (ours, others)]
    part = part or (slice(None) if len(ours) == len(others) == 1 else slice(1, None, 2))
    risen = [None if name is None else rise(curves, name, mark, part) for name in chosen]
    return None if risen[0] is None or risen[1] is None else paired(risen[0], risen[1])


def misplaced(curves: Curves, names: list[str], mark: float, other: float) -> Estimate | None:
    """Rise at ``mark`` of the weight that is best at the mark ``other``, minus that of the weight that is best here."""
    own, theirs = _best(curves, names, mark), _best(curves, names, other)
    return None if own is None or theirs is None else compare(curves, [theirs], [own], mark, slice(1, None, 2))


def _best(curves: Curves, names: list[str], mark: float) -> str | None:
    found = {name: values for name in names if (values := rise(curves, name, mark, slice(0, None, 2))) is not None}
    return min(found, key=lambda name: float(found[name].mean()), default=None)


def _weighted(curves: Curves, group: str) -> list[str]:
    return [name for name, found in curves.items() if found["group"] == group and found["beta"] is not None]


def _plain(curves: Curves, group: str) -> list[str]:
    return [name for name, found in curves.items() if found["group"] == group and found["beta"] is None]


def frozen_minus_live(curves: Curves, mark: float) -> Estimate | None:
    """Mean over beta* and every weight of what frozen costs add to the rise, image by image."""
    pairs = [("Fisher, beta*, frozen costs", STAR)]
    pairs += [(name, name.replace("frozen costs, ", "")) for name in _weighted(curves, "frozen costs")]
    gaps = []
    for frozen, live in pairs:
        one, other = rise(curves, frozen, mark), rise(curves, live, mark)
        if one is not None and other is not None:
            gaps.append(one - other)
    return None if not gaps else paired(np.mean(gaps, axis=0), np.zeros(len(gaps[0])))


def _differences(curves: Curves) -> dict[str, Estimate | None]:
    """Everything that the paper's statements on Figure 1 are decided by."""
    fixed = _weighted(curves, "Fisher")
    return {
        "naive": compare(curves, ["L1A", "L1W"], [ZERO], 25),
        "molchanov": compare(curves, _plain(curves, "Molchanov"), [ZERO], 25),
        "beta": compare(curves, [ZERO], fixed, 25),
        "frozen": frozen_minus_live(curves, 25),
        "star, few": compare(curves, [STAR], fixed, 75),
        "star, many": compare(curves, [STAR], fixed, 10),
        "first order": compare(curves, ["Fisher with first-order term"], [ZERO], 25),
        "star": compare(curves, [STAR], [ZERO], 25),
        "others' weight, few": misplaced(curves, fixed, 75, 10),
        "others' weight, many": misplaced(curves, fixed, 10, 75),
    }


_STATEMENTS = {
    "naive": ("the better of L1A and L1W", "Fisher with β = 0", "25%"),
    "molchanov": ("the better variant of Molchanov et al. without cost", "Fisher with β = 0", "25%"),
    "beta": ("Fisher with β = 0", "the best β > 0", "25%"),
    "frozen": ("Fisher with frozen costs", "the same with live costs", "25%"),
    "star, few": ("Fisher with β*", "the best fixed β", "75%"),
    "star, many": ("Fisher with β*", "the best fixed β", "10%"),
    "first order": ("Fisher with the first-order term", "Fisher without it", "25%"),
    "star": ("Fisher with β*", "Fisher with β = 0", "25%"),
    "others' weight, few": ("the best β for 10% of the cost", "the best β for 75%", "75%"),
    "others' weight, many": ("the best β for 75% of the cost", "the best β for 10%", "10%"),
}


def _curve_sentences(curves: Curves) -> Block:
    """What the numbers say, comparison by comparison."""
    found = _differences(curves)
    parts = [
        f"At {mark} of the cost, {ours} {_verb(difference)} {other} ({difference.shown(sign=True)} nats)."
        for key, (ours, other, mark) in _STATEMENTS.items()
        if (difference := found[key]) is not None
    ]
    return Points(tuple(parts)) if parts else Text("Nothing to compare yet.")


def _verb(rise_difference: Estimate) -> str:
    """More loss is worse."""
    if not rise_difference.bounded or rise_difference.low <= 0 <= rise_difference.high:
        return "cannot be told from"
    return "is worse than" if rise_difference.low > 0 else "is better than"


def _curve_claims(curves: Curves, line: str) -> list[Claim]:
    found = _differences(curves)

    def claim(text: str, printed: str, decided: dict[str, Callable[[Estimate], Verdict]]) -> Claim:
        known = {key: difference for key in decided if (difference := found[key]) is not None}
        if len(known) < len(decided):
            return not_measured(text, printed, line)
        words = [
            f"at {_STATEMENTS[key][2]} of the cost {_STATEMENTS[key][0]} minus {_STATEMENTS[key][1]}: "
            f"{difference.shown(sign=True)} nats"
            for key, difference in known.items()
        ]
        verdict = all_of([decide(known[key]) for key, decide in decided.items()])
        return Claim(text, printed, "; ".join(words), verdict, line)

    drawn = "Figure 1, no number"
    return [
        claim("Naive signals (L1A, L1W) prune poorly", drawn, {"naive": above}),
        claim(
            f"Without cost, Fisher prunes as Molchanov et al. (within {ALIKE:g} nats)",
            drawn,
            {"molchanov": lambda difference: within(difference, ALIKE)},
        ),
        claim("A weight on the cost prunes better than none", drawn, {"beta": above}),
        claim(
            "Networks pruned to different degrees need different β",
            drawn,
            {"others' weight, few": above, "others' weight, many": above},
        ),
        claim("Live costs prune better than frozen ones", drawn, {"frozen": above}),
        claim(
            f"β* is good for few maps (within {ALIKE:g} nats of the best β) and worse for many",
            drawn,
            {"star, few": lambda difference: below(difference, ALIKE), "star, many": above},
        ),
        claim("The first-order term of equation 5 hurts, without retraining", "no number", {"first order": above}),
    ]
