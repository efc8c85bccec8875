"""What counting the cost is worth: the random search, networks at equal cost, and other choices while pruning."""

from pathlib import Path

import numpy as np

from experiments.common import Record
from experiments.reporting import paper
from experiments.reporting.document import Block, Command, Heading, Picture, Table, Text
from experiments.reporting.inputs import COMMANDS, Inputs, command, missing
from experiments.reporting.pruning_sections import Section
from experiments.reporting.verdicts import (
    Claim,
    Estimate,
    Sample,
    Verdict,
    above,
    below,
    not_measured,
    paired,
    unpaired,
)
from fastgaze.core.pareto import pareto
from fastgaze.evaluation.figures import pareto_figure

SETS = {"salicon-val": "SALICON val", "osie-held-out": "OSIE, kept out", "cat2000": "CAT2000"}
BITS = "log_likelihood_bits"
KINDS = {"regularised": "β*", "unregularised": "β = 0", "frozen": "β*, frozen costs"}
SAME_COST = 0.005  # relative difference of GFLOP that counts as equal
RESAMPLES = 500
Trials = list[tuple[float, float]]
"""(loss, GFLOP) of every trial."""


# Random search


def random_search(inputs: Inputs, images: Path | None) -> Section:
    """Beta and the number of maps, drawn at random."""
    blocks: list[Block] = [Heading("Random search over β and the number of maps")]
    record = inputs.read("sweep")
    if record is None:
        return [*blocks, missing("search", "the random search")], [_search_claim([], None)]
    points = record["points"]
    if images is not None:
        images.mkdir(parents=True, exist_ok=True)
        pareto_figure([(p["gflop"], p["loss"], p["objective"]) for p in points], images / "sweep.png")
    ratios = _ratios(points)
    about = search_words(record)
    blocks.append(Picture("images/results/sweep.png", f"{about} Lines: Pareto fronts."))
    blocks += [
        _trials(record, "The trials of the figure above, with its settings."),
        Text(_search_sentence(ratios)),
        Command(command("search", record)),
    ]
    return blocks, [_search_claim(points, record)]


def search_words(record: Record) -> str:
    """Every setting of the search, from its record."""
    s, points = record["settings"], record["points"]
    zero = sum(p["objective"] == "none" for p in points)
    low, high = s["beta"]
    least, most = s["removed"]
    return (
        f"{len(points)} trials from `{s['start']}`, {zero} of them with β = 0: β drawn log-uniformly from {low:g} to "
        f"{high:g} nats per GFLOP at 640x480, {least:.0%} to {most:.0%} of the maps removed, {s['share']:.0%} of them "
        f"every {s['steps']} steps of {s['batch']} images ({s['optimizer']}, rate {s['learning_rate']:g}), then "
        f"{s['tuning_steps']} steps of tuning; validation loss in nats on {s['validation_images']} images of SALICON "
        f"val at {_trained_at(s)}; torch, {s['precision']}; one seed."
    )


def _trials(record: Record, about: str) -> Table:
    header = ("trial", "β, nats per GFLOP", "removed maps", "GFLOP at 640x480", "loss, nats", "on the front of all")
    rows = tuple(
        (
            str(p["number"]),
            f"{p['beta']:.2g}",
            str(p["removed"]),
            f"{p['gflop']:.2f}",
            f"{p['loss']:.4f}",
            "yes" if p["number"] in record["pareto"] else "",
        )
        for p in record["points"]
    )
    return Table(header, rows, about)


def _split(points: list[Record]) -> tuple[Trials, Trials]:
    """Trials with beta > 0, and those with beta = 0."""
    ours, others = ([(p["loss"], p["gflop"]) for p in points if p["objective"] == kind] for kind in ("beta", "none"))
    return ours, others


def _ratios(points: list[Record]) -> list[float]:
    return cost_ratios(*_split(points))


def _search_sentence(ratios: list[float]) -> str:
    if not ratios:
        return "The two fronts have no range of loss in common, so their costs cannot be compared."
    times = f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else f"{ratios[0]:.2f}"
    where = f"{len(ratios)} points of" if len(ratios) > 1 else "the one point of"
    return f"For the same loss β = 0 needs {times} times the GFLOP of {where} the front with β > 0 in its range."


def cost_ratios(ours: Trials, others: Trials) -> list[float]:
    """Cost of the others' front over each point of our front that lies in its range of loss."""
    front = _front(others)
    if len(front) < 2:
        return []
    losses, costs = (np.array(column) for column in zip(*front, strict=True))
    inside = [(loss, cost) for loss, cost in _front(ours) if losses[0] <= loss <= losses[-1]]
    return [float(np.exp(np.interp(loss, losses, np.log(costs))) / cost) for loss, cost in inside]


def _front(trials: Trials) -> Trials:
    """By loss, from low to high."""
    return pareto(trials, cost=lambda trial: trial[0], loss=lambda trial: trial[1])


def largest_ratio(points: list[Record]) -> Estimate | None:
    """The largest cost ratio at equal loss, with a bootstrap interval over trials; without one for too few trials."""
    ratios = _ratios(points)
    if not ratios:
        return None
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(RESAMPLES):
        sample = [points[i] for i in rng.integers(len(points), size=len(points))]
        drawn.append(max(_ratios(sample), default=np.nan))
    known = np.array(drawn)[~np.isnan(drawn)]
    if len(known) < 0.9 * RESAMPLES:
        return Estimate(max(ratios))
    low, high = np.quantile(known, [0.025, 0.975])
    return Estimate(max(ratios), float(low), float(high))


def _search_claim(points: list[Record], record: Record | None) -> Claim:
    text = "At equal quality, pruning with β > 0 is cheaper than with β = 0"
    printed = f"up to {paper.SPEEDUP_REGULARISED}x at equal AUC"
    found = largest_ratio(points) if points else None
    if found is None:
        return not_measured(text, printed, command("search", record))
    interval = "" if found.bounded else ", too few trials for an interval"
    words = f"up to {found.shown(2)} times the GFLOP at equal loss, {len(points)} trials{interval}"
    return Claim(text, printed, words, above(found, 1.0), command("search", record))


# Equal cost


def equal_cost(inputs: Inputs) -> Section:
    """Variants of pruning from one start, at equal cost, paired over images."""
    blocks: list[Block] = [Heading("What counting the cost is worth, at equal cost")]
    record = inputs.read("equal_cost")
    if record is None:
        compared = {n: f for n, f in inputs.models("salicon-val").items() if f.get("source") == "comparison"}
        blocks.append(missing("equal_cost", "three seeds at exactly equal cost"))
        blocks += _earlier(compared) if compared else []
    else:
        blocks += _variants(record, command("equal_cost", record))
    dense = inputs.read("equal_cost-densegaze")
    if dense is not None:
        blocks += [Heading("DenseGaze", 3), *_variants(dense, command("equal_cost-densegaze", dense))]
    return blocks, [
        _variant_claim(record, text, printed, pair, "equal_cost")
        for text, printed, pair in (
            (
                "At equal cost, pruning with β* leaves a better network than with β = 0",
                "no number",
                "beta* - none",
            ),
            ("At equal cost, live costs are better than frozen ones", "Figure 1, no number", "beta* - frozen"),
            ("At equal cost, an optimised β is better than β*", "Figure 1, no number", "beta - beta*"),
        )
    ]


def choices(inputs: Inputs) -> Section:
    """The optimizer, early stopping and the first-order term."""
    blocks: list[Block] = [Heading("Choices while pruning")]
    record = inputs.read("choices")
    if record is None:
        blocks.append(missing("choices", "SGD against Adam, early stopping, the first-order term"))
    else:
        blocks += _variants(record, command("choices", record))
    return blocks, [
        _variant_claim(record, text, printed, pair, "choices")
        for text, printed, pair in (
            ("SGD is slightly better than Adam while pruning", "slightly better results", "sgd - adam"),
            ("The first-order term of equation 5 hurts", "reduced the performance", "sgd - first-order"),
            ("Early stopping on the combined cost stops too early", "terminated too early", "sgd - early"),
        )
    ]


def _earlier(compared: dict[str, Record]) -> list[Block]:
    """Snapshots of an earlier comparison, with their costs, which are not all equal."""
    header = ("snapshot", "ranked by", "family", "GFLOP at 640x480", "SALICON val AUC", "SALICON val bits")
    rows = []
    for name, facts in compared.items():
        means = facts["scores"]["salicon-val"]["means"]
        kind = str(KINDS.get(facts["kind"], facts["kind"]))
        cells = (kind, str(facts["family"]), f"{facts['gflop_640x480']:.2f}")
        rows.append((f"`{name}`", *cells, f"{means['auc']:.3f}", f"{means[BITS]:.3f}"))
    images = sorted({facts["scores"]["salicon-val"]["images"] for facts in compared.values()})
    about = (
        f"An earlier comparison: one pruning run each, tuned alike; SALICON val, {' or '.join(map(str, images))} "
        "images, `tuebingen` protocol, onnxruntime fp32 at 320x240, one seed."
    )
    return [Table(header, tuple(rows), about), Text(_earlier_words(compared))]


def _earlier_words(compared: dict[str, Record]) -> str:
    """How far apart the costs are, and what follows."""
    parts = []
    for family in dict.fromkeys(facts["family"] for facts in compared.values()):
        costs = [facts["gflop_640x480"] for facts in compared.values() if facts["family"] == family]
        gap = max(costs) / min(costs) - 1
        words = "equal" if gap <= SAME_COST else f"{gap:.0%} apart"
        parts.append(f"the costs of {family} are {words} ({min(costs):.2f} to {max(costs):.2f} GFLOP)")
    return f"Nothing is decided by it: {'; '.join(parts)}, and one seed has no interval."


def _trained_at(s: Record) -> str:
    """Size of the images, and how many of SALICON's, as settings say; all of them unless they do."""
    scaled = "" if s.get("scale", 1) == 1 else f" with sides scaled by {s['scale']:g}"
    return f"{s['size']}{scaled}" + (f", {s['images']:,} training images of SALICON" if s.get("images") else "")


def _variants(record: Record, line: str) -> list[Block]:
    s = record["settings"]
    about = (
        f"From `{s['start']}`, pruned to {s['gflop']:g} GFLOP at 640x480 and tuned alike for {s['tuning_steps']} "
        f"steps; {len(s['seeds'])} seeds; bits over uniform, `tuebingen` protocol, onnxruntime fp32, "
        f"{_trained_at(s)}; 95% intervals of differences over images (paired) and seeds."
    )
    header = ("variant", "GFLOP of each seed", *SETS.values())
    rows = []
    for name, found in record["variants"].items():
        costs = ", ".join(f"{run['gflop']:.3f}" for run in found)
        rows.append((name, costs, *(_mean_cell(found, data) for data in SETS)))
    pairs = tuple((pair, *(_pair_cell(record, pair, data) for data in SETS)) for pair in record["pairs"])
    return [
        Table(header, tuple(rows), f"Mean bits. {about}"),
        Table(("difference", *SETS.values()), pairs, f"Differences. {about}"),
        Command(line),
    ]


def _mean_cell(found: list[Record], data: str) -> str:
    values = [run["rows"][data][BITS] for run in found if data in run["rows"]]
    return f"{np.mean(values):.3f}" if values else "-"


def _pair_cell(record: Record, pair: str, data: str) -> str:
    found = pair_difference(record, pair, data)
    return "-" if found is None else found.shown(sign=True)


def pair_difference(record: Record, pair: str, data: str = "salicon-val") -> Estimate | None:
    """``a - b`` in bits; the scatter of the images, paired, and that of the seeds, by Welch, add in squares."""
    scores, seeds = [], []
    for name in pair.split(" - "):
        runs = [run["rows"][data][BITS] for run in record["variants"].get(name, []) if data in run["rows"]]
        if not runs:
            return None
        means = np.mean(runs, axis=1)
        scores.append(np.mean(runs, axis=0))
        seeds.append(Sample(float(means.mean()), float(means.std(ddof=1)) if len(means) > 1 else 0.0, len(means)))
    images, networks = paired(*scores), seeds[0].minus(seeds[1])
    scatter = Estimate(0.0, networks.low - networks.value, networks.high - networks.value)
    return unpaired(images, scatter)


def same_cost(record: Record, pair: str) -> bool:
    """Whether the networks of a pair cost the same."""
    costs = [run["gflop"] for name in pair.split(" - ") for run in record["variants"].get(name, [])]
    return bool(costs) and max(costs) <= (1 + SAME_COST) * min(costs)


def _variant_claim(record: Record | None, text: str, printed: str, pair: str, name: str) -> Claim:
    found = None if record is None else pair_difference(record, pair)
    if record is None or found is None:
        return not_measured(text, printed, COMMANDS[name])
    line = command(name, record)
    words = f"{pair.replace('beta', 'β')}: {found.shown(sign=True)} bits on SALICON val"
    if pair.endswith("early"):  # stopping early keeps more maps: too early means that pruning on costs nothing
        return Claim(text, printed, words, below(found, 0.05), line)
    verdict = above(found) if same_cost(record, pair) else Verdict.UNDECIDED
    return Claim(text, printed, words if same_cost(record, pair) else f"{words}, at unequal cost", verdict, line)
