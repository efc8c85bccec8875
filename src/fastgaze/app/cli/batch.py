"""``fastgaze batch``: many images into Parquet, on this machine or on Ray."""

from typing import Annotated, Any

import typer

from fastgaze.app.cli.common import print_json, progress, say
from fastgaze.core.sizes import parse_size


def batch(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="A folder, glob, list (.txt), .parquet or URL.")],
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="A folder for Parquet files, or its URL.")],
    engine: Annotated[str, typer.Option(help="local: processes on this machine. ray: Ray Data.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Processes or actors, one core each; all cores.")] = None,
    address: Annotated[str | None, typer.Option(help="A running Ray cluster: auto, or ray://host:10001.")] = None,
    model: Annotated[str | None, typer.Option(help="A bundled model or an .onnx file.")] = None,
    ratios: Annotated[str, typer.Option(help="Ratios of the crop windows, separated by commas.")] = "1:1,16:9",
    crops: Annotated[int, typer.Option(help="The most windows a ratio.")] = 1,
    peaks: Annotated[int, typer.Option(help="The most peaks an image.")] = 3,
    density: Annotated[str | None, typer.Option(help="Keep a log density of WIDTHxHEIGHT.")] = None,
    shard: Annotated[int, typer.Option(help="Images a file.")] = 256,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Peaks, crop windows and log densities of many images; started again it goes on where it was."""
    from fastgaze.runtime.batch import BatchOptions, run

    wanted = BatchOptions(
        ratios=tuple(ratio.strip() for ratio in ratios.split(",")),
        peaks=peaks,
        crops=crops,
        density=None if density is None else parse_size(density),
        shard=shard,
    )
    with progress() as bar:
        task = bar.add_task("images", total=None)
        summary = run(
            source,
            output,
            model,
            wanted,
            engine,
            workers,
            address,
            progress=lambda done, total, _: bar.update(task, completed=done, total=total),
        )
    if json:
        print_json(summary.to_json())
    else:
        _print(summary.to_json())


def _print(facts: dict[str, Any]) -> None:
    say(
        f"{facts['output']}: {facts['images']} images, {facts['done']} of them now, {facts['errors']} with an error, "
        f"{facts['images_per_second']:.1f} images a second with {facts['workers']} {facts['runner']} workers"
    )
    steps = ", ".join(f"{step} {time:.1f}" for step, time in facts["milliseconds_per_image"].items())
    if steps:
        say(f"milliseconds of a worker an image: {steps}")
