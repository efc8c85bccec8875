"""Figure 3: the widths that pruning found, and whether they alternate."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from experiments.common import Record
from experiments.reporting import drawings, paper
from experiments.reporting.document import Block, Command, Heading, Picture, Table, Text
from experiments.reporting.gaze_sections import LARGEST, ms_words, timing_words
from experiments.reporting.inputs import COMMANDS, Inputs, missing
from experiments.reporting.pruning_sections import Section
from experiments.reporting.verdicts import Claim, Estimate, above, bootstrapped, joined, not_measured, unpaired


def figure3(inputs: Inputs, images: Path | None) -> Section:
    """Widths that pruning found."""
    blocks: list[Block] = [Heading("Figure 3: architectures that pruning found")]
    blocks.append(Text(f"In the paper: {paper.FIGURE3}."))
    models = {} if inputs.front is None else inputs.front["models"]
    for family, file in (("FastGaze", "figure3-fastgaze"), ("DenseGaze", "figure3-densegaze")):
        chosen = architectures(models, family)
        start = start_of(models, family)
        if not chosen or start is None:
            blocks.append(missing("search" if family == "FastGaze" else "front", f"widths of {family} after pruning"))
            continue
        if images is not None:
            rows = [drawings.Architecture(_label(inputs, models, name), _layers(models[name])) for name in chosen]
            drawings.figure3(rows, _layers(models[start]), images / f"{file}.png")
        blocks += [Picture(f"images/results/{file}.png", _widths_caption(family, start, chosen))]
        blocks.append(_widths(inputs, models, [start, *chosen]))
    blocks += [Text(_WIDTHS_NOTE), Text(_alternation_words(models)), Command(COMMANDS["search"])]
    return blocks, [_alternation_claim(models)]


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


def architectures(models: dict[str, Record], family: str, most: int = 4) -> list[str]:
    """Networks of a family whose widths pruning found, from large to small, at most ``most`` over the whole range."""
    own = [name for name, facts in models.items() if facts["family"] == family and facts.get("found")]
    own.sort(key=lambda name: -models[name]["gflop_640x480"])
    picked = np.linspace(0, len(own) - 1, min(most, len(own))).round().astype(int)
    return [own[i] for i in picked]


def _label(inputs: Inputs, models: dict[str, Record], name: str) -> str:
    facts, betas = models[name], inputs.betas
    beta = f"β = {betas[name]:.2g}, " if name in betas else ""
    time = inputs.milliseconds(name)
    shown = "" if time is None else f", {ms_words(time)} ms"
    return f"{name}: {beta}{facts['gflop_640x480']:.2f} GFLOP{shown}"


def _widths_caption(family: str, start: str, chosen: list[str]) -> str:
    return (
        f"{family}: maps of every convolution of trunk and readout (r) after pruning, filled; as outlines those of "
        f"`{start}`, from which it began. Heights are square roots. Shown: {joined([f'`{name}`' for name in chosen])}."
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


def unevenness(facts: Record, start: Record) -> float:
    """Mean over neighbouring trunk layers of |log2| of how differently they were narrowed; 1 is a factor of two."""
    full = dict(start["layers"])
    left = [np.log2(maps / full[layer]) for layer, maps in facts["layers"] if layer.startswith("conv")]
    return float(np.mean([abs(a - b) for a, b in pairwise(left)]))


def alternation(models: dict[str, Record]) -> tuple[Estimate, int, int] | None:
    """Unevenness of trials with beta > 0 minus that of trials with beta = 0, and how many there are of each."""
    start = start_of(models, "FastGaze")
    if start is None:
        return None
    values: dict[str, list[float]] = {"regularised": [], "unregularised": []}
    for facts in models.values():
        if facts.get("source") == "search" and facts["kind"] in values:
            values[facts["kind"]].append(unevenness(facts, models[start]))
    if min(map(len, values.values())) < 2:
        return None
    ours, others = (bootstrapped(found) for found in values.values())
    return unpaired(ours, others), len(values["regularised"]), len(values["unregularised"])


def _alternation_words(models: dict[str, Record]) -> str:
    found = alternation(models)
    if found is None:
        return "Too few trials of the random search to compare the widths of neighbouring layers."
    gap, ours, others = found
    how = (
        "more unevenly than"
        if gap.low > 0
        else "less unevenly than"
        if gap.high < 0
        else "no more unevenly, as far as can be told, than"
    )
    return (
        f"The {ours} trials with β > 0 narrow neighbouring layers {how} the {others} with β = 0: "
        f"{gap.shown(2, sign=True)} in the mean |log2| of the ratio of what is left of them (bootstrap over trials)."
    )


def _alternation_claim(models: dict[str, Record]) -> Claim:
    text = "Strongly regularised networks alternate between wide and narrow layers"
    found = alternation(models)
    if found is None:
        return not_measured(text, "Figure 3, no number", COMMANDS["search"])
    gap, ours, others = found
    words = f"unevenness of neighbours, β > 0 ({ours} trials) minus β = 0 ({others}): {gap.shown(2, sign=True)} log2"
    return Claim(text, "Figure 3, no number", words, above(gap), COMMANDS["search"])
