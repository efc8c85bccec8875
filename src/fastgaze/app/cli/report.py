"""``fastgaze report``: one HTML file about pictures, to read, send and print."""

from pathlib import Path
from typing import Annotated

import typer

from fastgaze.app.cli import common, pictures
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import printable, write_whole
from fastgaze.core.jsonable import Json
from fastgaze.runtime.regions import FIXATIONS


def report(
    images: pictures.Images,
    out: common.OutFile,
    region: pictures.Regions = None,
    fixations: pictures.Fixations = FIXATIONS,
    ratio: Annotated[
        list[str] | None, common.shapes("WIDTH:HEIGHT", "Crops to show; 16:9, 1:1, 4:5 and 9:16 by default.")
    ] = None,
    title: Annotated[str, typer.Option(help="Heading of the report.")] = "Where people look",
    model: common.Model = None,
    threads: common.Threads = 1,
    engine: common.Engine = "onnxruntime",
    center_bias: pictures.Bias = "model",
    json: common.Json = False,
) -> None:
    """Write one HTML file about pictures: maps, what draws the eye, regions and crops, with everything inside.

    Print it to PDF in a browser. Regions are measured in every picture; NAME@2=... belongs to the second one alone.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"--out {out} is not the name of an HTML file, such as report.html")
    predictor = pictures.load_model(model, engine, threads)
    from datetime import datetime

    from fastgaze.app.report import RATIOS, Section, describe, make_report
    from fastgaze.runtime.crop import parse_ratio
    from fastgaze.runtime.regions import check_pictures, parse_regions

    regions, bias = parse_regions(region or []), pictures.read_bias(center_bias)
    ratios = ratio or RATIOS
    for text in ratios:
        parse_ratio(text)
    jobs = pictures.find_jobs(images, None)
    check_pictures(regions, len(jobs))
    sections: list[Section] = []

    def work(job: pictures.Job) -> dict[str, Json]:
        gaze = predictor.predict(job.source, center_bias=bias)
        boxes = pictures.boxes_in_picture(regions, gaze, job, jobs)
        sections.append(describe(printable(Path(job.label).name), gaze, boxes, ratios, fixations))
        return {"name": job.label, **gaze.to_json(ratios=ratios, regions=boxes, fixations=fixations)}

    results, failures = pictures.run_jobs(jobs, work, "report")
    if sections:
        page = make_report(sections, title, datetime.now().astimezone(), fixations)
        write_whole(out, page.encode())
    if json:
        common.print_json({"written": str(out) if sections else None, "pictures": results})
    elif sections:
        common.report(f"{common.counted(len(sections), 'picture')} -> {out}")
    pictures.finish(len(jobs), failures)
