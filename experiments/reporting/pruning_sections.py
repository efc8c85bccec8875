"""Table 1 and Figure 1: pruning by itself."""

from pathlib import Path

from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Picture, Table, Text
from experiments.reporting.inputs import COMMANDS, Inputs, Record, missing

MARKS = (50, 25, 10)  # per cent of the cost
Curves = dict[str, list[dict[str, float]]]


# Table 1


def table1(inputs: Inputs) -> list[Block]:
    """LeNet-5 on MNIST."""
    blocks: list[Block] = [Heading("Table 1: LeNet-5 on MNIST")]
    record = inputs.read("lenet_mnist")
    header = ("method", "error, paper", "cost, paper", "error, ours", "cost, ours", "seeds", "maps of one seed")
    rows = tuple(_lenet_row(row, [] if record is None else record["rows"]) for row in paper.TABLE1)
    blocks.append(Table(header, rows))
    if record is None:
        return [*blocks, missing("lenet_mnist", "our column")]
    further = _pushed(record["rows"])
    if further:
        blocks += [Text("Pushed further, and single parameters (no counterpart in the paper):"), further]
    plan = record["plan"]
    about = (
        f"Error on the 10,000 test digits, mean and standard deviation over seeds; cost by the paper's formula. 53,000 "
        f"digits train, 7,000 choose. SGD with momentum, {plan['epochs']} epochs of batches of {plan['batch']}, "
        f"pruning {plan['maps']} maps every {plan['steps']} steps, torch on a CPU. Where there are several β the best "
        "on the 7,000 digits counts. The cost of single parameters is what a perfect sparse engine would need."
    )
    return [*blocks, Text(about), Command(COMMANDS["lenet_mnist"]), *inputs.difference("table1", _lenet_words(record))]


def _lenet_row(row: paper.LeNetRow, ours: list[Record]) -> tuple[str, ...]:
    printed = (row.method, f"{row.error_percent:.2f}%", f"{row.cost_percent:g}%")
    found = _nearest(row, ours)
    return (*printed, "", "", "", "") if found is None else (*printed, *_lenet_cells(found))


def _nearest(row: paper.LeNetRow, ours: list[Record]) -> Record | None:
    """Our row of the same method at the cost nearest to the paper's."""
    own = [found for found in ours if found["method"] == row.ours]
    return min(own, key=lambda found: abs(found["cost_percent"] - row.cost_percent), default=None)


def _lenet_cells(found: Record) -> tuple[str, str, str, str]:
    spread = f" ± {found['error_spread']:.2f}" if len(found["seeds"]) > 1 else ""
    widths = "-".join(str(width) for width in found["widths"][0])
    return f"{found['error_percent']:.2f}%{spread}", f"{found['cost_percent']:.1f}%", str(len(found["seeds"])), widths


def _pushed(ours: list[Record]) -> Table | None:
    shown = [_nearest(row, ours) for row in paper.TABLE1]
    others = [found for found in ours if found not in shown]
    rows = tuple((found["method"].replace("beta", "β"), *_lenet_cells(found)) for found in others)
    return Table(("method", "error", "cost", "seeds", "maps of one seed"), rows) if rows else None


def _lenet_words(record: Record) -> str:
    pairs = [(row, _nearest(row, record["rows"])) for row in paper.TABLE1]
    found = [(row, own) for row, own in pairs if own is not None]
    better = [row.method for row, own in found if own["error_percent"] <= row.error_percent]
    return f"Ours has the lower or same error in {len(better)} of the {len(found)} rows measured." if found else ""


# Figure 1


def figure1(inputs: Inputs, images: Path | None) -> list[Block]:
    """Pruning methods without retraining, on FastGaze and on LeNet-5."""
    blocks: list[Block] = [Heading("Figure 1: pruning methods without retraining")]
    blocks.append(Text(f"In the paper: {paper.FIGURE1}."))
    for name, title in (("figure1", "FastGaze"), ("figure1-lenet", "LeNet-5")):
        record = inputs.read(name)
        blocks.append(Heading(title, 3))
        if record is None:
            blocks.append(missing(name, f"pruning methods on {title}"))
            continue
        if images is not None:
            drawings.figure1(record["curves"], images / f"{name}.png")
        blocks += _curves(record, name, title)
        blocks += inputs.difference(name, _agreement(record["curves"]))
    return blocks


def _curves(record: Record, name: str, title: str) -> list[Block]:
    data = record.get("data", "the images given")
    unit = "a GFLOP at 640x480" if record["unit_flops"] == 1e9 else "a million FLOPs"
    caption = (
        f"{title}: loss while maps are removed, {record['maps']} at a time, parameters fixed. Signals and loss from "
        f"{record['images']} images of {data}; β is nats per {unit}; torch, fp32."
    )
    return [
        Picture(f"images/results/{name}.png", caption),
        Text("Rise of the loss over the unpruned network's, in nats, when so much of the cost is left:"),
        _rises(record["curves"]),
        Command(COMMANDS[name]),
    ]


def rise(curves: Curves, name: str, mark: float) -> float | None:
    """How far the loss has risen when at most ``mark`` per cent of the cost are left, None if never."""
    points = curves.get(name, [])
    reached = next((point["loss"] for point in points if point["cost_percent"] <= mark), None)
    return None if reached is None else reached - points[0]["loss"]


def _rises(curves: Curves) -> Table:
    def cell(name: str, mark: float) -> str:
        value = rise(curves, name, mark)
        return "-" if value is None else f"{value:.3f}"

    rows = tuple((name.replace("beta", "β"), *(cell(name, mark) for mark in MARKS)) for name in curves)
    return Table(("method", *(f"{mark}% left" for mark in MARKS)), rows)


def _agreement(curves: Curves) -> str:
    """The paper's statements, each checked at 25% of the cost."""
    zero = "Fisher, beta = 0"
    fixed = [n for n in curves if n.startswith("Fisher, beta =") and "frozen" not in n and n != zero]
    plain = [n for n in curves if n.startswith("Molchanov") and not n.endswith("cost")]
    statements = [
        ("L1A and L1W are worse than Fisher with β = 0", _best(curves, ["L1A", "L1W"]), _best(curves, [zero])),
        ("Molchanov et al. without cost against Fisher with β = 0", _best(curves, plain), _best(curves, [zero])),
        ("β = 0 is worse than the best β > 0", _best(curves, [zero]), _best(curves, fixed)),
        (
            "frozen costs are worse than updated ones (β*)",
            _best(curves, ["Fisher, beta*, frozen costs"]),
            _best(curves, ["Fisher, beta*"]),
        ),
        ("β* against the best fixed β", _best(curves, ["Fisher, beta*"]), _best(curves, fixed)),
    ]
    parts = [f"{text}: {a:.3f} against {b:.3f}" for text, a, b in statements if a is not None and b is not None]
    return f"At 25% of the cost, rise of the loss in nats: {'; '.join(parts)}." if parts else ""


def _best(curves: Curves, names: list[str]) -> float | None:
    found = [value for name in names if (value := rise(curves, name, 25)) is not None]
    return min(found, default=None)
