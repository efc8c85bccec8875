"""A video file as upright frames in display order, with the packets of its sound in between."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fastgaze.core.errors import DataError, require
from fastgaze.core.progress import Clock
from fastgaze.core.sizes import Size

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.container import InputContainer
    from av.filter import Graph

# Counter-clockwise degrees that the display matrix asks for, and the filters that do it.
_UPRIGHT = {90: ("transpose=cclock",), -90: ("transpose=clock",), 180: ("hflip", "vflip"), -180: ("hflip", "vflip")}

# AVI tells when a frame is decoded; B-frames are shown in another order.
_ORDER_ONLY = ("avi",)
_USUAL_RATE = 25.0
_RATES = (1e-3, 1e6)


class Reader:
    """One video file, read once from start to end; use it in a ``with`` block."""

    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        """``threads``: of the decoder, chosen by FFmpeg by default."""
        self._av = require("av", "video")
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError(f"no video file {self.path}")
        self._container = self._open()
        try:
            self._prepare(threads)
        except BaseException:
            self.close()
            raise

    def _open(self) -> "InputContainer":
        try:
            # Titles and comments, which are not read here, come in any encoding.
            # The prefix keeps FFmpeg from taking a name such as concat:a.mp4 for a protocol.
            container: InputContainer = self._av.open(f"file:{self.path}", metadata_errors="replace")
            return container
        except (self._av.error.FFmpegError, ValueError) as error:
            raise DataError(f"{self.path} is not a video that FFmpeg can read ({_reason(error)})") from error

    def _prepare(self, threads: int | None) -> None:
        if not self._container.streams.video:
            raise DataError(f"{self.path} has no video stream")
        self.stream = self._container.streams.video[0]
        if self.stream.codec_context is None:
            raise DataError(f"{self.path} has a video stream that FFmpeg has no decoder for; convert it first")
        self.stream.thread_type = "AUTO"
        if threads is not None:
            self.stream.codec_context.thread_count = threads
        self.audio = list(self._container.streams.audio)
        self._graph: Graph | None = None
        self._turn = 0
        self._last: int | None = None
        self._timed_by_order = self._container.format.name in _ORDER_ONLY

    @property
    def rate(self) -> float:
        """Frames per second, the average the file states; 25 when it states none or an impossible one."""
        rate = float(self.stream.average_rate or self.stream.guessed_rate or _USUAL_RATE)
        return rate if _RATES[0] <= rate <= _RATES[1] else _USUAL_RATE

    @property
    def duration(self) -> float | None:
        """Seconds, if the file says."""
        if self.stream.duration is not None and self.stream.time_base is not None:
            return float(self.stream.duration * self.stream.time_base)
        return None if self._container.duration is None else self._container.duration / self._av.time_base

    @property
    def expected_frames(self) -> int | None:
        """About how many frames there are, if the file says."""
        if self.stream.frames:
            return int(self.stream.frames)
        return None if self.duration is None else max(round(self.duration * self.rate), 1)

    def frames(self, clock: Clock | None = None) -> "Iterator[VideoFrame]":
        """Upright frames, each with ``pts`` and ``time_base``."""
        for kind, item in self.items(clock, sound=False):
            if kind == "frame":
                yield item

    def items(self, clock: Clock | None = None, sound: bool = True) -> Iterator[tuple[str, Any]]:
        """("frame", upright frame) and ("sound", packet), as they lie in the file."""
        clock = clock or Clock()
        packets = self._container.demux([self.stream, *(self.audio if sound else [])])
        while True:
            with clock("decode"):
                packet, frames = self._next(packets)
            if packet is None:
                return
            if packet.stream.type == "audio":
                yield "sound", packet
            for frame in frames:
                yield "frame", frame

    def _next(self, packets: "Iterator[Packet[Any]]") -> "tuple[Packet[Any] | None, list[VideoFrame]]":
        """The next packet and what it decodes to. Damaged packets give nothing, as in every player."""
        try:
            packet = next(packets, None)
        except self._av.error.FFmpegError as error:
            raise DataError(f"{self.path} cannot be read further ({_reason(error)}); it is damaged") from error
        if packet is None or packet.stream.type == "audio":
            return packet, []
        try:
            decoded = packet.decode()
        except self._av.error.FFmpegError:
            return packet, []
        return packet, [self._timed(self._upright(frame)) for frame in decoded]

    def _timed(self, frame: "VideoFrame") -> "VideoFrame":
        """Bare streams and AVI do not say when a frame is shown: then frames follow each other at the file's rate."""
        if frame.pts is None or self._timed_by_order:
            base = frame.time_base = self.stream.time_base
            assert base is not None
            frame.pts = 0 if self._last is None else self._last + max(round(1 / self.rate / base), 1)
        self._last = frame.pts
        return frame

    def _upright(self, frame: "VideoFrame") -> "VideoFrame":
        turn = round(getattr(frame, "rotation", 0))
        if turn not in _UPRIGHT:
            return frame
        if self._graph is None or turn != self._turn:
            self._graph, self._turn = self._turning(frame, turn), turn
        pts, base = frame.pts, frame.time_base
        self._graph.push(frame)
        upright = cast("VideoFrame", self._graph.pull())
        upright.pts, upright.time_base = pts, base
        return upright

    def _turning(self, frame: "VideoFrame", turn: int) -> "Graph":
        graph: Graph = self._av.filter.Graph()
        nodes = [graph.add_buffer(template=self.stream, time_base=frame.time_base)]
        for text in _UPRIGHT[turn]:
            name, _, arguments = text.partition("=")
            nodes.append(graph.add(name, arguments or None))
        nodes.append(graph.add("buffersink"))
        for before, after in pairwise(nodes):
            before.link_to(after)
        graph.configure()
        return graph

    def close(self) -> None:
        """Release the file."""
        self._container.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def frame_time(frame: "VideoFrame") -> float:
    """Seconds from the start of the file's clock."""
    return 0.0 if frame.pts is None or frame.time_base is None else float(frame.pts * frame.time_base)


def frame_size(frame: "VideoFrame") -> Size:
    """(height, width)."""
    return int(frame.height), int(frame.width)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
