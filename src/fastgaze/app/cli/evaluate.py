"""``fastgaze evaluate`` and ``fastgaze submit``: scores on a data set, and files for the benchmarks."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from fastgaze.app.cli.common import note, out, print_json, progress, say
from fastgaze.core.errors import ArgumentError
from fastgaze.core.sizes import parse_size

if TYPE_CHECKING:
    from fastgaze.evaluation.evaluate import Evaluation

_LABELS = {"uniform": "uniform", "center_bias": "centre bias", "other_observers": "observers"}
_MODEL_HELP = "A bundled name, .onnx, .safetensors or .vxm; several, or a folder of them, are an ensemble."


def evaluate(
    model: Annotated[list[str], typer.Argument(help=_MODEL_HELP)],
    data: Annotated[Path, typer.Option(help="Folder of the data set.")],
    format: Annotated[str, typer.Option(help="Layout of the data; `fastgaze data formats` lists them.")] = "auto",
    protocol: Annotated[str, typer.Option(help="tuebingen or mit-legacy.")] = "tuebingen",
    center_bias: Annotated[
        str, typer.Option(help="own (the data set's, without the image itself), model or none.")
    ] = "own",
    size: Annotated[
        str | None, typer.Option(help="WIDTHxHEIGHT at which the model works; default: the image's or the model's.")
    ] = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Score only the tenth that is never trained on.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Score only so many images, evenly spread.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the network.")] = None,
    seed: Annotated[int, typer.Option(help="Of bootstrap and random choices.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, with a row for each image.")] = False,
) -> None:
    """Score a model on a data set, with confidence intervals and baselines."""
    import numpy as np

    from fastgaze.data import formats
    from fastgaze.data.fixations import held_out as is_held_out
    from fastgaze.evaluation.evaluate import evaluate as run
    from fastgaze.evaluation.models import open_model

    fixations = formats.load(format, data)
    chosen = np.flatnonzero(is_held_out(fixations.names)) if held_out else np.arange(len(fixations))
    if held_out and not len(chosen):
        raise ArgumentError(f"--held-out: none of the {len(fixations)} images of {data} is in the tenth kept out")
    if limit is not None and limit < len(chosen):
        chosen = chosen[np.linspace(0, len(chosen) - 1, limit).astype(int)]
    working = parse_size(size) if size else None
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
    say("log_likelihood in nats, _bits over uniform, information_gain in bits over centre bias")
    if result.skipped:
        note(f"skipped {len(result.skipped)} images without fixations: {', '.join(result.skipped[:5])} ...")


def submit(
    model: Annotated[list[str], typer.Argument(help=_MODEL_HELP)],
    images: Annotated[Path, typer.Option(help="Folder of the benchmark's images.")],
    out_path: Annotated[
        Path,
        typer.Option("--out", help=".hdf5: log densities (MIT/Tuebingen); .zip or folder: 8-bit maps (older MIT)."),
    ],
    center_bias: Annotated[str, typer.Option(help="model or none.")] = "model",
    size: Annotated[str | None, typer.Option(help="WIDTHxHEIGHT at which the model works.")] = None,
    map: Annotated[str, typer.Option(help="Of 8-bit files: density or log.")] = "density",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the network.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict a benchmark's images and write the file that the benchmark takes."""
    from fastgaze.evaluation.models import open_model
    from fastgaze.evaluation.submit import submit as run

    if center_bias not in ("model", "none"):
        raise ArgumentError(f"no centre bias {center_bias!r}; choose model or none")
    working = parse_size(size) if size else None
    opened = open_model(model, resized=working is not None, threads=threads)
    with progress() as bar:

        def track(files: Iterable[Path]) -> Iterable[Path]:
            return bar.track(list(files), description="submit")

        bias: Literal["model"] | None = "model" if center_bias == "model" else None
        count = run(opened, images, out_path, bias, working, map, track)
    if json:
        print_json({"images": count, "out": str(out_path), "model": model, "center_bias": center_bias, "size": working})
    else:
        say(f"{count} images -> {out_path}")
