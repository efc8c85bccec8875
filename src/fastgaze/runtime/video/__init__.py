"""Video: gaze maps of every frame, and a video with the heat map on it, in constant memory.

reader   a file -> upright frames, and its sound
shots    where one shot ends and the next begins
watch    frames -> saliency, smoothed over time but never across a cut
overlay  a small heat map -> the planes of a YUV frame
writer   frames and sound -> a file that plays even if its writing was cut short
run      the whole way, with the time of every step
"""

from fastgaze.runtime.video.reader import Reader
from fastgaze.runtime.video.run import VideoReport, cuts, maps, render
from fastgaze.runtime.video.watch import Watch

__all__ = ["Reader", "VideoReport", "Watch", "cuts", "maps", "render"]
