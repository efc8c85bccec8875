"""``fastgaze video``: a heat map over a video."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from fastgaze.app.cli import common
from fastgaze.app.cli.common import Json, limit_blas, print_json, progress, report
from fastgaze.core.jsonable import Document

Source = Annotated[Path, typer.Argument(metavar="INPUT", help="A video that FFmpeg can read.", show_default=False)]
Smooth = Annotated[
    float, typer.Option(min=0, help="Seconds over which maps are smoothed, within a shot; 0 turns it off.")
]
Every = Annotated[int, typer.Option(min=1, help="Predict every n-th frame only, and interpolate between them.")]
AllThreads = Annotated[
    int | None, typer.Option(min=1, help="Threads of each of decoder, network and encoder. By default all cores.")
]


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
            watching=Watch(smooth, every),
            preset=preset,
            crf=crf,
            threads=threads,
            progress=Counter(bar, source.name, total),
        )
    if json:
        print_json({"input": str(source), "output": str(target)} | summary.to_json())
    else:
        _print(target, summary.to_json())


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
    report(f"{target}: {facts['frames']} frames, {facts['shots']} shots, {facts['fps']:.1f} frames per second")
    report(f"milliseconds per frame: {steps}")
