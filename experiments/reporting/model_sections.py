"""Table 2, the peer, and the speed of what is bundled."""

from experiments.common import Record
from experiments.reporting import paper
from experiments.reporting.document import Block, Command, Heading, Section, Table, Text
from experiments.reporting.gaze_sections import PROTOCOL
from experiments.reporting.inputs import COMMANDS, Inputs, bundled_identity, command, machine, missing, size_words
from experiments.reporting.speeds import Key, Range, Speed, run_words, speeds
from experiments.reporting.verdicts import Claim, Verdict
from experiments.starts import LINE
from fastgaze.core.cost import flops, layers
from fastgaze.core.spec import GazeSpec, spec_for

METRICS = {"auc": "AUC", "kl": "KL", "sim": "SIM", "nss": "NSS"}
READING_METRICS = {"auc": "AUC", "nss": "NSS", "information_gain": "information gain, bits"}
REFERENCE = (480, 640)
OLD = ("deepgaze2", *LINE)
"""Models that a speed run may have timed although they are not bundled."""


# Table 2


def table2(inputs: Inputs) -> Section:
    """Our models and peers."""
    blocks: list[Block] = [Heading("Table 2: models and peers"), Heading("In the paper", 3), _paper_table()]
    blocks.append(Heading("Measured here", 3))
    models = inputs.models()
    if inputs.front is None or not models:
        blocks.append(missing("front", "our models and the peer on CAT2000"))
    else:
        blocks += _measured(inputs.front, models)
        blocks.append(Command(COMMANDS["front"]))
    blocks += [Heading("What others publish", 3), _peer_table(), Text(_cost_words())]
    blocks.append(
        Text(
            "Scores on different data sets and by different protocols cannot be compared: DeepGaze II itself has an "
            "NSS of 1.29 in one protocol and 2.34 in the other on the same images. MIT300's fixations are not public, "
            "so CAT2000 stands in for it."
        )
    )
    return blocks, [cost_claim()]


def _paper_table() -> Table:
    def cells(row: paper.Benchmark) -> tuple[str, ...]:
        gflop = "-" if row.gflop is None else f"{row.gflop:g}"
        return row.model, f"{row.auc:.0%}", f"{row.kl:.2f}", f"{row.sim:.2f}", f"{row.nss:.2f}", gflop

    header = ("model", "AUC", "KL", "SIM", "NSS", "GFLOP at 640x480")
    about = "**Published**, not measured here: MIT300, by the MIT benchmark's own (older) code."
    return Table(header, tuple(cells(row) for row in paper.TABLE2), about)


def _peer_table() -> Table:
    about = "**Published**, not measured here: MIT300 by the `tuebingen` protocol, each model with its own centre bias."
    header = ("model", "cost", "AUC", "NSS", "information gain, bits")
    return Table(header, tuple(tuple(row) for row in paper.PEERS), about)


def _measured(front: Record, models: dict[str, Record]) -> list[Block]:
    blocks: list[Block] = []
    legacy = "`mit-legacy` protocol, the older code of the paper's table, with the set's own centre bias"
    for data, words in (("cat2000", PROTOCOL), ("cat2000-legacy", legacy)):
        named = {name: facts for name, facts in models.items() if data in facts["scores"] and not facts.get("source")}
        if named:
            baselines = front["baselines"].get(data, {})
            blocks.append(_scores(baselines, named, data, words))
            blocks.append(Text(_bias_words(baselines, named, data)))
            blocks += _absent(models, data)
    return blocks


def _absent(models: dict[str, Record], data: str) -> list[Block]:
    """DeepGaze II and the peer belong into every table."""
    absent = [name for name in ("deepgaze2", "twitter-fastgaze") if data not in models.get(name, {}).get("scores", {})]
    return [missing("front", f"{' and '.join(absent)} by this protocol")] if absent else []


def _scores(baselines: Record, models: dict[str, Record], data: str, words: str) -> Table:
    images = sorted({facts["scores"][data]["images"] for facts in models.values()})
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
    about = (
        f"CAT2000, {' or '.join(map(str, images))} images, {words}; 95% intervals over images; KL in nats. Students "
        "and peer in onnxruntime, DeepGaze II's ensemble in torch, all fp32 at their working sizes; one network each."
    )
    return Table(("model", *METRICS.values(), "GFLOP at 640x480"), tuple(rows), about)


def _bias_words(baselines: Record, models: dict[str, Record], data: str) -> str:
    """Where the centre bias alone is not beaten."""
    bias = baselines.get("center_bias")
    if bias is None:
        return "The centre bias was not scored."
    parts = []
    for metric, title in METRICS.items():
        sign = -1 if metric == "kl" else 1
        means = [facts["scores"][data]["means"][metric] for facts in models.values()]
        beaten = sum(sign * mean > sign * bias[metric] for mean in means)
        if beaten < len(means):
            parts.append(f"in {title} ({bias[metric]:.3f}) it is ahead of {len(means) - beaten} of {len(means)} models")
    if not parts:
        return "The centre bias alone is behind every model in every metric."
    why = (
        " One map serves all metrics there, the density itself; the `tuebingen` protocol gives each metric the map "
        "that is best for it."
        if data.endswith("legacy") and any("KL" in part for part in parts)
        else ""
    )
    return f"Of the centre bias alone: {'; '.join(parts)}.{why}"


# The 240.6 GFLOP of the paper


def deepgaze2_gflop(readout_stride: int = 16) -> float:
    """DeepGaze II at 640x480 by the paper's formula, with its readout at a stride of 16, its own, or of 4."""
    spec = spec_for("deepgaze2")
    assert isinstance(spec, GazeSpec)
    whole = flops(spec, REFERENCE)
    readout = sum(layer.flops for layer in layers(spec, REFERENCE) if layer.name.startswith("readout"))
    return (whole - readout + readout * (16 // readout_stride) ** 2) / 1e9


def _cost_words() -> str:
    return (
        f"DeepGaze II costs {deepgaze2_gflop():.2f} GFLOP by the paper's formula when its readout works at the trunk's "
        f"stride of 16. The paper prints {paper.DEEPGAZE2_GFLOP}: that is VGG-19 with the readout at a stride of 4, "
        f"{deepgaze2_gflop(4):.2f} GFLOP; DeepGaze II as it was published upsamples its features before it reads them."
    )


def cost_claim() -> Claim:
    """The one figure of the paper that arithmetic decides."""
    found = deepgaze2_gflop(4)
    verdict = Verdict.REPRODUCED if abs(found - paper.DEEPGAZE2_GFLOP) < 0.05 else Verdict.CONTRADICTED
    words = f"{found:.2f} GFLOP with the readout at stride 4 ({deepgaze2_gflop():.2f} at stride 16); exact"
    text = "DeepGaze II costs 240.6 GFLOP at 640x480"
    return Claim(text, f"{paper.DEEPGAZE2_GFLOP} GFLOP", words, verdict, "python -m experiments.report")


# The peer


def peer(inputs: Inputs) -> Section:
    """How much of the peer's scores depends on what its file leaves open."""
    blocks: list[Block] = [Heading("The peer, Twitter's FastGaze")]
    record = inputs.read("peers")
    if record is None or "readings" not in record:
        return [*blocks, missing("readings", "other readings of the peer's file")], []
    found = record["readings"]
    settings = found["settings"]
    for name, readings in found["scores"].items():
        images = next(iter(readings.values()))["images"]
        rows = tuple(
            (reading, *(_interval(row, metric) for metric in READING_METRICS)) for reading, row in readings.items()
        )
        about = (
            f"{name}, {images} images, {PROTOCOL}; {settings['engine']}, {settings['width']} pixels wide; 95% "
            "intervals over images. The first row is the reading used everywhere else."
        )
        blocks.append(Table(("reading", *READING_METRICS.values()), rows, about))
    blocks.append(Text(_reading_words(found["scores"])))
    return [*blocks, Command(command("readings", found))], []


def _interval(row: Record, metric: str) -> str:
    low, high = row["intervals"][metric]
    return f"{row['means'][metric]:.3f} [{low:.3f}, {high:.3f}]"


def _reading_words(scores: dict[str, dict[str, Record]]) -> str:
    """The largest change of AUC by each reading, against the first."""
    parts = []
    for name, readings in scores.items():
        (_, used), *others = readings.items()
        moved = {reading: row["means"]["auc"] - used["means"]["auc"] for reading, row in others}
        shown = ", ".join(f"{reading} {change:+.3f}" for reading, change in moved.items())
        parts.append(f"{name} {shown}")
    return (
        f"Change of AUC: {'; '.join(parts)}. The file's last layer is a blur, whose border it does not describe; "
        "who compares with the peer should know how much depends on it."
    )


# Speed


def speed(inputs: Inputs) -> Section:
    """By engine and precision: what is bundled, and the paper's line."""
    blocks: list[Block] = [Heading("Speed by engine")]
    record = inputs.read("speed")
    if record is None:
        return [*blocks, missing("speed", "speed by engine")], []
    last = record["runs"][-1]
    picture = size_words(last["settings"]["picture"])
    about = (
        f"A {picture} RGB array in, a {picture} log density out, one thread; median CPU milliseconds and range over "
        f"the runs that timed the model, of {run_words(record)}; ratios formed within a round. "
        f"{machine(last['machine'])}."
    )
    rows = list(speeds(record).values())
    names = {row.key.name for row in rows}
    bundled = {name for name in names if any(r.identity and r.identity == bundled_identity(name) for r in rows)}
    parts = {
        "Bundled models": [row for row in rows if row.key.name in bundled],
        "The paper's line, which is no longer bundled": [row for row in rows if row.key.name.split(".")[0] in OLD],
    }
    same = _same_engine(inputs)
    for title, part in parts.items():
        if part:
            blocks += [Heading(title, 3), *_speed_tables(part, same, picture, about)]
    return [*blocks, Command(command("speed", last))], []


def _speed_tables(rows: list[Speed], same: dict[str, Range], picture: str, about: str) -> list[Block]:
    own = [row for row in rows if row.key.own_size or row.key.name == "deepgaze2"]
    fed = [row for row in rows if not row.key.own_size and row.key.name != "deepgaze2"]
    header = ("model", "engine", "precision", "network input", "CPU ms", *_RATIOS, "x peer")
    less = [*header[:5], header[6]]
    tables: list[Block] = []
    if own:
        tables.append(Table(header, tuple(_speed_row(row, same) for row in own), f"At the scored size. {about}"))
    if fed:
        cells = tuple((*(row := _speed_row(each, {}))[:5], row[6]) for each in fed)
        tables.append(Table(tuple(less), cells, f"Networks fed {picture}. {about}"))
    return tables


_RATIOS = ("x DeepGaze II, same engine, each at its scored size", "x DeepGaze II in eager torch at 512x384")


def _same_engine(inputs: Inputs) -> dict[str, Range]:
    """Ratios of the front's timing, for models of runs that did not time DeepGaze II in onnxruntime."""
    found = {}
    for name, facts in inputs.models().items():
        times = facts.get("times", {}).get("own size", {})
        if "ratio_same_engine" in times:
            low, high = times.get("ratio_same_engine_spread", [times["ratio_same_engine"]] * 2)
            found[name] = Range(times["ratio_same_engine"], low, high)
    return found


def _speed_row(row: Speed, same: dict[str, Range]) -> tuple[str, ...]:
    key: Key = row.key
    in_engine = key.engine == "onnxruntime" and key.precision == "fp32" and key.own_size
    ratio = row.same_engine or (same.get(key.name) if in_engine else None)
    return (
        f"`{key.name}`",
        key.engine,
        key.precision,
        size_words(row.network_size),
        row.cpu_ms.shown(1),
        "-" if ratio is None else ratio.shown(1 if ratio.median < 20 else 0),
        "-" if row.to_eager is None else row.to_eager.shown(1 if row.to_eager.median < 20 else 0),
        "-" if row.to_peer is None else row.to_peer.shown(1),
    )
