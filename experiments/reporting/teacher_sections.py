"""Students against their teacher on CAT2000, image by image, and what the paper says of Figure 2."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.common import Record
from experiments.reporting import paper
from experiments.reporting.document import Block, Command, Heading, Points, Section, Table, Text
from experiments.reporting.gaze_sections import CONDITIONS, SHOWN, every_point, figure2, score_words
from experiments.reporting.inputs import COMMANDS, Inputs, command, missing
from experiments.reporting.verdicts import (
    Claim,
    Estimate,
    Verdict,
    above,
    all_of,
    below,
    joined,
    not_measured,
    paired,
    unpaired,
)

DIGITS = {"auc": 4, "log_likelihood_bits": 3, "nss": 3, "sim": 4}
SAME = {"auc": 0.002, "log_likelihood_bits": 0.02, "nss": 0.03, "sim": 0.003}
"""How far behind counts as equally good."""
TEACHER, LARGEST, DENSE, FASTEST = "deepgaze2", "fastgaze-l", "densegaze-m", "fastgaze-xs"
ROUGHLY = 0.8  # "roughly 10x" is met from 8x on
Decide = Callable[[Estimate], Verdict]


def quality(inputs: Inputs, images: Path | None) -> Section:
    """Figure 2 and everything that is compared on CAT2000."""
    blocks: list[Block] = [Heading("Figure 2: speed against quality on CAT2000")]
    blocks.append(Text(f"In the paper ({paper.MACHINE}): {paper.FIGURE2}."))
    claims = quality_claims(inputs)
    if not inputs.models():
        return [*blocks, missing("front", "scores of our models on CAT2000")], claims
    blocks += [*figure2(inputs, images), *against_teacher(inputs), every_point(inputs, inputs.models())]
    blocks += _teacher(inputs)
    return [*blocks, Command(f"{COMMANDS['front']}\n{inputs.times_command}"), Text(CONDITIONS)], claims


def _teacher(inputs: Inputs) -> list[Block]:
    """How good the DeepGaze II is that the students are compared with."""
    record = inputs.read("deepgaze2")
    if record is None:
        return [missing("deepgaze2", "scores of DeepGaze II on what its readouts were trained on")]
    rows = []
    for row in record["rows"]:
        found = (_estimate(row, metric).shown() for metric in SHOWN)
        rows.append((row["model"], row["data"], str(row["images"]), *found))
    config = record["settings"]["config"]
    about = (
        f"DeepGaze II as it was trained for this page (`experiments/configs/{config}`): `one readout` before the "
        "eye-tracking sets, `ensemble` after them, `out of fold` every image by the one member that did not train on "
        "it. `tuebingen` protocol, the set's own centre bias without the image at hand; torch, fp32, 320x240, one "
        "thread, one run; 95% intervals over images."
    )
    table = Table(("model", "data", "images", *SHOWN.values()), tuple(rows), about)
    return [table, Command(command("deepgaze2", record))]


class Difference(NamedTuple):
    """One model minus another on CAT2000; paired if the scores of single images are there of both."""

    estimate: Estimate
    paired: bool


def difference(inputs: Inputs, name: str, metric: str, other: str = TEACHER) -> Difference | None:
    """Paired over images where both kept their scores of the same ones, else as if the two were independent."""
    models = inputs.models() | inputs.bundled()
    if name not in models or other not in models:
        return None
    found = paired_difference(inputs, name, other, metric)
    if found is not None:
        return Difference(found, True)
    ours, others = (_estimate(models[model]["scores"]["cat2000"], metric) for model in (name, other))
    return Difference(unpaired(ours, others), False)


def paired_difference(inputs: Inputs, name: str, other: str, metric: str, data: str = "cat2000") -> Estimate | None:
    """One model minus another over the images of a set; None if the scores of single images are not there of both."""
    ours, others = (inputs.rows(model, data) for model in (name, other))
    if ours is None or others is None or ours["name"] != others["name"]:
        return None
    return paired(ours[metric], others[metric])


def _estimate(score: Record, metric: str) -> Estimate:
    return Estimate(score["means"][metric], *score["intervals"][metric])


def against_teacher(inputs: Inputs) -> list[Block]:
    """Students minus their teacher: the paper's line, and as an extra what is bundled now."""
    models, bundled = inputs.models(), inputs.bundled()
    if TEACHER not in models:
        return [missing("front", "DeepGaze II on CAT2000, whom the students are compared with")]
    line = {name: facts for name, facts in models.items() if facts["kind"] in ("finished", "unpruned", "peer")}
    blocks: list[Block] = [_differences(inputs, line, "Students minus DeepGaze II, 95%"), _words(inputs, line)]
    if bundled:
        extra = "The models that are bundled now minus DeepGaze II, 95%. The paper has nothing like them: LiteGaze, "
        blocks.append(_differences(inputs, bundled, f"{extra}trained on more data, and `tiny`, a FastGaze"))
    return blocks


def _differences(inputs: Inputs, models: dict[str, Record], title: str) -> Table:
    rows = []
    for name in models:
        found = [(metric, difference(inputs, name, metric)) for metric in SHOWN]
        cells = ("-" if each is None else each.estimate.shown(DIGITS[metric], sign=True) for metric, each in found)
        rows.append((f"`{name}`", *cells))
    about = f"{title}: {_pairing_words(inputs, list(models))}. {score_words(models)}"
    return Table(("model", *SHOWN.values()), tuple(rows), about)


def _pairing_words(inputs: Inputs, names: list[str]) -> str:
    loose = [name for name in names if (each := difference(inputs, name, "auc")) is not None and not each.paired]
    wide = "far wider than paired ones would be, because the scores of single images were not kept"
    if not loose:
        return "paired bootstrap over images"
    if len(loose) == len(names):
        return f"intervals of two independent means, {wide}"
    of = joined([f"`{name}`" for name in loose])
    return f"paired bootstrap over images; for {of} intervals of two independent means, {wide}"


def _words(inputs: Inputs, models: dict[str, Record]) -> Points:
    """Who is ahead of the teacher beyond doubt, and who behind, metric by metric."""
    parts = []
    for metric, title in SHOWN.items():
        found = {name: each.estimate for name in models if (each := difference(inputs, name, metric)) is not None}
        ahead = [f"`{name}`" for name, each in found.items() if above(each) is Verdict.REPRODUCED]
        behind = [f"`{name}`" for name, each in found.items() if below(each) is Verdict.REPRODUCED]
        words = [f"{joined(names)} {'are' if len(names) > 1 else 'is'} {how}" for names, how in
                 ((ahead, "ahead of DeepGaze II"), (behind, "behind DeepGaze II")) if names]  # fmt: skip
        parts.append(f"{title}: {', '.join(words) or 'nobody differs from DeepGaze II beyond the interval'}.")
    return Points(tuple(parts))


# The paper's sentences


def quality_claims(inputs: Inputs) -> list[Claim]:
    """The paper's sentences on Figure 2."""
    others = ("log_likelihood_bits", "nss", "sim")
    margins = ", ".join(f"{SHOWN[metric]} {margin:g}" for metric, margin in SAME.items())
    return [
        _metric_claim(
            inputs,
            "DenseGaze is ahead of DeepGaze II on CAT2000 in AUC, log-likelihood, NSS and SIM",
            (DENSE, TEACHER),
            dict.fromkeys(SHOWN, above),
        ),
        _metric_claim(
            inputs,
            "FastGaze is ahead of DeepGaze II on CAT2000 in log-likelihood, NSS and SIM",
            (LARGEST, TEACHER),
            dict.fromkeys(others, above),
        ),
        _metric_claim(
            inputs, "FastGaze is slightly behind DeepGaze II on CAT2000 in AUC", (LARGEST, TEACHER), {"auc": below}
        ),
        _metric_claim(
            inputs,
            f"Even heavily pruned networks are as good as DeepGaze II on CAT2000, or better (within {margins})",
            (heavily_pruned(inputs), TEACHER),
            {metric: _not_behind(margin) for metric, margin in SAME.items()},
        ),
        _metric_claim(
            inputs,
            "DenseGaze predicts CAT2000 better than FastGaze in AUC, log-likelihood and NSS",
            (DENSE, LARGEST),
            dict.fromkeys(("auc", "log_likelihood_bits", "nss"), above),
        ),
        _metric_claim(
            inputs, "In SIM, DenseGaze is not ahead of FastGaze on CAT2000", (DENSE, LARGEST), {"sim": _not_ahead}
        ),
        _speed_claim(
            inputs,
            "About 10 times as fast at the same AUC (DenseGaze)",
            "roughly 10x",
            (DENSE, "auc", -SAME["auc"], ROUGHLY * paper.SPEEDUP_SAME_AUC),
        ),
        _speed_claim(
            inputs,
            "More than 75 times as fast at a better log-likelihood (the most heavily pruned network; ours: the "
            "finished one nearest above 75 times)",
            "more than 75x",
            (heavily_pruned(inputs), "log_likelihood_bits", 0.0, paper.SPEEDUP_SAME_LIKELIHOOD),
        ),
    ]


def heavily_pruned(inputs: Inputs) -> str:
    """The finished network whose speed-up is nearest above that of the paper's most heavily pruned one.

    Ours go much further: a network that is five times as fast as the paper's would be no test of its claim. The
    fastest one, if none is as fast or nothing was timed.
    """
    speeds = {
        name: speed.value
        for name, facts in inputs.models().items()
        if facts["kind"] == "finished" and (speed := _speedup(inputs, name)) is not None
    }
    able = {name: speed for name, speed in speeds.items() if speed > paper.SPEEDUP_SAME_LIKELIHOOD}
    if able:
        return min(able, key=lambda name: able[name])
    return max(speeds, key=lambda name: speeds[name], default=FASTEST)


def _not_behind(margin: float) -> Decide:
    return lambda estimate: above(estimate, -margin)


def _not_ahead(estimate: Estimate) -> Verdict:
    return below(estimate, SAME["sim"])


def _metric_claim(inputs: Inputs, text: str, pair: tuple[str, str], decided: dict[str, Decide]) -> Claim:
    """``pair``: the first minus the second; ``decided``: what the claim says of each metric."""
    name, other = pair
    known = {metric: each for metric in decided if (each := difference(inputs, name, metric, other)) is not None}
    if len(known) < len(decided):
        return not_measured(text, "Figure 2, no number", COMMANDS["front"])
    shown = "; ".join(f"{SHOWN[m]} {each.estimate.shown(DIGITS[m], sign=True)}" for m, each in known.items())
    verdict = all_of([decided[metric](each.estimate) for metric, each in known.items()])
    note = "" if all(each.paired for each in known.values()) else " (not paired)"
    whom = "DeepGaze II" if other == TEACHER else f"`{other}`"
    return Claim(text, "Figure 2, no number", f"`{name}` minus {whom}: {shown}{note}", verdict, COMMANDS["front"])


def _speed_claim(inputs: Inputs, text: str, printed: str, asked: tuple[str, str, float, float]) -> Claim:
    """``asked``: model, metric, how far it must be above DeepGaze II, and how many times as fast."""
    name, metric, margin, times = asked
    line = f"{COMMANDS['front']} && {inputs.times_command}"
    gap, speed = difference(inputs, name, metric), _speedup(inputs, name)
    if gap is None or speed is None:
        return not_measured(text, printed, line)
    eager = inputs.models()[name]["times"]["own size"].get("ratio_to_deepgaze2")
    beside = "" if eager is None else f" ({eager:.0f} times DeepGaze II in eager torch)"
    note = "" if gap.paired else " (not paired)"
    words = (
        f"`{name}`: {SHOWN[metric]} {gap.estimate.shown(DIGITS[metric], sign=True)}{note}; {speed.shown(1)} times in "
        f"the same engine, each at its scored size{beside}"
    )
    return Claim(text, printed, words, all_of([above(gap.estimate, margin), above(speed, times)]), line)


def _speedup(inputs: Inputs, name: str) -> Estimate | None:
    """In the same engine, each at its scored size; the spread is that over rounds."""
    times = inputs.models().get(name, {}).get("times", {}).get("own size", {})
    if "ratio_same_engine" not in times:
        return None
    return Estimate(times["ratio_same_engine"], *times.get("ratio_same_engine_spread", ()))
