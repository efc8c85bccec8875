"""Figure 2: speed against quality on CAT2000."""

from pathlib import Path

from experiments.common import Record
from experiments.reporting import drawings
from experiments.reporting.document import Block, Picture, Table
from experiments.reporting.drawings import Point
from experiments.reporting.inputs import Inputs, machine, missing, size_words
from experiments.reporting.verdicts import joined

SHOWN = {"auc": "AUC", "log_likelihood_bits": "log-likelihood, bits", "nss": "NSS", "sim": "SIM"}
PROTOCOL = "`tuebingen` protocol, the set's own centre bias without the image at hand"


def figure2(inputs: Inputs, images: Path | None) -> list[Block]:
    """Speed on one core against four metrics on CAT2000, if the models were timed."""
    models = inputs.models()
    if not inputs.timed:
        return [missing("times", "their speed, and with it the figure")]
    points = front_points(inputs)
    if images is not None:
        drawings.figure2(points, images / "figure2.png")
    untimed = [name for name, facts in models.items() if "times" not in facts]
    words = f"speed of {len(untimed)} networks of experiments, which the figure therefore lacks"
    lacking: list[Block] = [missing("times", words)] if untimed else []
    picture = Picture("images/results/figure2.png", _caption(inputs, models))
    return [*lacking, picture, _summary(points, inputs)]


CONDITIONS = (
    "Conditions that differ from the paper's: it trains on MIT1003, here OSIE and EyeCrowd stand in for it; its times "
    "are those of PyTorch on another processor, so only ratios compare. The unpruned FastGaze is `fastgaze-l` grown "
    "back to full width and trained further (`experiments/configs/unpruned.toml`), and the random search starts from "
    "`fastgaze-l`, because a step of the unpruned network takes eight times as long. `densegaze-m` taught `fastgaze-*`."
)


def front_points(inputs: Inputs) -> list[Point]:
    """Students and the peer in onnxruntime; DeepGaze II in eager torch and, as a second point, in onnxruntime."""
    points = []
    for name, facts in inputs.models().items():
        score = facts["scores"]["cat2000"]
        engines = {"onnxruntime": facts["kind"]}
        if facts["kind"] == "teacher":
            engines = {"torch": "teacher", "onnxruntime": "teacher, onnxruntime"}
        for engine, kind in engines.items():
            ms = _comparable_ms(inputs, name, facts, engine)
            if ms is not None:
                points.append(Point(name, ms, score["means"], score["intervals"], facts["family"], kind))
    return points


def _comparable_ms(inputs: Inputs, name: str, facts: Record, engine: str) -> float | None:
    """Milliseconds; of a model of an earlier session what its ratio to DeepGaze II there would make of them now."""
    if inputs.in_session(name):
        return inputs.milliseconds(name, engine)
    ratio = facts.get("times", {}).get(engine, {}).get("ratio_to_deepgaze2")
    teacher = inputs.milliseconds("deepgaze2", "torch")
    return None if ratio is None or teacher is None else teacher / float(ratio)


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


def score_words(models: dict[str, Record]) -> str:
    """Data, images, engine and sizes of the scores."""
    engines = sorted({facts["scores"]["cat2000"].get("engine", "onnxruntime, fp32") for facts in models.values()})
    pixels = sorted({facts["pixels"] for facts in models.values()})
    sizes = f"{pixels[0]:,}" if len(pixels) == 1 else f"{pixels[0]:,} to {pixels[-1]:,}"
    return (
        f"CAT2000 (training set, never trained on), {_images(models)} images, {PROTOCOL}; {' or '.join(engines)}, "
        f"at each model's working size ({sizes} pixels); one network each."
    )


def _caption(inputs: Inputs, models: dict[str, Record]) -> str:
    return (
        f"Quality: {score_words(models)} Bars: 95% intervals over images; points share their images, so the "
        f"difference of two is known better than either. Time: {timing_words(inputs)}; every network fed that size, "
        f"in onnxruntime, DeepGaze II also in eager torch.{earlier_words(inputs, models)} Lines: Pareto fronts, broad "
        "for finished models, dashed for β = 0. Circles are trials of the random search (FastGaze) and snapshots of "
        "comparison runs (DenseGaze); finished models were tuned longer, so compare circles with circles."
    )


def earlier_words(inputs: Inputs, models: dict[str, Record]) -> str:
    """Which models were not timed together with the others."""
    names = [f"`{name}`" for name, facts in models.items() if "times" in facts and not inputs.in_session(name)]
    if not names:
        return ""
    were = "was" if len(names) == 1 else "were"
    return f" {joined(names)} {were} timed in an earlier session and placed by the ratio to DeepGaze II there."


def every_point(inputs: Inputs, models: dict[str, Record]) -> Table:
    """Every point, with both ratios to DeepGaze II."""
    about = f"Every point. {score_words(models)}"
    if inputs.timed:
        about += f" Time: {timing_words(inputs)}; in onnxruntime at 512x384, DeepGaze II in torch."
    header = ("model", "how pruned", "GFLOP at 640x480", "ms", *RATIO_HEADER, *SHOWN.values())
    return Table(header, tuple(_row(inputs, name, facts) for name, facts in models.items()), about)


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


def _row(inputs: Inputs, name: str, facts: Record) -> tuple[str, ...]:
    time = inputs.milliseconds(name, "torch" if facts["kind"] == "teacher" else "onnxruntime")
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
        "Best of the regularised or finished networks of each family; the last columns are of the fastest student "
        f"whose mean is not below DeepGaze II's. {score_words(inputs.models())}"
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
    own = [p for p in points if p.family == family and p.kind in ("regularised", "finished")]
    return max(own, key=lambda p: p.means[metric], default=None)


def fastest_no_worse(metric: str, points: list[Point]) -> Point | None:
    """Of our students that were pruned with a cost."""
    teacher = next((p.means[metric] for p in points if p.kind == "teacher"), None)
    if teacher is None:
        return None
    able = [p for p in points if p.kind in ("regularised", "finished") and p.means[metric] >= teacher]
    return min(able, key=lambda p: p.ms, default=None)
