"""Small videos: written, and read back."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

SIZE = (144, 256)  # (height, width)
RATE = 25  # frames per second


def spot(x: int, y: int, level: int = 60) -> np.ndarray:
    """A grey picture with one bright square around (x, y)."""
    picture = np.full((*SIZE, 3), level, np.uint8)
    picture[y - 16 : y + 16, x - 16 : x + 16] = 255
    return picture


def write_clip(
    path: Path, pictures: list[np.ndarray], sound: str | None = "aac", pixel_format: str = "yuv420p"
) -> Path:
    """``pictures`` as the frames of a video, with a sound if one is named."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=RATE, options={"crf": "10", "preset": "ultrafast"})
        video.height, video.width, video.pix_fmt = *pictures[0].shape[:2], pixel_format
        audio = container.add_stream(sound, rate=8000, layout="mono") if sound else None
        for index, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if audio is not None:
            assert isinstance(audio, av.AudioStream)
            for start in range(0, 8000 * len(pictures) // RATE, 1024):
                wave = np.sin(np.arange(start, start + 1024) / 5).astype(np.float32)[None]
                chunk = av.AudioFrame.from_ndarray(wave, format="fltp", layout="mono")
                chunk.sample_rate, chunk.pts, chunk.time_base = 8000, start, Fraction(1, 8000)
                container.mux(audio.encode(chunk))
            container.mux(audio.encode(None))
    return path


def packets(path: Path) -> list[tuple[int | None, bytes]]:
    """(time, content) of every packet of sound."""
    with av.open(str(path)) as container:
        return [(packet.pts, bytes(packet)) for packet in container.demux(audio=0) if packet.size]


def decoded(path: Path) -> list[np.ndarray]:
    """uint8 (H, W, 3) of every frame, RGB."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def frame_times(path: Path) -> list[float]:
    """Seconds of every frame."""
    with av.open(str(path)) as container:
        return [frame.time for frame in container.decode(video=0)]
