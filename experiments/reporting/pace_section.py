"""One run at the paper's pace, one map every ten steps of SGD, beside a fast schedule from the same start."""

from experiments.common import CONFIGS, Record
from experiments.reporting.document import Block, Command, Heading, Missing, Table, Text
from experiments.reporting.gaze_sections import SHOWN, score_words
from experiments.reporting.inputs import Inputs, command
from experiments.reporting.teacher_sections import DIGITS, paired_difference
from experiments.reporting.verdicts import Estimate, Verdict, above, joined
from fastgaze.training.config import read_config

STEPS = (
    "fastgaze workshop prune --config experiments/configs/paper_pace.toml --start checkpoints/fastgaze.safetensors "
    "--out runs/paper-pace",
    "fastgaze workshop prune --config experiments/configs/fast_pace.toml --start checkpoints/fastgaze.safetensors "
    "--out runs/fast-pace",
)
BITS = "log_likelihood_bits"
VALIDATION = "salicon-val"
NAMES = {"cat2000": "CAT2000", VALIDATION: "SALICON val (800 images, of which 200 also chose the step that was kept)"}


def paper_pace(inputs: Inputs) -> list[Block]:
    """Both schedules at each mark of cost that both reached, and their paired difference."""
    models = inputs.schedules()
    marks = [name.removeprefix("pace-") for name, facts in models.items() if facts["kind"] == "paced"]
    both = [mark for mark in marks if f"fast-{mark}" in models]
    blocks: list[Block] = [Heading("One run at the paper's pace")]
    if not both:
        what = "one map every 10 steps, SGD, 2,300 maps, from the unpruned FastGaze, beside a fast schedule"
        return [*blocks, Missing(f"{what} (`experiments/paper.sh` has all commands)", STEPS[0])]
    rows = []
    for mark in both:
        rows += [_row(f"{kind}-{mark}", models[f"{kind}-{mark}"]) for kind in ("pace", "fast")]
        gaps = [_shown(_difference(inputs, mark, metric), metric) for metric in SHOWN]
        rows.append(("difference", "", *gaps, _shown(_difference(inputs, mark, BITS, VALIDATION), BITS)))
    about = (
        f"{_settings_words()} One seed each; differences with 95% intervals, paired over images. {score_words(models)}"
    )
    return [
        *blocks,
        Text(" ".join(_words(inputs, both, models, data) for data in NAMES).strip()),
        Table(("model", "GFLOP at 640x480", *SHOWN.values(), "SALICON val, bits"), tuple(rows), about),
        *(Command(step) for step in STEPS),
        Command(command("front")),
    ]


def _settings_words() -> str:
    """What both schedules share and where they differ, from their settings."""
    slow, fast = (read_config(CONFIGS / f"{name}_pace.toml") for name in ("paper", "fast"))
    height, width = (round(side * slow.prune.scale) for side in slow.workshop.size)
    return (
        f"From the unpruned FastGaze, images of {width}x{height}, snapshots tuned alike for {slow.tune.fit.steps} "
        f"steps and scored at that size. `pace`: one map every {slow.prune.steps} steps of {slow.prune.batch} images, "
        f"{slow.prune.optimizer}, rate {slow.prune.learning_rate:g}, {slow.prune.remove:,} maps in all. `fast`: "
        f"{fast.prune.share:.0%} of the maps every {fast.prune.steps} steps of {fast.prune.batch}, "
        f"{fast.prune.optimizer}, rate {fast.prune.learning_rate:g}."
    )


def _row(name: str, facts: Record) -> tuple[str, ...]:
    score = facts["scores"]["cat2000"]
    cells = [_score(score, metric) for metric in SHOWN]
    return (f"`{name}`", f"{facts['gflop_640x480']:.2f}", *cells, _score(facts["scores"].get(VALIDATION), BITS))


def _score(score: Record | None, metric: str) -> str:
    return "-" if score is None else Estimate(score["means"][metric], *score["intervals"][metric]).shown()


def _difference(inputs: Inputs, mark: str, metric: str, data: str = "cat2000") -> Estimate | None:
    """The paper's pace minus the fast schedule."""
    return paired_difference(inputs, f"pace-{mark}", f"fast-{mark}", metric, data)


def _shown(estimate: Estimate | None, metric: str) -> str:
    return "-" if estimate is None else estimate.shown(DIGITS[metric], sign=True)


def _words(inputs: Inputs, marks: list[str], models: dict[str, Record], data: str) -> str:
    """Where the paper's pace is ahead in log-likelihood, where behind, and where the interval holds zero."""
    sides: dict[Verdict, list[str]] = {Verdict.REPRODUCED: [], Verdict.CONTRADICTED: [], Verdict.UNDECIDED: []}
    for mark in marks:
        found = _difference(inputs, mark, BITS, data)
        if found is not None:
            sides[above(found)].append(f"{models[f'pace-{mark}']['gflop_640x480']:.0f}")
    said = {
        Verdict.REPRODUCED: "the paper's pace is ahead of the fast schedule",
        Verdict.CONTRADICTED: "the paper's pace is behind the fast schedule",
        Verdict.UNDECIDED: "the two cannot be told apart",
    }
    parts = [f"{words} at {joined(sides[verdict])} GFLOP" for verdict, words in said.items() if sides[verdict]]
    return "" if not parts else f"In log-likelihood on {NAMES[data]}, {'; '.join(parts)}."
