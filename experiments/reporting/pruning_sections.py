"""Table 1 and Figure 1: pruning by itself."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.common import Record
from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Picture, Table, Text
from experiments.reporting.inputs import Inputs, command, missing
from experiments.reporting.verdicts import (
    Claim,
    Estimate,
    Sample,
    Verdict,
    above,
    all_of,
    below,
    not_measured,
    paired,
    within,
)

Section = tuple[list[Block], list[Claim]]
MARKS = (75, 50, 25, 10)  # per cent of the cost
ALIKE = 0.02  # nats: methods this close count as equally good
CLOSE = 0.05  # per cent points of error on MNIST that count as no worse
ZERO, STAR = "Fisher, beta = 0", "Fisher, beta*"
Curves = dict[str, Record]


# Table 1


def table1(inputs: Inputs) -> Section:
    """LeNet-5 on MNIST."""
    blocks: list[Block] = [Heading("Table 1: LeNet-5 on MNIST")]
    record = inputs.read("lenet_mnist")
    rows = [] if record is None else record["rows"]
    header = ("method", "error, paper", "cost, paper", "error, ours", "cost, ours", "maps of one seed")
    if record is None:
        about = "In the paper; ours is not measured yet."
        blocks += [Table(header, tuple(_lenet_row(row, []) for row in paper.TABLE1), about)]
        return [*blocks, missing("lenet_mnist", "our columns")], _lenet_claims([], None)
    plan, seeds = record["plan"], sorted({seed for row in rows for seed in row["seeds"]})
    about = (
        f"Error on the 10,000 test digits, mean ± standard deviation over {len(seeds)} seeds; cost by the paper's "
        f"formula. 53,000 digits train, 7,000 choose (also the best of several β). SGD with momentum, {plan['epochs']} "
        f"epochs with {plan['batch']} digits per step, pruning {plan['maps']} maps every {plan['steps']} steps; torch, "
        "fp32, one thread, digits of 28x28, shifted at random by up to two pixels while training."
    )
    blocks.append(Table(header, tuple(_lenet_row(row, rows) for row in paper.TABLE1), about))
    further = _pushed(rows)
    if further:
        words = "Pruned further, and single parameters, as above. The paper has no such rows; the cost of single "
        words += "parameters is what a perfect sparse engine would need."
        blocks.append(Table(("method", "error", "cost", "maps of one seed"), further, words))
    blocks += [Text(_lenet_words(rows)), Command(command("lenet_mnist", record))]
    return blocks, _lenet_claims(rows, record)


def _lenet_row(row: paper.LeNetRow, ours: list[Record]) -> tuple[str, ...]:
    printed = (row.method, f"{row.error_percent:.2f}%", f"{row.cost_percent:g}%")
    found = _nearest(row.ours, row.cost_percent, ours)
    return (*printed, *(("-",) * 3 if found is None else _lenet_cells(found)))


def _nearest(method: str | None, cost: float, ours: list[Record]) -> Record | None:
    """Our row of a method at the cost nearest to the paper's."""
    own = [found for found in ours if found["method"] == method]
    return min(own, key=lambda found: abs(found["cost_percent"] - cost), default=None)


def _lenet_cells(found: Record) -> tuple[str, str, str]:
    spread = f" ± {found['error_spread']:.2f}" if len(found["seeds"]) > 1 else ""
    widths = "-".join(str(width) for width in found["widths"][0])
    return f"{found['error_percent']:.2f}%{spread}", f"{found['cost_percent']:.1f}%", widths


def _pushed(ours: list[Record]) -> tuple[tuple[str, ...], ...]:
    shown = [_nearest(row.ours, row.cost_percent, ours) for row in paper.TABLE1]
    others = [found for found in ours if found not in shown]
    return tuple((found["method"].replace("beta", "β"), *_lenet_cells(found)) for found in others)


def _lenet_words(rows: list[Record]) -> str:
    pairs = [(row, _nearest(row.ours, row.cost_percent, rows)) for row in paper.TABLE1]
    found = [(row, own) for row, own in pairs if own is not None]
    better = sum(own["error_percent"] <= row.error_percent for row, own in found)
    text = f"Ours has the lower or the same error in {better} of the {len(found)} rows. "
    return text + (
        "All our networks, the unpruned one too, are trained with shifted digits and weight decay; the paper does not "
        "say how its LeNet was trained, so compare rows with rows above and below them rather than across."
    )


def _lenet_claims(rows: list[Record], record: Record | None) -> list[Claim]:
    whole, zero = (_nearest(method, 100, rows) for method in ("unpruned", "Fisher (beta = 0)"))
    fixed, star = _nearest("Fisher (beta > 0)", 10, rows), _nearest("Fisher (beta*)", 10, rows)
    automatic = _nearest("Fisher (beta*)", 17, rows)
    line = command("lenet_mnist", record)
    return [
        _lenet_claim(
            "LeNet-5 keeps its error at a tenth of its cost (Fisher, β > 0)",
            "0.79% at 10% of the cost, 0.80% unpruned",
            (fixed, whole, f"counts as kept within {CLOSE:g} points"),
            lambda difference: below(difference, CLOSE),
            line,
        ),
        _lenet_claim(
            "On LeNet-5, β* reaches a lower cost than β = 0 at no higher error",
            "0.86% at 17% of the cost; β = 0: 0.84% at 26%",
            (automatic, zero, f"counts as no higher within {CLOSE:g} points"),
            lambda difference: below(difference, CLOSE),
            line,
        ),
        _lenet_claim(
            "On LeNet-5, β* is not as good as an optimised β",
            "0.86% at 17% of the cost; β > 0: 0.79% at 10%",
            (star, fixed, "both at about a tenth of the cost"),
            above,
            line,
        ),
    ]


def _lenet_claim(
    text: str,
    printed: str,
    compared: tuple[Record | None, Record | None, str],
    decide: Callable[[Estimate], Verdict],
    line: str,
) -> Claim:
    ours, other, note = compared
    if ours is None or other is None:
        return not_measured(text, printed, line)
    difference = _sample(ours).minus(_sample(other))
    words = (
        f"{ours['error_percent']:.2f}% at {ours['cost_percent']:.0f}% against {other['error_percent']:.2f}% at "
        f"{other['cost_percent']:.0f}%: {difference.shown(2, sign=True)} points ({note})"
    )
    return Claim(text, printed, words, decide(difference), line)


def _sample(row: Record) -> Sample:
    return Sample(row["error_percent"], row["error_spread"], len(row["seeds"]))


# Figure 1


def figure1(inputs: Inputs, images: Path | None) -> Section:
    """Pruning methods without retraining, on FastGaze and on LeNet-5."""
    blocks: list[Block] = [Heading("Figure 1: pruning methods without retraining")]
    blocks.append(Text(f"In the paper: {paper.FIGURE1}."))
    claims: list[Claim] = []
    for name, title in (("figure1", "FastGaze"), ("figure1-lenet", "LeNet-5")):
        record = inputs.read(name)
        blocks.append(Heading(title, 3))
        claims += _curve_claims({} if record is None else record["curves"], title, command(name, record))
        if record is None:
            blocks.append(missing(name, f"pruning methods on {title}"))
            continue
        if images is not None:
            drawings.figure1(record["curves"], images / f"{name}.png")
        blocks += _curve_blocks(record, name, title)
    return blocks, claims


def _curve_blocks(record: Record, name: str, title: str) -> list[Block]:
    about = curve_words(record, title)
    bands = "Bands: 95% intervals of the rise over images. Every panel repeats Fisher with β = 0 (black) and β* (red)."
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
        Text(_curve_sentences(record["curves"])),
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


def compare(curves: Curves, ours: list[str], others: list[str], mark: float) -> Estimate | None:
    """Rise of the best of ``ours`` minus that of the best of ``others``, image by image.

    Where there are several, the even images choose and the odd ones are compared, so that choosing costs nothing.
    """
    chosen = [_best(curves, names, mark) for names in (ours, others)]
    part = slice(None) if len(ours) == len(others) == 1 else slice(1, None, 2)
    risen = [None if name is None else rise(curves, name, mark, part) for name in chosen]
    return None if risen[0] is None or risen[1] is None else paired(risen[0], risen[1])


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
}


def _curve_sentences(curves: Curves) -> str:
    """What the numbers say, comparison by comparison."""
    parts = [
        f"{ours} {_verb(difference)} {other} at {mark} of the cost ({difference.shown(sign=True)} nats)"
        for key, (ours, other, mark) in _STATEMENTS.items()
        if (difference := _differences(curves)[key]) is not None
    ]
    return f"{'; '.join(part[0].upper() + part[1:] for part in parts)}." if parts else "Nothing can be compared yet."


def _verb(rise_difference: Estimate) -> str:
    """More loss is worse."""
    if not rise_difference.bounded or rise_difference.low <= 0 <= rise_difference.high:
        return "cannot be told from"
    return "is worse than" if rise_difference.low > 0 else "is better than"


def _curve_claims(curves: Curves, title: str, line: str) -> list[Claim]:
    found = _differences(curves)

    def claim(text: str, printed: str, keys: list[str], verdicts: list[Verdict]) -> Claim:
        shown = [
            f"{_STATEMENTS[key][0]} minus {_STATEMENTS[key][1]} at {_STATEMENTS[key][2]}: "
            f"{difference.shown(sign=True)} nats"
            for key in keys
            if (difference := found[key]) is not None
        ]
        if len(shown) < len(keys):
            return not_measured(f"{title}: {text}", printed, line)
        return Claim(f"{title}: {text}", printed, "; ".join(shown), all_of(verdicts), line)

    unknown = Estimate(0.0)
    naive, molchanov, beta, frozen, few, many, first, _ = (found[key] or unknown for key in _STATEMENTS)
    return [
        claim("naive signals (L1A, L1W) prune poorly", "Figure 1, no number", ["naive"], [above(naive)]),
        claim(
            f"without cost, Fisher prunes as Molchanov et al. (within {ALIKE:g} nats)",
            "Figure 1, no number",
            ["molchanov"],
            [within(molchanov, ALIKE)],
        ),
        claim("a weight on the cost prunes better than none", "Figure 1, no number", ["beta"], [above(beta)]),
        claim("live costs prune better than frozen ones", "Figure 1, no number", ["frozen"], [above(frozen)]),
        claim(
            "β* is good for few maps and worse for many",
            "Figure 1, no number",
            ["star, few", "star, many"],
            [below(few, ALIKE), above(many)],
        ),
        *(
            [claim("the first-order term hurts", "no number", ["first order"], [above(first)])]
            if title == "FastGaze"
            else []
        ),
    ]
