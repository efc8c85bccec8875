"""``fastgaze bench``: how fast a model is on this machine."""

from typing import Annotated

import typer

from fastgaze.app.cli import common
from fastgaze.core.jsonable import Document


def bench(
    model: Annotated[
        str | None,
        typer.Argument(
            help=f"{common.MODEL_HELP} By default the default model.", autocompletion=common.complete_models
        ),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            metavar="WIDTHxHEIGHT",
            help="Size of the picture and of the network's input, multiples of the model's stride.",
        ),
    ] = "512x384",
    threads: common.Threads = 1,
    engine: common.Engine = "onnxruntime",
    rounds: Annotated[int, typer.Option(min=3, help="Number of interleaved rounds.")] = 30,
    against: Annotated[
        str | None,
        typer.Option(help="A second model, measured in the same rounds.", autocompletion=common.complete_models),
    ] = None,
    cold: Annotated[bool, typer.Option(help="Measure fresh processes as well.")] = True,
    json: common.Json = False,
) -> None:
    """Measure the time of a prediction, the share of the core's peak that it reaches, cold start and memory.

    With --against, print the ratio of the times of two models.
    """
    common.limit_blas(threads)
    from fastgaze.evaluation.bench import BenchSetup
    from fastgaze.evaluation.bench import bench as measure

    result = measure(BenchSetup(model, common.read_size(size), engine, threads, rounds), against, cold)
    if json:
        common.print_json(result)
    else:
        _print(result)


def _print(result: Document) -> None:
    say = common.say
    say(
        f"{result['model']} on {result['engine']}, {result['threads']} thread(s), {result['rounds']} rounds, "
        f"network input {_size(result['size'])}"
    )
    say(f"  {_time(result)}, {_split(result)}, {result['gflop']:.2f} GFLOP")
    rate, peak, share = result["gflop_per_s"], result["peak_gflop_per_s"], result["peak_share"]
    say(f"  network {rate:.0f} GFLOP/s, {share:.0%} of the {peak:.0f} that a large matrix product reached meanwhile")
    own = result["own_size"]
    place = _size(own["working_size"])
    say(f"  at its own working size {place}: {_time(own)}, {_split(own)}, {own['gflop']:.2f} GFLOP")
    if "cold_start_s" in result:
        say(f"  fresh process: {result['cold_start_s']:.2f} s, at most {result['peak_rss_mb']:.0f} MB")
    if "against" in result:
        other = result["against"]
        spread = f"{other['p10_ratio']:.2f} to {other['p90_ratio']:.2f}"
        say(f"  {other['model']}: {_time(other)}; {other['ratio']:.2f} times this model's time ({spread})")


def _time(part: Document) -> str:
    return f"{part['median_ms']:.2f} ms ({part['p10_ms']:.2f} to {part['p90_ms']:.2f}; CPU {part['cpu_ms']:.2f})"


def _split(part: Document) -> str:
    steps = ", ".join(f"{step} {time:.2f}" for step, time in part["split_cpu_ms"].items())
    return f"{steps}, outside the network {part['outside_share']:.0%}"


def _size(size: dict[str, int]) -> str:
    return f"{size['width']}x{size['height']}"
