"""Figures 2 and 4: speed against quality, students against their teacher, saliency maps."""

from pathlib import Path

from experiments.common import Record
from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Picture, Table, Text
from experiments.reporting.drawings import Point
from experiments.reporting.inputs import COMMANDS, Inputs, command, machine, missing, size_words
from experiments.reporting.pruning_sections import Section
from experiments.reporting.verdicts import (
    Claim,
    Estimate,
    above,
    all_of,
    below,
    joined,
    not_measured,
    paired,
    unpaired,
)

SHOWN = {"auc": "AUC", "log_likelihood_bits": "log-likelihood, bits", "nss": "NSS", "sim": "SIM"}
DIGITS = {"auc": 4, "log_likelihood_bits": 3, "nss": 3, "sim": 4}
PROTOCOL = "`tuebingen` protocol, the set's own centre bias without the image at hand"
TEACHER, LARGEST, DENSE, HEAVIEST = "deepgaze2", "fastgaze-l", "densegaze-m", "fastgaze-xs"
ROUGHLY = 0.8  # "roughly 10x" is met from 8x on
SAME_AUC = 0.002  # of AUC that count as the same


# Figure 2


def figure2(inputs: Inputs, images: Path | None) -> Section:
    """Speed on one core against four metrics on CAT2000."""
    blocks: list[Block] = [Heading("Figure 2: speed against quality on CAT2000")]
    blocks.append(Text(f"In the paper ({paper.MACHINE}): {paper.FIGURE2}."))
    claims = quality_claims(inputs)
    models = inputs.models()
    if not models:
        return [*blocks, missing("front", "scores of our models on CAT2000")], claims
    if inputs.timed:
        points = front_points(models)
        if images is not None:
            drawings.figure2(points, images / "figure2.png")
        blocks += [Picture("images/results/figure2.png", _caption(inputs, models)), _summary(points, inputs)]
    else:
        blocks.append(missing("times", "their speed, and with it the figure"))
    blocks += [_against_teacher(inputs, models), Text(_teacher_words(inputs, models)), _every(inputs, models)]
    return [*blocks, Command(f"{COMMANDS['front']}\n{COMMANDS['times']}"), Text(_CONDITIONS)], claims


_CONDITIONS = (
    "Conditions that differ from the paper's: it trains on MIT1003, here OSIE and EyeCrowd stand in for it; its times "
    "are those of PyTorch on another processor, so only ratios compare. The unpruned FastGaze is `fastgaze-l` grown "
    "back to full width and trained further (`experiments/configs/unpruned.toml`), and the random search starts from "
    "`fastgaze-l`, because a step of the unpruned network takes eight times as long. `densegaze-m` taught the shipped "
    "FastGazes."
)


def front_points(models: dict[str, Record]) -> list[Point]:
    """Students and the peer in onnxruntime; DeepGaze II in eager torch and, as a second point, in onnxruntime."""
    points = []
    for name, facts in models.items():
        score, times = facts["scores"]["cat2000"], facts.get("times", {})
        engines = {"onnxruntime": facts["kind"]}
        if facts["kind"] == "teacher":
            engines = {"torch": "teacher", "onnxruntime": "teacher, onnxruntime"}
        for engine, kind in engines.items():
            if engine in times:
                ms = times[engine]["cpu_ms"]
                points.append(Point(name, ms, score["means"], score["intervals"], facts["family"], kind))
    return points


def _images(models: dict[str, Record], data: str = "cat2000") -> str:
    counts = sorted({facts["scores"][data]["images"] for facts in models.values() if data in facts["scores"]})
    return " or ".join(map(str, counts))


def timing_words(inputs: Inputs) -> str:
    """How the models of the front were timed, from the record."""
    assert inputs.front is not None
    timing = inputs.front["timing"]
    return (
        f"median CPU milliseconds of network and tail for a {size_words(timing['size'])} picture, "
        f"{timing['precision']}, {timing['threads']} thread, {timing['rounds']} interleaved rounds; "
        f"{machine(timing['machine'])}"
    )


def _score_words(models: dict[str, Record]) -> str:
    """Data, images, engine and sizes of the scores."""
    engines = sorted({facts["scores"]["cat2000"].get("engine", "onnxruntime, fp32") for facts in models.values()})
    pixels = sorted({facts["pixels"] for facts in models.values()})
    return (
        f"CAT2000 (training set, never trained on), {_images(models)} images, {PROTOCOL}; {' or '.join(engines)}, "
        f"at each model's working size ({pixels[0]:,} to {pixels[-1]:,} pixels); one network each."
    )


def _caption(inputs: Inputs, models: dict[str, Record]) -> str:
    return (
        f"Quality: {_score_words(models)} Bars: 95% intervals over images; points share their images, so the "
        f"difference of two is known better than either. Time: {timing_words(inputs)}; every network fed that size, "
        "in onnxruntime, DeepGaze II also in eager torch. Lines: Pareto fronts, broad for finished models, dashed "
        "for β = 0. Circles are trials of the random search (FastGaze) and snapshots of comparison runs (DenseGaze); "
        "finished models were tuned longer, so compare circles with circles."
    )


def _every(inputs: Inputs, models: dict[str, Record]) -> Table:
    """Every point, with both ratios to DeepGaze II."""
    about = f"Every point. {_score_words(models)}"
    if inputs.timed:
        about += f" Time: {timing_words(inputs)}; in onnxruntime at 512x384, DeepGaze II in torch."
    header = ("model", "how pruned", "GFLOP at 640x480", "ms", *RATIO_HEADER, *SHOWN.values())
    return Table(header, tuple(_row(name, facts) for name, facts in models.items()), about)


RATIO_HEADER = ("x DeepGaze II, same engine, each at its scored size", "x DeepGaze II in eager torch at 512x384")


def ratios(facts: Record) -> tuple[str, str]:
    """Of one model: to DeepGaze II in the same engine, each at its scored size; and to DeepGaze II in eager torch."""
    times = facts.get("times", {}).get("own size", {})
    return tuple(  # type: ignore[return-value]
        _times_words(times.get(key)) for key in ("ratio_same_engine", "ratio_to_deepgaze2")
    )


def _times_words(ratio: float | None) -> str:
    """With as many digits as it is worth."""
    if ratio is None:
        return "-"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}"


def _row(name: str, facts: Record) -> tuple[str, ...]:
    engine = "torch" if facts["kind"] == "teacher" else "onnxruntime"
    time = facts.get("times", {}).get(engine, {}).get("cpu_ms")
    cells = (f"`{name}`", facts["kind"], f"{facts['gflop_640x480']:.2f}", ms_words(time), *ratios(facts))
    means = facts["scores"]["cat2000"]["means"]
    return (*cells, *(f"{means[metric]:.3f}" for metric in SHOWN))


def ms_words(value: float | None) -> str:
    """Milliseconds with as many digits as they are worth."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _summary(points: list[Point], inputs: Inputs) -> Table:
    """For each metric: DeepGaze II, the best regularised student of each family, and the fastest that is no worse."""
    header = ("metric", "DeepGaze II", "best FastGaze", "best DenseGaze", "fastest no worse", *RATIO_HEADER, "paper")
    about = (
        "Best of the regularised or shipped networks of each family; the last columns are of the fastest student whose "
        f"mean is not below DeepGaze II's. {_score_words(inputs.models())}"
    )
    return Table(header, tuple(_metric_row(metric, points, inputs.models()) for metric in SHOWN), about)


def _metric_row(metric: str, points: list[Point], models: dict[str, Record]) -> tuple[str, ...]:
    teacher = next((p.means[metric] for p in points if p.kind == "teacher"), None)
    best = [_best_regularised(metric, points, family) for family in ("FastGaze", "DenseGaze")]
    cells = [SHOWN[metric], "-" if teacher is None else f"{teacher:.3f}"]
    cells += ["-" if p is None else f"{p.means[metric]:.3f} (`{p.name}`)" for p in best]
    fastest = fastest_no_worse(metric, points)
    printed = {"auc": "10x (DenseGaze)", "log_likelihood_bits": "more than 75x"}.get(metric, "-")
    if fastest is None:
        return (*cells, "none", "-", "-", printed)
    return (*cells, f"`{fastest.name}`", *ratios(models[fastest.name]), printed)


def _best_regularised(metric: str, points: list[Point], family: str) -> Point | None:
    own = [p for p in points if p.family == family and p.kind in ("regularised", "shipped")]
    return max(own, key=lambda p: p.means[metric], default=None)


def fastest_no_worse(metric: str, points: list[Point]) -> Point | None:
    """Of our students that were pruned with a cost."""
    teacher = next((p.means[metric] for p in points if p.kind == "teacher"), None)
    if teacher is None:
        return None
    able = [p for p in points if p.kind in ("regularised", "shipped") and p.means[metric] >= teacher]
    return min(able, key=lambda p: p.ms, default=None)


# Students against their teacher


def difference(inputs: Inputs, name: str, metric: str, other: str = TEACHER) -> Estimate | None:
    """A model minus DeepGaze II on CAT2000: paired over images where both kept theirs, else as if independent."""
    models = inputs.models()
    if name not in models or other not in models:
        return None
    rows = [inputs.rows(model, "cat2000") for model in (name, other)]
    if rows[0] is not None and rows[1] is not None and rows[0]["name"] == rows[1]["name"]:
        return paired(rows[0][metric], rows[1][metric])
    ours, others = (_estimate(models[model]["scores"]["cat2000"], metric) for model in (name, other))
    return unpaired(ours, others)


def _estimate(score: Record, metric: str) -> Estimate:
    return Estimate(score["means"][metric], *score["intervals"][metric])


def is_paired(inputs: Inputs) -> bool:
    """Whether DeepGaze II's scores of every image are there."""
    return inputs.rows(TEACHER, "cat2000") is not None


def _pairing_words(inputs: Inputs) -> str:
    if is_paired(inputs):
        return "paired bootstrap over images"
    return (
        "intervals of two independent means, since DeepGaze II's scores of single images were not kept; they are far "
        "wider than paired ones would be"
    )


def _shipped(models: dict[str, Record]) -> list[str]:
    return [name for name, facts in models.items() if facts["kind"] in ("shipped", "unpruned", "peer")]


def _against_teacher(inputs: Inputs, models: dict[str, Record]) -> Table:
    rows = []
    for name in _shipped(models):
        found = [(metric, difference(inputs, name, metric)) for metric in SHOWN]
        cells = ("-" if each is None else each.shown(DIGITS[metric], sign=True) for metric, each in found)
        rows.append((f"`{name}`", *cells))
    about = f"Students minus DeepGaze II, 95%: {_pairing_words(inputs)}. {_score_words(models)}"
    return Table(("model", *SHOWN.values()), tuple(rows), about)


def _teacher_words(inputs: Inputs, models: dict[str, Record]) -> str:
    """Who is ahead of the teacher beyond doubt, and who behind."""
    parts = []
    for metric, title in SHOWN.items():
        found = {name: difference(inputs, name, metric) for name in _shipped(models)}
        ahead = [f"`{name}`" for name, each in found.items() if each is not None and each.bounded and each.low > 0]
        behind = [f"`{name}`" for name, each in found.items() if each is not None and each.bounded and each.high < 0]
        words = [f"{joined(names)} {'are' if len(names) > 1 else 'is'} {how}" for names, how in
                 ((ahead, "ahead of DeepGaze II"), (behind, "behind DeepGaze II")) if names]  # fmt: skip
        parts.append(f"{title}: {', '.join(words) or 'nobody differs from DeepGaze II beyond the interval'}")
    return "; ".join(parts) + "."


def quality_claims(inputs: Inputs) -> list[Claim]:
    """The paper's sentences on Figure 2."""
    return [
        _metric_claim(
            inputs,
            "DenseGaze is ahead of DeepGaze II on CAT2000 in AUC, log-likelihood, NSS and SIM",
            DENSE,
            tuple(SHOWN),
        ),
        _metric_claim(
            inputs,
            "FastGaze is ahead of DeepGaze II on CAT2000 in log-likelihood, NSS and SIM",
            LARGEST,
            ("log_likelihood_bits", "nss", "sim"),
        ),
        _metric_claim(
            inputs, "FastGaze is slightly behind DeepGaze II on CAT2000 in AUC", LARGEST, ("auc",), behind=True
        ),
        _speed_claim(
            inputs,
            "About 10 times as fast at the same AUC (DenseGaze)",
            "roughly 10x",
            (DENSE, "auc", -SAME_AUC, ROUGHLY * paper.SPEEDUP_SAME_AUC),
        ),
        _speed_claim(
            inputs,
            "More than 75 times as fast at a better log-likelihood (the most heavily pruned network)",
            "more than 75x",
            (HEAVIEST, "log_likelihood_bits", 0.0, paper.SPEEDUP_SAME_LIKELIHOOD),
        ),
    ]


def _metric_claim(inputs: Inputs, text: str, name: str, metrics: tuple[str, ...], behind: bool = False) -> Claim:
    found = {metric: difference(inputs, name, metric) for metric in metrics}
    known = {metric: each for metric, each in found.items() if each is not None}
    if len(known) < len(found):
        return not_measured(text, "Figure 2, no number", COMMANDS["front"])
    shown = "; ".join(f"{SHOWN[m]} {each.shown(DIGITS[m], sign=True)}" for m, each in known.items())
    verdict = all_of([below(each) if behind else above(each) for each in known.values()])
    note = "" if is_paired(inputs) else " (not paired)"
    return Claim(text, "Figure 2, no number", f"`{name}` minus DeepGaze II: {shown}{note}", verdict, COMMANDS["front"])


def _speed_claim(inputs: Inputs, text: str, printed: str, asked: tuple[str, str, float, float]) -> Claim:
    """``asked``: model, metric, how far it must be above DeepGaze II, and how many times as fast."""
    name, metric, margin, times = asked
    line = f"{COMMANDS['front']} && {COMMANDS['times']}"
    gap, speed = difference(inputs, name, metric), _speedup(inputs, name)
    if gap is None or speed is None:
        return not_measured(text, printed, line)
    eager = inputs.models()[name]["times"]["own size"].get("ratio_to_deepgaze2")
    words = (
        f"`{name}`: {SHOWN[metric]} {gap.shown(DIGITS[metric], sign=True)}; {speed.shown(1)} times in the same engine, "
        f"each at its scored size ({eager:.0f} times DeepGaze II in eager torch)"
    )
    return Claim(text, printed, words, all_of([above(gap, margin), above(speed, times)]), line)


def _speedup(inputs: Inputs, name: str) -> Estimate | None:
    """In the same engine, each at its scored size; the spread is that over rounds."""
    times = inputs.models().get(name, {}).get("times", {}).get("own size", {})
    if "ratio_same_engine" not in times:
        return None
    return Estimate(times["ratio_same_engine"], *times.get("ratio_same_engine_spread", ()))


# Figure 4


def figure4(inputs: Inputs, images: Path | None) -> Section:
    """Example saliency maps."""
    blocks: list[Block] = [Heading("Figure 4: example saliency maps")]
    blocks.append(Text(f"In the paper: {paper.FIGURE4}."))
    record = inputs.read("maps")
    names = [] if record is None else [name for name in record["figures"]["maps"] if name in record["models"]]
    if record is None or not names:
        return [*blocks, missing("maps", "maps of our models")], []
    if images is not None:
        photos = [images / "maps" / f"photo-{picture}.jpg" for picture in record["figures"]["pictures"]]
        rows = [(_short(inputs, record, name), _files(record, name, images)) for name in names]
        drawings.figure4(photos, rows, images / "figure4.jpg")
    blocks += [Picture("images/results/figure4.jpg", _maps_caption(record)), _row_by_row(inputs, record, names)]
    absent = [name for name in record["figures"]["maps"] if name not in names]
    if absent:
        blocks.append(missing("maps", f"maps of {joined(absent)}, whose files were not there"))
    return [*blocks, Command(command("maps", record))], []


def _maps_caption(record: Record) -> str:
    rule = record["rule"]
    low, high = rule["percentiles"]
    return (
        f"Fixation probabilities with gamma {rule['gamma']}, black and white at the {low:g}% and {high:g}% percentiles "
        "of each map, as in the paper (which does not give its gamma). All with the centre bias of "
        f"`{rule['center_bias']}`, at each model's working size. DeepGaze II: the map of the ensemble, the time of one "
        "member. The paper's pictures are of CAT2000, which may not be redistributed; these photographs may, and "
        "nobody's fixations on them were recorded."
    )


def _files(record: Record, name: str, images: Path) -> list[Path]:
    files = record["models"][name]["files"]
    return [images / "maps" / files[picture] for picture in record["figures"]["pictures"]]


def _short(inputs: Inputs, record: Record, name: str) -> str:
    time = inputs.milliseconds(name, "torch" if record["models"][name]["kind"] == "teacher" else "onnxruntime")
    return name if time is None else f"{name}\n({ms_words(time)} ms)"


def _row_by_row(inputs: Inputs, record: Record, names: list[str]) -> Table:
    """Times beside the paper's, row by row of its figure."""
    rows = []
    models = inputs.models()
    for (title, printed), name in zip(paper.FIGURE4_MS.items(), record["figures"]["maps"], strict=False):
        engine = "torch" if name in names and record["models"][name]["kind"] == "teacher" else "onnxruntime"
        both = ratios(models[name]) if name in models else ("-", "-")
        time = ms_words(inputs.milliseconds(name, engine))
        rows.append((title, f"{printed}", f"{paper.DEEPGAZE2_MS / printed:.1f}", f"`{name}`", time, *both))
    header = ("row in the paper", "ms, paper", "speed-up, paper", "row of ours", "ms, ours", *RATIO_HEADER)
    about = "Speed, row by row. "
    about += f"Ours: {timing_words(inputs)}; onnxruntime, DeepGaze II in torch." if inputs.timed else "Not timed yet."
    return Table(header, tuple(rows), about)
