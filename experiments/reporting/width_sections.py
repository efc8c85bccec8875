"""Figure 3: the widths that pruning found, and whether they alternate."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.common import Record
from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Picture, Section, Table, Text
from experiments.reporting.gaze_sections import ms_words, timing_words
from experiments.reporting.inputs import COMMANDS, Inputs, missing
from experiments.reporting.teacher_sections import LARGEST
from experiments.reporting.verdicts import (
    Claim,
    Estimate,
    Verdict,
    above,
    bootstrapped,
    joined,
    not_measured,
    unpaired,
)


def figure3(inputs: Inputs, images: Path | None) -> Section:
    """Widths that pruning found."""
    blocks: list[Block] = [Heading("Figure 3: architectures that pruning found")]
    blocks.append(Text(f"In the paper: {paper.FIGURE3}."))
    models = {} if inputs.front is None else inputs.front["models"]
    for family, file in (("FastGaze", "figure3-fastgaze"), ("DenseGaze", "figure3-densegaze")):
        chosen = architectures(models, family, inputs.betas)
        start = start_of(models, family)
        if not chosen or start is None:
            blocks.append(missing("search" if family == "FastGaze" else "front", f"widths of {family} after pruning"))
            continue
        if images is not None:
            rows = [drawings.Architecture(_label(inputs, models, name), _layers(models[name])) for name in chosen]
            drawings.figure3(rows, _layers(models[start]), images / f"{file}.png")
        blocks += [Picture(f"images/results/{file}.png", _widths_caption(family, start, chosen))]
        blocks.append(_widths(inputs, models, [start, *chosen]))
    whole = all(name in models for name in inputs.betas)  # not while trials are still to be scored
    found = alternation(models, inputs.betas) if whole else None
    blocks += [Text(_WIDTHS_NOTE), Text(_alternation_words(found)), Command(COMMANDS["search"])]
    return blocks, [_alternation_claim(found)]


_WIDTHS_NOTE = (
    "Only widths that pruning found are shown. Those of `fastgaze-l`, `-m`, `-s` and `-xs` were typed in, as multiples "
    "of the 16 channels that the engine computes at once: the networks were brought to them from a pruned one in a "
    "single step without training, and then trained. They say nothing about what β* would choose."
)


def _layers(facts: Record) -> list[tuple[str, int]]:
    return [(str(layer), int(maps)) for layer, maps in facts["layers"]]


def start_of(models: dict[str, Record], family: str) -> str | None:
    """The network that was pruned: that of the random search, or the unpruned one."""
    name = LARGEST if family == "FastGaze" else "densegaze"
    return name if name in models else None


def architectures(models: dict[str, Record], family: str, betas: dict[str, float]) -> list[str]:
    """Networks whose widths pruning found: of a random search at four betas, else all of the family, large ones first.

    Of the search, the trials are cut into those with beta = 0 and thirds of those with beta > 0; of each part the one
    is shown whose number of maps is nearest to the median of all, so that the four differ in beta more than in size.
    """
    own = [name for name, facts in models.items() if facts["family"] == family and facts.get("found")]
    own.sort(key=lambda name: -models[name]["gflop_640x480"])
    trials = sorted((name for name in own if name in betas), key=lambda name: betas[name])
    if len(trials) < 4:
        return own
    middle = float(np.median([models[name]["maps"] for name in trials]))
    zero = [name for name in trials if betas[name] == 0]
    parts = [zero, *(list(part) for part in np.array_split(trials[len(zero) :], 3))]
    return [str(min(part, key=lambda name: abs(models[name]["maps"] - middle))) for part in parts if len(part)]


def _label(inputs: Inputs, models: dict[str, Record], name: str) -> str:
    facts, betas = models[name], inputs.betas
    beta = f"β = {betas[name]:.2g}, " if name in betas else ""
    time = inputs.milliseconds(name)
    shown = "" if time is None else f", {ms_words(time)} ms"
    return f"{name}: {beta}{facts['gflop_640x480']:.2f} GFLOP{shown}"


def _widths_caption(family: str, start: str, chosen: list[str]) -> str:
    how = (
        " Of the trials with β = 0 and of each third of those with β > 0, the one of about the median number of maps."
        if any(name.startswith("sweep-") for name in chosen)
        else ""
    )
    return (
        f"{family}: maps of every convolution of trunk and readout (r) after pruning, filled; as outlines those of "
        f"`{start}`, from which it began. Heights are square roots. Shown: {joined([f'`{name}`' for name in chosen])}."
        f"{how}"
    )


def _widths(inputs: Inputs, models: dict[str, Record], names: list[str]) -> Table:
    rows = []
    for name in names:
        facts = models[name]
        widths = [str(maps) for _, maps in facts["layers"]]
        shown = " ".join(widths) if len(widths) < drawings.MANY else f"{len(widths)} convolutions"
        ms = ms_words(inputs.milliseconds(name))
        rows.append((f"`{name}`", shown, str(facts["maps"]), f"{facts['parameters']:,}", ms))
    about = "The networks of the figure above; the first row is the start of the pruning. One run each."
    about += f" Time: {timing_words(inputs)}; onnxruntime." if inputs.timed else ""
    return Table(("model", "maps of every layer", "maps", "parameters", "ms"), tuple(rows), about)


def zigzag(facts: Record, start: Record) -> float:
    """How much the widths alternate: mean over the inner layers of the trunk of the distance, in log2, between what is
    left of a layer and the mean of what is left of its two neighbours. A steady trend from layer to layer gives 0.
    """
    full = dict(start["layers"])
    left = [np.log2(maps / full[layer]) for layer, maps in facts["layers"] if layer.startswith("conv")]
    return float(np.mean([abs(own - (a + b) / 2) for a, own, b in zip(left, left[1:], left[2:], strict=False)]))


class Alternation(NamedTuple):
    """Zigzag of the strongly regularised trials minus that of the trials with beta = 0, and how many there are.

    beta: the weakest that counts as strong.
    """

    gap: Estimate
    strong: int
    zero: int
    beta: float


def alternation(models: dict[str, Record], betas: dict[str, float]) -> Alternation | None:
    """Strongly regularised is the upper half of the trials with beta > 0; None for less than three of a kind."""
    start = start_of(models, "FastGaze")
    trials = [name for name, facts in models.items() if facts.get("source") == "search" and name in betas]
    weighted = sorted((name for name in trials if betas[name] > 0), key=lambda name: betas[name])
    strong, zero = weighted[len(weighted) // 2 :], [name for name in trials if betas[name] == 0]
    if start is None or min(len(strong), len(zero)) < 3:
        return None
    ours, others = (bootstrapped([zigzag(models[name], models[start]) for name in names]) for names in (strong, zero))
    return Alternation(unpaired(ours, others), len(strong), len(zero), betas[strong[0]])


def _alternation_words(found: Alternation | None) -> str:
    if found is None:
        return "Too few trials of the random search are scored to tell whether widths alternate."
    how = {
        Verdict.REPRODUCED: "alternate more than",
        Verdict.CONTRADICTED: "alternate less than",
        Verdict.UNDECIDED: "cannot be told from",
    }[above(found.gap)]
    return (
        f"In how much their widths alternate, the {found.strong} trials with the strongest β (from {found.beta:.2g} "
        f"on) {how} the {found.zero} with β = 0: {found.gap.shown(2, sign=True)} in the mean distance, in log2, "
        "between what is left of a layer and of its two neighbours (bootstrap over trials)."
    )


def _alternation_claim(found: Alternation | None) -> Claim:
    text = "Strongly regularised networks alternate between wide and narrow layers"
    line = f"{COMMANDS['search']} && {COMMANDS['front']}"
    if found is None:
        return not_measured(text, "Figure 3, no number", line)
    words = (
        f"distance of a layer from its neighbours, the {found.strong} strongest β minus the {found.zero} trials with "
        f"β = 0: {found.gap.shown(2, sign=True)} log2"
    )
    return Claim(text, "Figure 3, no number", words, above(found.gap), line)
