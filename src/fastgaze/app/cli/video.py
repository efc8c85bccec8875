"""``fastgaze video``: a video with its heat map."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, TaskID

from fastgaze.app.cli.common import limit_blas, print_json, progress, say


def video(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A video that FFmpeg can read.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The video to write: .mp4, .mov or .mkv.")],
    model: Annotated[str | None, typer.Option(help="A bundled model or an .onnx file.")] = None,
    mode: Annotated[str, typer.Option(help="overlay: heat map over the picture. map: the maps alone.")] = "overlay",
    opacity: Annotated[float, typer.Option(help="Of the heat map at its hottest point, 0..1.")] = 0.7,
    smooth: Annotated[float, typer.Option(help="Smoothing over time in seconds; starts anew at cuts; 0: none.")] = 0.2,
    every: Annotated[int, typer.Option(help="Run the network on every n-th frame and interpolate.")] = 1,
    preset: Annotated[str, typer.Option(help="x264's speed, ultrafast to slow.")] = "superfast",
    crf: Annotated[float, typer.Option(help="x264's quality, 0..51, lower is better.")] = 23,
    threads: Annotated[int | None, typer.Option(help="Of decoder, network and encoder each; all cores.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lay the heat map over a video, the sound copied; an interrupted run leaves a file that plays."""
    limit_blas(threads)
    from fastgaze.runtime.video import Reader, Watch, render

    with Reader(source) as reader:
        total = reader.expected_frames
    with progress() as bar:
        report = render(
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
        print_json({"input": str(source), "output": str(target)} | report.to_json())
    else:
        _print(target, report.to_json())


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


def _print(target: Path, report: dict[str, Any]) -> None:
    steps = ", ".join(f"{step} {time:.1f}" for step, time in report["milliseconds_per_frame"].items())
    say(f"{target}: {report['frames']} frames, {report['shots']} shots, {report['fps']:.1f} fps")
    say(f"milliseconds a frame: {steps}")
