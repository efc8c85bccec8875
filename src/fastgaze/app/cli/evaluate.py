"""``fastgaze evaluate`` and ``fastgaze submit``: scores on a data set, and files for the benchmarks."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fastgaze.app.cli.common import (
    Json,
    complete_models,
    note,
    out,
    print_json,
    progress,
    read_size,
    refuse_stdout,
    report,
    say,
)
from fastgaze.core.errors import ArgumentError

if TYPE_CHECKING:
    from fastgaze.evaluation.evaluate import Evaluation

_LABELS = {"uniform": "uniform", "center_bias": "centre bias", "other_observers": "observers"}
Models = Annotated[
    list[str],
    typer.Argument(
        help="A bundled model, or an .onnx, .safetensors or .vxm file. Several, or a folder of them, are an ensemble.",
        autocompletion=complete_models,
        show_default=False,
    ),
]
WorkingSize = Annotated[
    str | None,
    typer.Option(
        metavar="WIDTHxHEIGHT",
        help="Size at which the network works. By default that of the model, or else of the image.",
        show_default=False,
    ),
]
ComputeThreads = Annotated[
    int | None, typer.Option(min=1, help="Threads that compute one prediction. By default all cores.")
]


def evaluate(
    model: Models,
    data: Annotated[Path, typer.Option(help="Folder of the data set.", show_default=False)],
    layout: Annotated[str, typer.Option(help="Layout of the data; `fastgaze data layouts` lists them.")] = "auto",
    protocol: Annotated[str, typer.Option(help="How to score: tuebingen or mit-legacy.")] = "tuebingen",
    center_bias: Annotated[
        str, typer.Option(help="own (of the data set, without the image that is scored), model or none.")
    ] = "own",
    size: WorkingSize = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Score only the tenth of the images that is never trained on.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Score only this many images, spread evenly over the data set.")
    ] = None,
    threads: ComputeThreads = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap and of other random choices.")] = 0,
    json: Json = False,
) -> None:
    """Score a model on a data set, with confidence intervals and baselines.

    With --json, the scores of each image are printed too.
    """
    import numpy as np

    from fastgaze.data import formats
    from fastgaze.data.fixations import held_out as is_held_out
    from fastgaze.evaluation.evaluate import evaluate as run
    from fastgaze.evaluation.models import open_model

    fixations = formats.load(layout, data)
    chosen = np.flatnonzero(is_held_out(fixations.names)) if held_out else np.arange(len(fixations))
    if held_out and not len(chosen):
        raise ArgumentError(f"none of the {len(fixations)} images of {data} is held out; leave out --held-out")
    if limit is not None and limit < len(chosen):
        chosen = chosen[np.linspace(0, len(chosen) - 1, limit).astype(int)]
    working = read_size(size) if size else None
    with progress() as bar:

        def track(items: Iterable[int]) -> Iterable[int]:
            return bar.track(list(items), description="evaluate")

        result = run(
            open_model(model, resized=working is not None, threads=threads),
            fixations,
            protocol=protocol,
            center_bias=center_bias,
            size=working,
            seed=seed,
            model_name=", ".join(model),
            data_name=str(data),
            only=chosen,
            track=track,
        )
    if json:
        print_json(result.to_json())
    else:
        _print_table(result)


def _print_table(result: "Evaluation") -> None:
    say(
        f"{result.data}: {result.images} images, {result.fixations} fixations, protocol {result.protocol}, "
        f"centre bias {result.center_bias}"
    )
    table = Table(box=None, pad_edge=False)  # fits 80 columns
    for column in ("", "model", "95% interval", *(_LABELS[name] for name in result.baselines)):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for metric, mean in result.means.items():
        low, high = result.intervals[metric]
        beside = [f"{scores[metric]:.4f}" if metric in scores else "" for scores in result.baselines.values()]
        table.add_row(metric, f"{mean:.4f}", f"{low:.3f} {high:.3f}", *beside)
    out.print(table)
    say("log_likelihood is in nats, log_likelihood_bits in bits over a uniform density,")
    say("information_gain in bits over the centre bias.")
    if result.skipped:
        more = ", ..." if len(result.skipped) > 5 else ""
        note(f"skipped {len(result.skipped)} images without fixations: {', '.join(result.skipped[:5])}{more}")


def submit(
    model: Models,
    images: Annotated[Path, typer.Option(help="Folder of the benchmark's images.", show_default=False)],
    out_path: Annotated[
        Path,
        typer.Option(
            "--out",
            help="A .hdf5 file for log densities (MIT/Tuebingen), a .zip file or a folder for 8-bit maps (older MIT).",
            callback=refuse_stdout,
            show_default=False,
        ),
    ],
    center_bias: Annotated[str, typer.Option(help="model, photograph, screen or none.")] = "model",
    size: WorkingSize = None,
    map: Annotated[str, typer.Option(help="What 8-bit maps show: density or log.")] = "density",
    threads: ComputeThreads = None,
    json: Json = False,
) -> None:
    """Predict the images of a benchmark and write the file that the benchmark accepts."""
    from fastgaze.core.center_bias import BIASES
    from fastgaze.evaluation.models import open_model
    from fastgaze.evaluation.submit import submit as run

    if center_bias not in BIASES:
        raise ArgumentError(f"--center-bias {center_bias!r} is none of {', '.join(BIASES)}")
    working = read_size(size) if size else None
    opened = open_model(model, resized=working is not None, threads=threads)
    with progress() as bar:

        def track(files: Iterable[Path]) -> Iterable[Path]:
            return bar.track(list(files), description="submit")

        count = run(opened, images, out_path, BIASES[center_bias], working, map, track)
    if json:
        print_json({"images": count, "out": str(out_path), "model": model, "center_bias": center_bias, "size": working})
    else:
        report(f"{count} images -> {out_path}")
