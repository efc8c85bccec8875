"""Write docs/results.md and docs/results.html: every table and figure of the paper beside what was measured here.

    python -m experiments.report

It runs no network. It reads what the measuring recipes left in docs/results and docs/images/results/maps, draws the
figures into docs/images/results, and says of everything that is not there which command would measure it. What people
have to say about the differences is in experiments/configs/report_notes.toml.
"""

import argparse
from pathlib import Path

from experiments.reporting import paper
from experiments.reporting.document import Block, Heading, Text, html, markdown
from experiments.reporting.gaze_sections import figure2, figure3, figure4
from experiments.reporting.inputs import Inputs
from experiments.reporting.model_sections import beyond, table2
from experiments.reporting.pruning_sections import figure1, table1

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTES = Path(__file__).with_name("report_notes.toml")


def document(inputs: Inputs, images: Path | None = None) -> list[Block]:
    """All blocks; figures are drawn into ``images``, or not at all."""
    opening = (
        f"Every table and figure of [Faster gaze prediction with dense networks and Fisher pruning]({paper.LINK}) "
        "beside the same thing measured here. `experiments/report.py` writes this page from what other recipes left in "
        "`docs/results`; each section names the command. Where the paper's figure is a picture it is described, not "
        "copied. How the method departs from the paper is in [method.md](method.md), the shipped models are in "
        "[models.md](models.md), what failed is in [log.md](log.md)."
    )
    return [
        Heading("Results: the paper, run again", 1),
        Text(opening),
        *table1(inputs),
        *figure1(inputs, images),
        *figure2(inputs, images),
        *figure3(inputs, images),
        *figure4(inputs, images),
        *table2(inputs),
        *beyond(inputs, images),
    ]


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=DOCS / "results", help="folder of JSON files")
    parser.add_argument("--docs", type=Path, default=DOCS, help="results.md, results.html and images/results go here")
    options = parser.parse_args()
    blocks = document(Inputs(options.results, NOTES), options.docs / "images" / "results")
    (options.docs / "results.md").write_text(markdown(blocks))
    (options.docs / "results.html").write_text(html(blocks))
    print(f"{options.docs / 'results.md'} and {options.docs / 'results.html'}")


if __name__ == "__main__":
    main()
