"""Write docs/results.md and docs/results.html: every table and figure of the paper beside what was measured here.

    python -m experiments.report

It runs no network. It reads what the measuring scripts left in results/ and docs/images/results/maps, draws the figures
into docs/images/results, and says of everything that is not there which command would measure it. Every sentence on a
result is chosen by the numbers, and so is every verdict.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments import common
from experiments.common import DOCS, RESULTS
from experiments.reporting import paper
from experiments.reporting.cluster_section import ray_cluster
from experiments.reporting.document import Block, Heading, Points, Table, Text, html, markdown
from experiments.reporting.inputs import Inputs
from experiments.reporting.lenet_sections import table1
from experiments.reporting.map_sections import figure4
from experiments.reporting.model_sections import peer, speed, table2
from experiments.reporting.pace_section import paper_pace
from experiments.reporting.pruning_sections import figure1
from experiments.reporting.search_sections import random_search
from experiments.reporting.teacher_sections import quality
from experiments.reporting.variant_sections import choices, equal_cost
from experiments.reporting.verdicts import Claim, Verdict
from experiments.reporting.width_sections import figure3

INTRODUCTION = (
    f"Every claim, table and figure of [Faster gaze prediction with dense networks and Fisher pruning]({paper.LINK}) "
    "beside what was measured here. `python -m experiments.report` writes this page from the files in `results/`: "
    "sentences and verdicts follow from the numbers in them. How the method departs from the paper is in "
    "[method.md](method.md), the bundled models are in [models.md](models.md), what failed is in [log.md](log.md)."
)
READING = (
    "A claim is **reproduced** or **contradicted** if the 95% interval of our figure lies wholly on one side of what "
    "the paper says, and **undecided** otherwise, also where there is no interval. A claim of several parts is "
    "reproduced if all of them are, and contradicted if one of them is.",
    "Intervals are over images unless a table says otherwise. They do not contain what another run of the training "
    "would change, except where several seeds are named.",
    "Each interval stands for itself: of twenty that are decided, one may be wrong by chance.",
    "Where the paper gives no number, a margin in parentheses says what counts as equally good; margins are ours.",
)
REPEATING = (
    "Commands run from the root of the repository, with the data sets in `data/` or where FASTGAZE_DATA says. "
    "`experiments/paper.sh full` runs all of them in order. Checkpoints that are not bundled (DeepGaze II, the trials "
    "of the random search, the comparison runs) are trained again by it, so their last digits will differ."
)


def document(inputs: Inputs, images: Path | None = None) -> list[Block]:
    """All blocks; figures are drawn into ``images``, or not at all."""
    blocks: list[Block] = []
    claims: list[Claim] = []
    for made, decided in (
        table1(inputs),
        figure1(inputs, images),
        quality(inputs, images),
        random_search(inputs, images),
        equal_cost(inputs),
        choices(inputs),
        (paper_pace(inputs), []),
        figure3(inputs, images),
        figure4(inputs, images),
        table2(inputs),
        peer(inputs),
        speed(inputs),
        (ray_cluster(inputs), []),
    ):
        blocks += made
        claims += decided
    head: list[Block] = [Heading("Results: the paper, run again", 1), Text(INTRODUCTION)]
    return [*head, Heading("The paper's claims"), Points(READING), claims_table(claims), Text(REPEATING), *blocks]


def claims_table(claims: list[Claim]) -> Table:
    """The opening: one row for each claim."""
    counts = Counter(claim.verdict for claim in claims)
    about = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict) + f", of {len(claims)} claims."
    rows = tuple((c.text, c.paper, c.ours.replace("; ", ";\n"), str(c.verdict), f"`{c.command}`") for c in claims)
    return Table(("claim", "in the paper", "ours, with 95% interval", "verdict", "command"), rows, about)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = common.make_parser(__doc__, __file__, data=False)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of JSON files")
    parser.add_argument("--docs", type=Path, default=DOCS, help="results.md, results.html and images/results go here")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw and write."""
    options = common.parse(make_parser(), arguments)
    blocks = document(Inputs(options.results), options.docs / "images" / "results")
    options.docs.mkdir(parents=True, exist_ok=True)
    (options.docs / "results.md").write_text(markdown(blocks))
    (options.docs / "results.html").write_text(html(blocks))
    print(f"{options.docs / 'results.md'} and {options.docs / 'results.html'}")


if __name__ == "__main__":
    main()
