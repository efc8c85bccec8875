"""Table 2, and what the paper does not have: our engines' speed, and what counting the cost is worth at equal cost."""

import re
from pathlib import Path

import numpy as np

from experiments.reporting import paper
from experiments.reporting.document import Block, Command, Heading, Picture, Table, Text
from experiments.reporting.gaze_sections import PROTOCOL
from experiments.reporting.inputs import COMMANDS, Inputs, Record, machine, missing
from fastgaze.evaluation.figures import pareto_figure

METRICS = {"auc": "AUC", "kl": "KL", "sim": "SIM", "nss": "NSS"}
KINDS = {"regularised": "β*", "unregularised": "β = 0", "frozen": "β*, frozen costs"}


# Table 2


def table2(inputs: Inputs) -> list[Block]:
    """Our models and peers."""
    blocks: list[Block] = [Heading("Table 2: models and peers")]
    blocks.append(Heading("In the paper", 3))
    blocks.append(Text("**Published**, not measured here: MIT300, by the MIT benchmark's own (older) code."))
    blocks.append(_paper_table())
    blocks.append(Heading("Measured here", 3))
    models = inputs.models()
    if inputs.front is None or not models:
        blocks.append(missing("front", "our models and the peer on CAT2000"))
    else:
        blocks += _measured(inputs.front, models)
        blocks.append(Command(COMMANDS["front"]))
    blocks.append(Heading("What others publish", 3))
    words = "**Published**, not measured here: MIT300 by the `tuebingen` protocol, each model with its own centre bias."
    blocks += [Text(words), _peer_table()]
    return [*blocks, *inputs.difference("table2", _cost_words(models))]


def _paper_table() -> Table:
    def cells(row: paper.Benchmark) -> tuple[str, ...]:
        gflop = "-" if row.gflop is None else f"{row.gflop:g}"
        return row.model, f"{row.auc:.0%}", f"{row.kl:.2f}", f"{row.sim:.2f}", f"{row.nss:.2f}", gflop

    header = ("model", "AUC", "KL", "SIM", "NSS", "GFLOP at 640x480")
    return Table(header, tuple(cells(row) for row in paper.TABLE2))


def _peer_table() -> Table:
    return Table(("model", "cost", "AUC", "NSS", "information gain, bits"), tuple(tuple(row) for row in paper.PEERS))


def _measured(front: Record, models: dict[str, Record]) -> list[Block]:
    blocks: list[Block] = []
    for data, words in (
        ("cat2000", PROTOCOL),
        ("cat2000-legacy", "`mit-legacy` protocol, as the paper's table, with the set's own centre bias"),
    ):
        named = {name: facts for name, facts in models.items() if data in facts["scores"] and not is_mark(name)}
        if named:
            images = sorted({facts["scores"][data]["images"] for facts in named.values()})
            count = " or ".join(map(str, images))
            blocks.append(Text(f"CAT2000, {count} images, {words}; 95% intervals over images. KL in nats."))
            blocks.append(_scores(front["baselines"].get(data, {}), named, data))
    return blocks


def is_mark(name: str) -> bool:
    """Whether a model is one of many, a comparison's snapshot such as star-10 or a trial, without a name of its own."""
    return is_snapshot(name) or re.fullmatch(r"sweep-\d+-(?:beta|none)", name) is not None


def is_snapshot(name: str) -> bool:
    """Whether a model is a snapshot of a comparison run: star-10, densegaze-none-10."""
    return re.fullmatch(r"(?:densegaze-)?(?:star|none|frozen)-[\d.]+", name) is not None


def _scores(baselines: Record, models: dict[str, Record], data: str) -> Table:
    rows = []
    for base, shown in (("center_bias", "centre bias"), ("other_observers", "other observers")):
        if base in baselines:
            cells = (f"{baselines[base][metric]:.3f}" if metric in baselines[base] else "-" for metric in METRICS)
            rows.append((shown, *cells, "-"))
    for name, facts in models.items():
        found = facts["scores"][data]
        cells = (
            f"{found['means'][m]:.3f} [{found['intervals'][m][0]:.3f}, {found['intervals'][m][1]:.3f}]" for m in METRICS
        )
        rows.append((f"`{name}`", *cells, f"{facts['gflop_640x480']:.2f}"))
    return Table(("model", *METRICS.values(), "GFLOP at 640x480"), tuple(rows))


def _cost_words(models: dict[str, Record]) -> str:
    teacher = next((facts for facts in models.values() if facts["kind"] == "teacher"), None)
    if teacher is None:
        return ""
    return (
        f"DeepGaze II costs {teacher['gflop_640x480']:.2f} GFLOP by the paper's formula where the paper prints 240.6; "
        "nothing in its text explains the rest. MIT300's fixations are not public, so CAT2000 stands in for it."
    )


# Beyond the paper


def beyond(inputs: Inputs, images: Path | None) -> list[Block]:
    """Engines and precisions; beta at equal cost; the random search."""
    blocks: list[Block] = [Heading("Beyond the paper")]
    blocks.append(Heading("Engines and precisions", 3))
    speed = inputs.read("speed")
    blocks += [missing("speed", "speed of what is bundled, by engine")] if speed is None else _speed(speed)
    blocks.append(Heading("What counting the cost is worth, at equal cost", 3))
    compared = {name: facts for name, facts in inputs.models("salicon-val").items() if is_snapshot(name)}
    if compared:
        blocks += _equal_cost(inputs, compared)
    else:
        blocks.append(missing("front", "snapshots of the comparison runs (runs/front)"))
    blocks.append(Heading("Random search over β and the number of maps", 3))
    sweep = inputs.read("sweep")
    blocks += [missing("sweep", "the random search")] if sweep is None else _sweep(sweep, images)
    return [*blocks, *inputs.difference("beyond")]


def _speed(record: Record) -> list[Block]:
    height, width = record["picture"]
    scored = record.get("scored_on")
    about = (
        f"A {height}x{width} RGB array in, a {height}x{width} log density out, one thread, {record['rounds']} "
        f"interleaved rounds; median CPU milliseconds, ratios formed within a round. DeepGaze II: one member in eager "
        f"torch. {machine(record['machine'])}."
    )
    if scored:
        about += f" Scores: {scored['data']}, {scored['images']} images, {PROTOCOL}."
    rows = [row for row in record["rows"] if row["engine"] != "numpy"]
    header = (
        "model",
        "engine",
        "precision",
        "network input",
        "CPU ms",
        "x DeepGaze II",
        "x peer",
        "AUC",
        "NSS",
        "bits",
    )
    return [Text(about), Table(header, tuple(_speed_row(row) for row in rows)), Command(COMMANDS["speed"])]


def _speed_row(row: Record) -> tuple[str, ...]:
    size = "x".join(str(side) for side in row["network_size"])
    ratios = (row.get("ratio_to_deepgaze2"), row.get("ratio_to_peer"))
    scores = row.get("scores", {})
    return (
        f"`{row['name']}`",
        row["engine"],
        row["precision"],
        size,
        f"{row['cpu_ms']:.1f}",
        *("-" if ratio is None else f"{ratio:.1f}" for ratio in ratios),
        *(f"{scores[metric]:.3f}" if metric in scores else "-" for metric in ("auc", "nss", "log_likelihood_bits")),
    )


def _equal_cost(inputs: Inputs, compared: dict[str, Record]) -> list[Block]:
    header = ("snapshot", "ranked by", "GFLOP at 640x480", "ms", "SALICON val AUC", "SALICON val bits", "CAT2000 AUC")
    order = sorted(compared, key=lambda name: -compared[name]["gflop_640x480"])
    rows = tuple(_snapshot(inputs, name, compared[name]) for name in order)
    words = (
        "One pruning run each from the family's unpruned student (FastGaze after 300 steps), snapshots tuned alike "
        "(`tuebingen`, own centre bias)."
    )
    return [Text(words), Table(header, rows), Text(_gain(compared))]


def _snapshot(inputs: Inputs, name: str, facts: Record) -> tuple[str, ...]:
    means = {data: found["means"] for data, found in facts["scores"].items()}
    salicon, ms = means["salicon-val"], inputs.milliseconds(name)
    return (
        f"`{name}`",
        KINDS.get(facts["kind"], str(facts["kind"])),
        f"{facts['gflop_640x480']:.2f}",
        "-" if ms is None else f"{ms:.1f}",
        f"{salicon['auc']:.3f}",
        f"{salicon['log_likelihood_bits']:.3f}",
        f"{means['cat2000']['auc']:.3f}" if "cat2000" in means else "-",
    )


def _gain(compared: dict[str, Record]) -> str:
    """How many more bits beta* has than the others at the same mark of cost, within its family."""
    bits: dict[tuple[str, str], dict[str, float]] = {}
    for name, facts in compared.items():
        place = facts["family"], name.rsplit("-", 1)[1]
        bits.setdefault(place, {})[facts["kind"]] = facts["scores"]["salicon-val"]["means"]["log_likelihood_bits"]
    parts = [
        f"{family} at {mark} GFLOP {own['regularised'] - own[kind]:+.3f} over {KINDS[kind]}"
        for (family, mark), own in bits.items()
        for kind in ("unregularised", "frozen")
        if kind in own and "regularised" in own
    ]
    return f"Bits of β* on SALICON val: {'; '.join(parts)}." if parts else "Too few snapshots to compare."


# Random search


def _sweep(record: Record, images: Path | None) -> list[Block]:
    points = record["points"]
    if images is not None:
        images.mkdir(parents=True, exist_ok=True)
        pareto_figure([(p["gflop"], p["loss"], p["objective"]) for p in points], images / "sweep.png")
    drawn = {kind: [p for p in points if p["objective"] == kind] for kind in ("beta", "none")}
    caption = (
        f"{len(points)} trials from `fastgaze-l` (`experiments/configs/sweep.toml`), {len(drawn['none'])} of them with β = 0: "
        "pruned down to a drawn number of maps, tuned for 200 steps, validation loss on 200 images of SALICON val. "
        "Lines: Pareto fronts."
    )
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
        for p in points
    )
    ratios = cost_ratios(*([(p["loss"], p["gflop"]) for p in drawn[kind]] for kind in ("beta", "none")))
    blocks: list[Block] = [Picture("images/results/sweep.png", caption), Table(header, rows)]
    if ratios:
        blocks.append(Text(_search_words(ratios)))
    return [*blocks, Command(COMMANDS["sweep"])]


def _search_words(ratios: list[float]) -> str:
    """What beta = 0 costs at equal loss, from ``cost_ratios``."""
    times = f"{min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else f"{ratios[0]:.2f}"
    where = f"{len(ratios)} points of" if len(ratios) > 1 else "the one point of"
    return (
        f"For the same loss β = 0 needs {times} times the GFLOP of {where} the front with β > 0 in its range. "
        f"The paper reports speed-ups of up to {paper.SPEEDUP_REGULARISED}x for the same AUC."
    )


def cost_ratios(ours: list[tuple[float, float]], others: list[tuple[float, float]]) -> list[float]:
    """(loss, cost) of two searches -> cost of the others' front over each point of our front that lies in its range."""
    front = _front(others)
    if len(front) < 2:
        return []
    losses, costs = (np.array(column) for column in zip(*front, strict=True))
    inside = [(loss, cost) for loss, cost in _front(ours) if losses[0] <= loss <= losses[-1]]
    return [float(np.exp(np.interp(loss, losses, np.log(costs))) / cost) for loss, cost in inside]


def _front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """(loss, cost) that no other beats in both, by loss."""
    front: list[tuple[float, float]] = []
    for loss, cost in sorted(points):
        if not front or cost < front[-1][1]:
            front.append((loss, cost))
    return front
