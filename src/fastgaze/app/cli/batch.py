"""``fastgaze batch``: many pictures into Parquet files, on this machine or on a Ray cluster."""

import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from fastgaze.app.cli import common
from fastgaze.core.errors import ArgumentError
from fastgaze.core.jsonable import Document


def batch(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A folder, a glob, a list (.txt or .lst), a .parquet file or a URL of one of these.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="Folder for the Parquet files, or its URL.", show_default=False)
    ],
    runner: Annotated[str, typer.Option(help="local (processes on this machine) or ray (Ray Data).")] = "local",
    workers: Annotated[
        int | None,
        typer.Option(help="Pictures worked on at once, one core each. By default as many as there are cores."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a running Ray cluster: auto, or ray://HOST:10001.")
    ] = None,
    model: common.Model = None,
    engine: common.Engine = "onnxruntime",
    ratio: Annotated[
        list[str] | None,
        common.shapes("WIDTH:HEIGHT", "Shape of the crop windows. Repeat it for several. By default 1:1 and 16:9."),
    ] = None,
    candidates: common.Candidates = 1,
    peaks: Annotated[int, typer.Option(min=1, max=64, help="The most peaks to store for a picture.")] = 3,
    size: Annotated[
        str | None,
        typer.Option(metavar="WIDTHxHEIGHT", help="Also store the log density, at this size.", show_default=False),
    ] = None,
    shard: Annotated[int, typer.Option(min=1, max=100_000, help="Pictures per Parquet file.")] = 256,
    json: common.Json = False,
) -> None:
    """Store the peaks, crop windows and log densities of many pictures in Parquet files.

    A job that was interrupted continues where it stopped when it is started again with the same arguments.
    """
    from fastgaze.runtime.batch import RUNNERS, BatchOptions, run
    from fastgaze.runtime.batch.job import MOST_CELLS

    if engine in RUNNERS:
        raise ArgumentError(f"--engine {engine} is now --runner {engine}; --engine is what computes the network")
    wanted = BatchOptions(
        ratios=tuple(ratio or ("1:1", "16:9")),
        peaks=peaks,
        crops=candidates,
        density=None if size is None else common.read_size(size, MOST_CELLS),
        shard=shard,
    )
    # Ray reports lost nodes on stdout, where only the result belongs.
    with redirect_stdout(sys.stderr), common.progress() as bar:
        task = bar.add_task("pictures", total=None)
        summary = run(
            source,
            output,
            model,
            wanted,
            runner,
            workers,
            address,
            progress=lambda done, total, _: bar.update(task, completed=done, total=total),
            engine=engine,
        )
    if json:
        common.print_json(summary.to_json())
    else:
        _print(summary.to_json())


def _print(facts: Document) -> None:
    common.report(
        f"{facts['output']}: {common.counted(facts['images'], 'picture')}, {facts['done']} of them done in this run, "
        f"{facts['errors']} with an error; {facts['images_per_second']:.1f} pictures per second "
        f"with {common.counted(facts['workers'], facts['runner'] + ' worker')}"
    )
    steps = ", ".join(f"{step} {time:.1f}" for step, time in facts["milliseconds_per_image"].items())
    if steps:
        common.report(f"milliseconds per picture in a worker: {steps}")
