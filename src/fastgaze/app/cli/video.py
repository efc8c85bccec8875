"""``fastgaze video`` and ``fastgaze reframe``: a heat map over a video, and a video in another shape."""

from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from fastgaze.app.cli import common
from fastgaze.app.cli.common import Json, counted, limit_blas, print_json, progress, report
from fastgaze.core.errors import ArgumentError
from fastgaze.core.files import write_whole
from fastgaze.core.jsonable import Document
from fastgaze.core.sizes import Size, format_size

Source = Annotated[Path, typer.Argument(metavar="INPUT", help="A video that FFmpeg can read.", show_default=False)]
Smooth = Annotated[
    float, typer.Option(min=0, help="Seconds over which maps are smoothed, within a shot; 0 turns it off.")
]
Moving = Annotated[
    float, typer.Option("--motion", min=0, max=10, help="How much motion draws attention; 0 leaves it out.")
]
Every = Annotated[int, typer.Option(min=1, help="Predict every n-th frame only, and interpolate between them.")]
AllThreads = Annotated[
    int | None, typer.Option(min=1, help="Threads of each of decoder, network and encoder. By default all cores.")
]

# Sizes are whole and even numbers, so 1080x1920 and 406x720 are both 9:16.
_SAME_SHAPE = 0.02


def video(
    source: Source,
    target: Annotated[
        Path,
        typer.Argument(metavar="OUTPUT", help="The video to write: .mp4, .mov or .mkv.", show_default=False),
    ],
    model: common.Model = None,
    mode: Annotated[
        str, typer.Option(help="overlay (the heat map over the picture) or map (the maps alone).")
    ] = "overlay",
    opacity: Annotated[float, typer.Option(min=0, max=1, help="Opacity of the heat map at its highest point.")] = 0.7,
    smooth: Smooth = 0.2,
    motion: Moving = 0.5,
    every: Every = 1,
    preset: Annotated[str, typer.Option(help="Preset of x264, from ultrafast to slow.")] = "superfast",
    crf: Annotated[float, typer.Option(help="Quality of x264, from 0 (best) to 51.")] = 23,
    threads: AllThreads = None,
    json: Json = False,
) -> None:
    """Lay the heat map over a video and copy its sound.

    If the run is interrupted, what was written until then plays.
    """
    limit_blas(threads)
    from fastgaze.runtime.video import Reader, Watch, render

    with Reader(source) as reader:
        total = reader.expected_frames
    with progress() as bar:
        summary = render(
            source,
            target,
            model,
            mode=mode,
            opacity=opacity,
            watching=Watch(smooth, every, motion),
            preset=preset,
            crf=crf,
            threads=threads,
            progress=Counter(bar, source.name, total),
        )
    if json:
        print_json({"input": str(source), "output": str(target)} | summary.to_json())
    else:
        _print(target, summary.to_json())


def reframe(
    source: Source,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUTPUT",
            help="The video to write: .mp4, .mov or .mkv; or NAME.json for the keyframes alone.",
            show_default=False,
        ),
    ],
    ratio: Annotated[
        str | None, typer.Option(help="Width:height of the result, such as 9:16; by default that of --size.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="WIDTHxHEIGHT", help="Size of the result; by default the window keeps its pixels."),
    ] = None,
    model: common.Model = None,
    preset: Annotated[str, typer.Option(help="Preset of x264, from ultrafast to slow.")] = "superfast",
    crf: Annotated[float, typer.Option(help="Quality of x264, from 0 (best) to 51.")] = 20,
    threads: AllThreads = None,
    json: Json = False,
) -> None:
    """Give a video another shape: a window follows what people look at and jumps only at cuts.

    Sound and times stay as they are. With --json, the keyframes of the window are printed for use in an editor.
    """
    limit_blas(threads)
    from fastgaze.runtime import video as library

    wanted = None if size is None else _even(common.read_size(size))
    shape = _shape(ratio, wanted)
    with library.Reader(source) as reader:
        total = reader.expected_frames
    alone = target.suffix.lower() == ".json"
    with progress() as bar:
        counter = Counter(bar, source.name, None if total is None else total * (1 if alone else 2))
        if alone:
            found = library.plan(source, shape, model, threads=threads, progress=counter)
        else:
            found = library.reframe(
                source, target, shape, wanted, model, preset=preset, crf=crf, threads=threads, progress=counter
            )
    facts = {"input": str(source), "output": str(target)} | found.to_json()
    if alone:
        write_whole(target, (dumps(facts, indent=2) + "\n").encode())
    if json:
        print_json(facts)
    else:
        window = f"a window of {format_size(found.window)} in {format_size(found.size)}"
        report(f"{target}: {counted(found.frames, 'frame')}, {counted(len(found.shots), 'shot')}, {window}")


def _even(size: Size) -> Size:
    if size[0] % 2 or size[1] % 2:
        nearest = format_size((max(size[0] & ~1, 2), max(size[1] & ~1, 2)))
        raise ArgumentError(
            f"--size {format_size(size)} has an odd side; the encoder needs even ones, such as {nearest}"
        )
    return size


def _shape(ratio: str | None, size: Size | None) -> float:
    """Width over height of the result."""
    from fastgaze.runtime.crop import parse_ratio

    if ratio is None:
        if size is None:
            raise ArgumentError("give --ratio, such as 9:16, or --size, such as 1080x1920")
        return size[1] / size[0]
    shape = parse_ratio(ratio)
    if size is not None and abs(size[1] / size[0] / shape - 1) > _SAME_SHAPE:
        raise ArgumentError(f"--size {size[1]}x{size[0]} does not have the --ratio {ratio}; give one of them")
    return shape


class Counter:
    """Shows frames done and frames per second on a progress bar."""

    def __init__(self, bar: Progress, name: str, total: int | None) -> None:
        self._bar, self._name = bar, name
        self._task: TaskID = bar.add_task(name, total=total)

    def __call__(self, done: int, _total: int | None, _note: str) -> None:
        """Show that ``done`` frames are finished."""
        speed = self._bar.tasks[self._task].speed
        rate = f" {speed:.0f} fps" if speed else ""
        self._bar.update(self._task, completed=done, description=self._name + rate)


def _print(target: Path, facts: Document) -> None:
    steps = ", ".join(f"{step} {time:.1f}" for step, time in facts["milliseconds_per_frame"].items())
    seen = f"{counted(facts['frames'], 'frame')}, {counted(facts['shots'], 'shot')}"
    report(f"{target}: {seen}, {facts['fps']:.1f} frames per second")
    report(f"milliseconds per frame: {steps}")
