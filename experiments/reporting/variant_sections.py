"""Ways of pruning at equal cost: what counting the cost is worth, and other choices while pruning."""

import math

import numpy as np

from experiments.common import Record
from experiments.reporting.document import Block, Command, Heading, Missing, Section, Table, Text
from experiments.reporting.inputs import COMMANDS, Inputs, command, missing
from experiments.reporting.verdicts import Claim, Estimate, Sample, Verdict, above, not_measured, paired, unpaired
from experiments.scoring import STOPPED_TRAINING

SETS = {"salicon-val": "SALICON val", "osie-held-out": "OSIE, kept out", "cat2000": "CAT2000"}
BITS = "log_likelihood_bits"
KINDS = {"regularised": "β*", "unregularised": "β = 0", "frozen": "β*, frozen costs"}
SAME_COST = 0.02  # relative difference of GFLOP up to which networks are compared: about one map more or less
PER_DOUBLING = 0.2  # bits for twice the cost, more than was ever seen here: what unequal costs add to an interval


def equal_cost(inputs: Inputs) -> Section:
    """Variants of pruning from one start, at equal cost, paired over images."""
    blocks: list[Block] = [Heading("What counting the cost is worth, at equal cost")]
    record, dense = inputs.read("equal_cost"), inputs.read("equal_cost-densegaze")
    blocks += [Heading("FastGaze", 3), *_measured(record, "equal_cost")]
    compared = {n: f for n, f in inputs.models("salicon-val").items() if f.get("source") == "comparison"}
    earlier = {n: f for n, f in compared.items() if "Dense" in f["family"] or record is None}
    blocks += [Heading("DenseGaze", 3), *_measured(dense, "equal_cost-densegaze")]
    blocks += _earlier(earlier) if earlier and dense is None else []
    blocks += [Heading("LiteGaze, which the paper does not have", 3)]
    blocks += _measured(inputs.read("equal_cost-litegaze"), "equal_cost-litegaze")
    return blocks, [
        _variant_claim(record, text, printed, pair, "equal_cost")
        for text, printed, pair in (
            (
                "At equal cost and after tuning, pruning with β* leaves a better network than with β = 0",
                "of LeNet-5 in Table 1, no number for FastGaze",
                "beta* - none",
            ),
            (
                "At equal cost and after tuning, live costs are better than frozen ones",
                "Figure 1 without retraining, no number",
                "beta* - frozen",
            ),
            (
                "At equal cost and after tuning, an optimised β is better than β*",
                "of LeNet-5 in Table 1, no number for FastGaze",
                "beta - beta*",
            ),
        )
    ]


def choices(inputs: Inputs) -> Section:
    """The optimizer, early stopping and the first-order term."""
    blocks: list[Block] = [Heading("Choices while pruning")]
    record = inputs.read("choices")
    return [*blocks, *_measured(record, "choices")], [
        _variant_claim(
            record, "SGD is slightly better than Adam while pruning", "slightly better results", "sgd - adam", "choices"
        ),
        _variant_claim(
            record,
            "The first-order term of equation 5 hurts, after tuning",
            "reduced the performance",
            "sgd - first-order",
            "choices",
        ),
        _early_claim(record),
    ]


_WHAT = {
    "equal_cost": "β*, β and β = 0, live costs and frozen ones, three seeds at exactly equal cost",
    "equal_cost-densegaze": "the same for DenseGaze, from `densegaze-m`",
    "equal_cost-litegaze": "β*, β and β = 0 for LiteGaze",
    "choices": "SGD against Adam, early stopping, the first-order term",
}


def _measured(record: Record | None, name: str) -> list[Block]:
    if record is None:
        return [missing(name, _WHAT[name])]
    rest = unfinished(record)
    line = command(name, record)
    gap: list[Block] = (
        [Missing(f"{', '.join(rest)}; nothing is decided until all seeds are there", line)] if rest else []
    )
    return [*gap, *_variants(record), Command(line)]


# What was run


def _names(record: Record) -> list[str]:
    return list(dict.fromkeys([*record["settings"].get("variants", {}), *record["variants"]]))


def unfinished(record: Record) -> list[str]:
    """Variants that lack seeds, in words."""
    wanted, runs = len(record["settings"]["seeds"]), record["variants"]
    return [
        f"`{name}` ({len(runs.get(name, []))} of {wanted} seeds)".replace("beta", "β")
        for name in _names(record)
        if len(runs.get(name, [])) < wanted
    ]


def trained_at(s: Record) -> str:
    """Size of the images, and how many of SALICON's, as settings say; all of them unless they do."""
    scaled = "" if s.get("scale", 1) == 1 else f" with sides scaled by {s['scale']:g}"
    return f"{s['size']}{scaled}" + (f", {s['images']:,} training images of SALICON" if s.get("images") else "")


def _variants(record: Record) -> list[Block]:
    s = record["settings"]
    most = max((len(found) for found in record["variants"].values()), default=0)
    seeds = f"{len(s['seeds'])} seeds" if not unfinished(record) else f"up to {most} of {len(s['seeds'])} seeds so far"
    about = (
        f"From `{s['start']}`, pruned to {s['gflop']:g} GFLOP at 640x480 and tuned alike for {s['tuning_steps']} "
        f"steps; {seeds}; bits over uniform, `tuebingen` protocol, onnxruntime fp32, one thread, "
        f"{trained_at(s)}; {_counts(record)}; 95% intervals of differences over images (paired) and seeds, wider by "
        f"{PER_DOUBLING:g} bits per doubling for costs that one map makes unequal."
    )
    header = ("variant", "GFLOP of each seed", "β of each seed", *SETS.values())
    rows = []
    for name in _names(record):
        found = record["variants"].get(name, [])
        costs = ", ".join(f"{run['gflop']:.3f}" for run in found) or "-"
        betas = ", ".join(f"{run['beta']:g}" for run in found if run.get("beta") is not None) or "-"
        rows.append((name.replace("beta", "β"), costs, betas, *(_mean_cell(found, data) for data in SETS)))
    pairs = tuple(
        (pair.replace("beta", "β"), *(_pair_cell(record, pair, data) for data in SETS)) for pair in record["pairs"]
    )
    return [
        Table(header, tuple(rows), f"Mean bits. {about}"),
        Table(("difference", *SETS.values()), pairs, f"Differences. {about}"),
    ]


def _counts(record: Record) -> str:
    """How many images of each set count."""
    runs = [run["rows"] for found in record["variants"].values() for run in found]
    counts = {title: {len(_bits(rows, data)) for rows in runs if data in rows} for data, title in SETS.items()}
    words = [f"{title} {'/'.join(map(str, sorted(found)))}" for title, found in counts.items() if found]
    return f"images: {', '.join(words)}, those of SALICON that stopped training left out"


def _bits(rows: Record, data: str) -> list[float]:
    """Bits of every image; without SALICON's first ones, which decided when training stopped and on the best beta."""
    found: list[float] = rows[data][BITS]
    return found[STOPPED_TRAINING:] if data == "salicon-val" and len(found) > STOPPED_TRAINING else found


def _mean_cell(found: list[Record], data: str) -> str:
    values = [_bits(run["rows"], data) for run in found if data in run["rows"]]
    return f"{np.mean(values):.3f}" if values else "-"


def _pair_cell(record: Record, pair: str, data: str) -> str:
    found = pair_difference(record, pair, data)
    return "-" if found is None else found.shown(sign=True)


# Differences and claims


def pair_difference(record: Record, pair: str, data: str = "salicon-val") -> Estimate | None:
    """``a - b`` in bits; the scatter of the images, paired, and that of the seeds, by Welch, add in squares."""
    scores, seeds = [], []
    for name in pair.split(" - "):
        runs = [_bits(run["rows"], data) for run in record["variants"].get(name, []) if data in run["rows"]]
        if not runs:
            return None
        means = np.mean(runs, axis=1)
        scores.append(np.mean(runs, axis=0))
        seeds.append(Sample(float(means.mean()), float(means.std(ddof=1)) if len(means) > 1 else 0.0, len(means)))
    images, networks = paired(*scores), seeds[0].minus(seeds[1])
    scatter = Estimate(0.0, networks.low - networks.value, networks.high - networks.value)
    both = unpaired(images, scatter)
    return Estimate(both.value, both.low - _allowance(record, pair), both.high + _allowance(record, pair))


def _allowance(record: Record, pair: str) -> float:
    """Bits by which an unequal cost may have moved the difference, none where early stopping is to cost more."""
    costs = [float(np.mean(_costs(record, name))) for name in pair.split(" - ")]
    return PER_DOUBLING * abs(math.log2(costs[0] / costs[1])) if same_cost(record, pair) else 0.0


def _costs(record: Record, name: str) -> list[float]:
    return [run["gflop"] for run in record["variants"].get(name, [])]


def same_cost(record: Record, pair: str) -> bool:
    """Whether the networks of a pair cost the same."""
    costs = [cost for name in pair.split(" - ") for cost in _costs(record, name)]
    return bool(costs) and max(costs) <= (1 + SAME_COST) * min(costs)


def _complete(record: Record, pair: str) -> bool:
    wanted = len(record["settings"]["seeds"])
    return all(len(record["variants"].get(name, [])) == wanted for name in pair.split(" - "))


def _shown(record: Record, pair: str) -> str:
    """The difference on every set that was scored."""
    found = {title: pair_difference(record, pair, data) for data, title in SETS.items()}
    return "; ".join(f"{title} {each.shown(sign=True)}" for title, each in found.items() if each is not None)


def _variant_claim(record: Record | None, text: str, printed: str, pair: str, name: str) -> Claim:
    found = None if record is None else pair_difference(record, pair)
    if record is None or found is None:
        return not_measured(text, printed, COMMANDS[name])
    words = f"{pair.replace('beta', 'β')}, bits: {_shown(record, pair)} (SALICON val decides)"
    if not _complete(record, pair):
        return Claim(text, printed, f"{words}; not all seeds are there yet", Verdict.UNDECIDED, command(name, record))
    if not same_cost(record, pair):
        return Claim(text, printed, f"{words}, at unequal cost", Verdict.UNDECIDED, command(name, record))
    return Claim(text, printed, words, above(found), command(name, record))


def _early_claim(record: Record | None) -> Claim:
    """Too early by its own measure: pruned on, the network's loss + beta * cost would have been lower still."""
    text, printed, pair = "Early stopping on the combined cost stops too early", "terminated too early", "sgd - early"
    found = None if record is None else pair_difference(record, pair)
    if record is None or found is None:
        return not_measured(text, printed, COMMANDS["choices"])
    line, goal = command("choices", record), record["settings"]["gflop"]
    costs = _costs(record, "early")
    stopped = [cost > (1 + SAME_COST) * goal for cost in costs]
    ended = f"it ends at {', '.join(f'{cost:.2f}' for cost in costs)} GFLOP"
    if not any(stopped):
        words = f"{ended}, not before {goal:g} GFLOP, where the others end"
        return Claim(text, printed, words, Verdict.CONTRADICTED if _complete(record, pair) else Verdict.UNDECIDED, line)
    beta = record["settings"]["variants"]["early"]["beta"][0]
    saved = beta * (float(np.mean(costs)) - float(np.mean(_costs(record, "sgd"))))
    rise = Estimate(*(-math.log(2) * edge for edge in (found.value, found.high, found.low)))
    words = (
        f"{ended}; pruned on to {goal:g} GFLOP, the loss on SALICON val rises by {rise.shown(sign=True)} nats, and "
        f"β times the saved cost is {saved:.3f} nats"
    )
    decided = all(stopped) and _complete(record, pair)
    return Claim(text, printed, words, above(found, -saved / math.log(2)) if decided else Verdict.UNDECIDED, line)


# An earlier comparison


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
