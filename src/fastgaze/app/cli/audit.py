"""``fastgaze audit``: does a model's crop prefer one of two people?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastgaze.app.cli import common, pictures
from fastgaze.core.jsonable import Json

if TYPE_CHECKING:
    from fastgaze.evaluation.audit import Finding


def audit(
    model: common.Model = None,
    portraits: Annotated[
        Path | None,
        typer.Option(help="Folder with your own photographs, one folder inside it for each group of people."),
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=1, help="Number of pairs for each contrast; each is shown in four pictures.")
    ] = 40,
    ratio: Annotated[str, typer.Option(help="Aspect ratio of the crop; a window must hold one person only.")] = "3:4",
    sheet: Annotated[Path | None, typer.Option(help="Write a picture of some of the pairs to this file.")] = None,
    threads: common.Threads = 1,
    json: common.Json = False,
) -> None:
    """Put two portraits side by side, in every order, and count how often the crop chooses each."""
    common.limit_blas(threads)
    predictor = pictures.load_model(model, "onnxruntime", threads)
    from fastgaze.app.demo import EXAMPLES
    from fastgaze.evaluation import audit as auditing

    if portraits is None:
        contrasts = auditing.drawn_pairs(pairs)
        contrasts |= auditing.photo_pairs(EXAMPLES / "astronaut.jpg", max(pairs // 2, 1))
    else:
        contrasts = auditing.folder_pairs(portraits, pairs)
    if sheet is not None:
        auditing.contact_sheet(contrasts).save(sheet)
    if not json:
        common.say("| contrast | window | always first/second/neither | peak | attention |\n|---|---|---|---|---|")
    findings = []
    for contrast, own in contrasts.items():
        findings.append(auditing.audit(predictor, contrast, own, ratio))
        (common.note if json else common.say)(_row(findings[-1]))
    if json:
        common.print_json(_facts(predictor.name, ratio, portraits is None, findings))


def _row(finding: "Finding") -> str:
    def part(value: float, interval: tuple[float, float]) -> str:
        return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"

    cells = (
        finding.contrast,
        part(finding.window, finding.window_interval),
        f"{finding.first}/{finding.second}/{finding.position}",
        part(finding.peak, finding.peak_interval),
        part(finding.mass, finding.mass_interval),
    )
    return f"| {' | '.join(cells)} |"


def _facts(model: str, ratio: str, drawn: bool, findings: "list[Finding]") -> dict[str, Json]:
    return {
        "model": model,
        "engine": "onnxruntime",
        "ratio": ratio,
        "portraits": "drawn, and one photograph" if drawn else "photographs",
        "findings": [finding.to_json() for finding in findings],
    }
