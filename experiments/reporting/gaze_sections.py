"""Figures 2 to 4: speed against quality, widths, saliency maps."""

from itertools import pairwise
from pathlib import Path

from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Picture, Table, Text
from experiments.reporting.drawings import Point
from experiments.reporting.inputs import COMMANDS, Inputs, Record, machine, missing

SHOWN = {"auc": "AUC", "log_likelihood_bits": "log-likelihood, bits", "nss": "NSS", "sim": "SIM"}
CLAIMS = {"auc": "10x (DenseGaze)", "log_likelihood_bits": "more than 75x", "nss": "", "sim": ""}
PROTOCOL = "`tuebingen` protocol, the set's own centre bias without the image at hand"


# Figure 2


def figure2(inputs: Inputs, images: Path | None) -> list[Block]:
    """Speed on one core against four metrics on CAT2000."""
    blocks: list[Block] = [Heading("Figure 2: speed against quality on CAT2000")]
    blocks.append(Text(f"In the paper ({paper.MACHINE}): {paper.FIGURE2}."))
    models = inputs.models()
    if not models:
        return [*blocks, missing("front", "scores of our models on CAT2000")]
    if not inputs.timed:
        return [*blocks, _plain(models), missing("times", "their speed, and with it the figure")]
    points = front_points(models)
    if images is not None:
        drawings.figure2(points, images / "figure2.png")
    blocks += [Picture("images/results/figure2.png", _caption(inputs, models)), _summary(points, models)]
    blocks.append(Text("Every point:"))
    blocks += [_plain(models), Command(f"{COMMANDS['front']}\n{COMMANDS['times']}")]
    return [*blocks, *inputs.difference("figure2", _words(points, models))]


def front_points(models: dict[str, Record]) -> list[Point]:
    """Students and the peer in onnxruntime; DeepGaze II in eager torch and, as a second point, in onnxruntime."""
    points = []
    for name, facts in models.items():
        means, times = facts["scores"]["cat2000"]["means"], facts.get("times", {})
        engines = {"onnxruntime": facts["kind"]}
        if facts["kind"] == "teacher":
            engines = {"torch": "teacher", "onnxruntime": "teacher, onnxruntime"}
        for engine, kind in engines.items():
            if engine in times:
                points.append(Point(name, times[engine]["cpu_ms"], means, facts["family"], kind))
    return points


def _caption(inputs: Inputs, models: dict[str, Record]) -> str:
    assert inputs.front is not None
    timing = inputs.front["timing"]
    images = sorted({facts["scores"]["cat2000"]["images"] for facts in models.values()})
    return (
        f"Quality on {' or '.join(map(str, images))} images of CAT2000 (training set, never trained on), {PROTOCOL}, "
        f"at the models' working size (240x320 unless said). Time: median CPU milliseconds of network and tail for one "
        f"384x512 input, one thread, {timing['rounds']} interleaved rounds; onnxruntime fp32 for students and peer. "
        f"{machine(timing['machine'])}. Lines: Pareto fronts, broad for the shipped models, "
        "dashed for β = 0. Circles are trials of the random search (FastGaze) and snapshots of comparison runs "
        "(DenseGaze), tuned alike; the shipped models were tuned longer, so compare circles with circles."
    )


def _plain(models: dict[str, Record]) -> Table:
    header = ("model", "how pruned", "GFLOP at 640x480", "ms", "x DeepGaze II", *SHOWN.values())
    return Table(header, tuple(_row(name, facts) for name, facts in models.items()))


def _row(name: str, facts: Record) -> tuple[str, ...]:
    engine = "torch" if facts["kind"] == "teacher" else "onnxruntime"
    time = facts.get("times", {}).get(engine, {})
    ratio = f"{time['ratio_to_deepgaze2']:.1f}" if "ratio_to_deepgaze2" in time else "-"
    cells = (f"`{name}`", facts["kind"], f"{facts['gflop_640x480']:.2f}", _ms(time.get("cpu_ms")), ratio)
    means = facts["scores"]["cat2000"]["means"]
    return (*cells, *(f"{means[metric]:.3f}" for metric in SHOWN))


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _summary(points: list[Point], models: dict[str, Record]) -> Table:
    """For each metric: DeepGaze II, the best of each family, and the fastest that is no worse than DeepGaze II."""
    left = ("metric", "DeepGaze II", "best FastGaze", "best DenseGaze", "fastest no worse than DeepGaze II")
    right = ("x DeepGaze II, same engine", "x DeepGaze II in eager torch", "paper")
    return Table((*left, *right), tuple(_metric_row(metric, points, models) for metric in SHOWN))


def _metric_row(metric: str, points: list[Point], models: dict[str, Record]) -> tuple[str, ...]:
    teacher = next((p.means[metric] for p in points if p.kind == "teacher"), None)
    best = [
        max((p.means[metric] for p in points if p.family == family), default=None)
        for family in ("FastGaze", "DenseGaze")
    ]
    cells = [SHOWN[metric], *("-" if value is None else f"{value:.3f}" for value in (teacher, *best))]
    fastest = fastest_no_worse(metric, points)
    if fastest is None:
        return (*cells, "none", "-", "-", CLAIMS[metric])
    times = models[fastest.name]["times"]["onnxruntime"]
    ratios = (times.get("ratio_same_engine"), times.get("ratio_to_deepgaze2"))
    shown = ("-" if ratio is None else f"{ratio:.0f}x" for ratio in ratios)
    return (*cells, f"`{fastest.name}`", *shown, CLAIMS[metric])


def fastest_no_worse(metric: str, points: list[Point]) -> Point | None:
    """Of our students."""
    teacher = next((p.means[metric] for p in points if p.kind == "teacher"), None)
    if teacher is None:
        return None
    able = [p for p in points if p.family in ("FastGaze", "DenseGaze") and p.means[metric] >= teacher]
    return min(able, key=lambda p: p.ms, default=None)


def _words(points: list[Point], models: dict[str, Record]) -> str:
    ahead = [SHOWN[metric] for metric in SHOWN if fastest_no_worse(metric, points) is not None]
    text = f"At least one student is level with our DeepGaze II or ahead of it in {', '.join(ahead) or 'no metric'}."
    found = fastest_no_worse("auc", points)
    ratio = None if found is None else models[found.name]["times"]["onnxruntime"].get("ratio_same_engine")
    if found is not None and ratio is not None:
        text += (
            f" For the same AUC `{found.name}` is {ratio:.0f} times as fast as DeepGaze II in the same engine; the "
            f"paper says roughly {paper.SPEEDUP_SAME_AUC} times."
        )
    return text


# Figure 3


def figure3(inputs: Inputs, images: Path | None) -> list[Block]:
    """Widths before and after pruning."""
    blocks: list[Block] = [Heading("Figure 3: architectures before and after pruning")]
    blocks.append(Text(f"In the paper: {paper.FIGURE3}."))
    record = inputs.read("maps")
    if record is None:
        return [*blocks, missing("maps", "widths and maps of our models")]
    for family, title in (("fastgaze", "FastGaze"), ("densegaze", "DenseGaze")):
        names = [name for name in record["figures"][family] if name in record["models"]]
        if not names:
            blocks.append(missing("maps", f"{title}, since no checkpoint of it was there"))
            continue
        path = f"images/results/figure3-{family}.png"
        if images is not None:
            _draw_architectures(inputs, record, names, images, Path(path).name)
        shown = "; ".join(label(inputs, record, name) for name in names)
        blocks.append(Picture(path, f"{title}, maps in each layer: {shown}. {_time_words(inputs)}"))
        blocks.append(_widths(inputs, record, names))
    return [*blocks, Command(COMMANDS["maps"]), *inputs.difference("figure3", _alternation(record))]


def _draw_architectures(inputs: Inputs, record: Record, names: list[str], images: Path, file: str) -> None:
    first = record["figures"]["pictures"][0]
    rows = []
    for name in names:
        facts = record["models"][name]
        layers = [(layer, maps) for layer, maps in facts["layers"]]
        rows.append(drawings.Architecture(label(inputs, record, name), layers, images / "maps" / facts["files"][first]))
    drawings.figure3(rows, images / "maps" / f"photo-{first}.jpg", images / file)


def label(inputs: Inputs, record: Record, name: str) -> str:
    """Name, cost and time of a model in a line."""
    facts = record["models"][name]
    time = inputs.milliseconds(name, "torch" if facts["kind"] == "teacher" else "onnxruntime")
    shown = "not timed yet" if time is None else f"{_ms(time)} ms"
    return f"{name}, {facts['gflop_640x480']:.2f} GFLOP, {shown}"


def _time_words(inputs: Inputs) -> str:
    if not inputs.timed:
        return f"Times: run `{COMMANDS['times']}`."
    return "GFLOP at 640x480; CPU ms of one thread of onnxruntime at 384x512, network and tail (machine of Figure 2)."


def _widths(inputs: Inputs, record: Record, names: list[str]) -> Table:
    rows = []
    for name in names:
        facts = record["models"][name]
        widths = [str(maps) for _, maps in facts["layers"]]
        shown = " ".join(widths) if len(widths) < 30 else f"{len(widths)} convolutions"
        ms = _ms(inputs.milliseconds(name))
        rows.append((f"`{name}`", shown, str(facts["maps"]), f"{facts['parameters']:,}", ms))
    return Table(("model", "maps of every layer", "maps", "parameters", "ms"), tuple(rows))


def _alternation(record: Record) -> str:
    """How uneven neighbouring layers of the smallest FastGaze are, against the unpruned one."""
    names = [name for name in record["figures"]["fastgaze"] if name in record["models"]]
    if len(names) < 2:
        return ""
    ratios = []
    for name in (names[0], names[-1]):
        widths = [maps for layer, maps in record["models"][name]["layers"] if layer.startswith("conv")]
        ratios.append(max(max(a, b) / min(a, b) for a, b in pairwise(widths)))
    return (
        f"Neighbouring convolutions of `{names[-1]}` differ at most {ratios[1]:.1f}-fold in width, of the unpruned "
        f"network {ratios[0]:.1f}-fold: the paper's alternation of wide and narrow layers would show as a large factor."
    )


# Figure 4


def figure4(inputs: Inputs, images: Path | None) -> list[Block]:
    """Example saliency maps."""
    blocks: list[Block] = [Heading("Figure 4: example saliency maps")]
    blocks.append(Text(f"In the paper: {paper.FIGURE4}."))
    record = inputs.read("maps")
    names = [] if record is None else [name for name in record["figures"]["maps"] if name in record["models"]]
    if record is None or not names:
        return [*blocks, missing("maps", "maps of our models")]
    if images is not None:
        photos = [images / "maps" / f"photo-{picture}.jpg" for picture in record["figures"]["pictures"]]
        rows = [(_short(inputs, record, name), _files(record, name, images)) for name in names]
        drawings.figure4(photos, rows, images / "figure4.jpg")
    rule = record["rule"]
    low, high = rule["percentiles"]
    caption = (
        f"Fixation probabilities with gamma {rule['gamma']}, black and white at the {low:g}% and {high:g}% percentiles "
        f"of each map, as in the paper (which does not give its gamma). All with the centre bias of "
        f"{rule['center_bias']}. DeepGaze II: the ensemble's map, the time of one member in eager torch. "
        f"{_time_words(inputs)} The photographs are free to redistribute (examples/README.md); nobody's fixations "
        "on them were recorded."
    )
    blocks += [Picture("images/results/figure4.jpg", caption), _against(inputs, record, names)]
    absent = [name for name in record["figures"]["maps"] if name not in names]
    if absent:
        blocks.append(missing("maps", f"maps of {', '.join(absent)}, whose checkpoints were not there"))
    return [*blocks, Command(COMMANDS["maps"]), *inputs.difference("figure4")]


def _files(record: Record, name: str, images: Path) -> list[Path]:
    files = record["models"][name]["files"]
    return [images / "maps" / files[picture] for picture in record["figures"]["pictures"]]


def _short(inputs: Inputs, record: Record, name: str) -> str:
    time = inputs.milliseconds(name, "torch" if record["models"][name]["kind"] == "teacher" else "onnxruntime")
    return name if time is None else f"{name}\n({_ms(time)} ms)"


def _against(inputs: Inputs, record: Record, names: list[str]) -> Table:
    """Times beside the paper's, row by row of its figure."""
    rows = []
    teacher = inputs.milliseconds(names[0], "torch")
    for (title, printed), name in zip(paper.FIGURE4_MS.items(), record["figures"]["maps"], strict=False):
        engine = "torch" if name in names and record["models"][name]["kind"] == "teacher" else "onnxruntime"
        time = inputs.milliseconds(name, engine)
        ratio = "-" if time is None or teacher is None else f"{teacher / time:.0f}x"
        rows.append((title, f"{printed} ms", f"{paper.DEEPGAZE2_MS / printed:.1f}x", f"`{name}`", _ms(time), ratio))
    header = ("row in the paper", "ms, paper", "speed-up, paper", "row of ours", "ms, ours", "speed-up, ours")
    return Table(header, tuple(rows))
