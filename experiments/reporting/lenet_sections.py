"""Table 1: LeNet-5 on MNIST."""

from collections.abc import Callable

from experiments.common import Record
from experiments.reporting import paper
from experiments.reporting.document import Block, Command, Heading, Section, Table, Text
from experiments.reporting.inputs import Inputs, command, missing
from experiments.reporting.verdicts import Claim, Estimate, Sample, Verdict, above, below, not_measured

CLOSE = 0.05  # per cent points of error on MNIST that count as no worse


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
