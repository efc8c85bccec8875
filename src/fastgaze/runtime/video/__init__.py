"""Video: gaze maps of every frame, a video with the heat map on it or in another shape, regions for encoders.

reader   a file -> upright frames, and its sound
shots    where one shot ends and the next begins
motion   what moves beside the camera
watch    frames -> saliency, smoothed over time but never across a cut
overlay  a small heat map -> the planes of a YUV frame
writer   frames and sound -> a file that plays even if its writing was cut short
camera   the worth of places over time -> the path of a window
reframe  a video in another shape
roi      grids of QP offsets for encoders
addroi   the same as a few rectangles, for FFmpeg
run      the whole way, with the time of every step
"""

from fastgaze.runtime.video.reader import Reader
from fastgaze.runtime.video.reframe import Reframing, plan, reframe
from fastgaze.runtime.video.run import VideoReport, cuts, maps, render
from fastgaze.runtime.video.watch import Watch

__all__ = ["Reader", "Reframing", "VideoReport", "Watch", "cuts", "maps", "plan", "reframe", "render"]
