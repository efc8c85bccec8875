"""``fastgaze.video.maps(path)``: (time, gaze map) of every frame; ``render`` writes a video with its heat map."""

from fastgaze.runtime.video import Report, Watch, maps, render

__all__ = ["Report", "Watch", "maps", "render"]
