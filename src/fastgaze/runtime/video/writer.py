"""Frames and sound into a file that plays even if its writing was cut short."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from fastgaze.core.errors import ArgumentError, DataError, require
from fastgaze.core.files import replacing
from fastgaze.runtime.video.overlay import leave_free
from fastgaze.runtime.video.reader import Reader

if TYPE_CHECKING:
    from av import AudioStream, Packet, VideoFrame, VideoStream
    from av.container import OutputContainer

SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv")
PRESETS = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow")
# The file is written in fragments and becomes a plain MP4 when it is closed; with delay_moov the first fragment knows
# how far the sound begins before the picture.
_FRAGMENTS = "frag_keyframe+delay_moov+hybrid_fragmented"
_KEY_SECONDS = 2
# Without them a player guesses, and guesses differ.
_COLOUR_TAGS = ("colorspace", "color_range", "color_primaries", "color_trc")


class Writer:
    """H.264 in MP4 or Matroska, the sound copied; use it in a ``with`` block, which finishes the file whatever happens.

    A process killed outright leaves a file that plays up to the last key frame, at most two seconds before its end. A
    file that was there before is replaced at the end, and only by a whole one; until then that is beside it under a
    hidden name.
    """

    def __init__(
        self,
        path: Path,
        reader: Reader,
        preset: str = "superfast",
        crf: float = 23,
        threads: int | None = None,
        square: bool = False,
    ) -> None:
        """preset, crf: x264's speed and quality (lower is better). threads: of the encoder, all cores by default.
        square: pixels are square, whatever those of the input are.
        """
        self._av = require("av", "video")
        self.path = path
        check_target(path, reader, preset, crf)
        with ExitStack() as held:
            self._target = held.enter_context(replacing(path)) if path.exists() else path
            self._container = self._open()
            self._held = held.pop_all()
        self._reader, self._threads, self._square = reader, threads, square
        self._options = {"preset": preset, "crf": str(crf)}
        self._video: VideoStream | None = None
        self._sound: dict[int, AudioStream] = {}
        # Sound that comes before the first frame: a stream cannot be added once anything is written.
        self._early: list[Packet[AudioStream]] = []
        self._last: int | None = None

    def _open(self) -> "OutputContainer":
        options = {"flush_packets": "1"}
        if self.path.suffix.lower() != ".mkv":
            options["movflags"] = _FRAGMENTS
        try:
            container: OutputContainer = self._av.open(f"file:{self._target}", "w", options=options)
            return container
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {error.strerror or error}") from error

    def _copy(self, stream: "AudioStream") -> "AudioStream":
        if stream.codec_context is None:
            raise DataError(
                f"FFmpeg does not know the sound of {self._reader.path}; take it out: ffmpeg -i IN -c copy -an OUT"
            )
        try:
            return self._container.add_stream_from_template(stream)
        except (self._av.error.FFmpegError, ValueError) as error:
            raise self._unheld([stream]) from error

    def _unheld(self, streams: "Iterable[AudioStream]") -> DataError:
        kinds = ", ".join(dict.fromkeys(stream.codec_context.name for stream in streams))
        remedy = "convert it first" if self.path.suffix.lower() == ".mkv" else "write a .mkv"
        return DataError(f"{self.path.suffix} cannot hold {kinds} sound; {remedy}")

    def frame(self, frame: "VideoFrame") -> None:
        """Encode one yuv420p frame, all of one size."""
        video = self._video or self._start(frame)
        if self._last is not None and frame.pts is not None and frame.pts <= self._last:
            return  # a player shows one of two frames of the same time
        self._last = frame.pts
        with self._writing():
            self._container.mux(video.encode(leave_free(frame)))

    def _start(self, frame: "VideoFrame") -> "VideoStream":
        video = self._encoder(frame)
        self._sound = {stream.index: self._copy(stream) for stream in self._reader.audio}
        self._head()
        self._video = video
        for packet in self._early:
            self.sound(packet)
        self._early.clear()
        return video

    def _head(self) -> None:
        """Write the head of the file; only here do some containers refuse the sound."""
        with self._writing():
            try:
                self._container.start_encoding()
            except (self._av.error.ArgumentError, self._av.error.InvalidDataError) as error:
                if not self._sound:
                    raise
                raise self._unheld(self._reader.audio) from error

    def _encoder(self, frame: "VideoFrame") -> "VideoStream":
        source = self._reader.stream
        rate = Fraction(self._reader.rate).limit_denominator(1001)
        stream = self._container.add_stream("libx264", rate=rate, options=self._options)
        stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, "yuv420p"
        context = stream.codec_context
        assert frame.time_base is not None
        context.time_base = frame.time_base
        for tag in _COLOUR_TAGS:
            setattr(context, tag, getattr(frame, tag))
        context.gop_size = max(round(_KEY_SECONDS * self._reader.rate), 1)
        if source.sample_aspect_ratio and not self._square:
            context.sample_aspect_ratio = source.sample_aspect_ratio
        if self._threads is not None:
            context.thread_count = self._threads
        return stream

    def sound(self, packet: "Packet[AudioStream]") -> None:
        """Copy one packet of sound."""
        if packet.dts is None:
            return
        if self._video is None:
            self._early.append(packet)
        else:
            packet.stream = self._sound[packet.stream.index]
            with self._writing():
                self._container.mux(packet)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Encode, mux or close in here: an error of FFmpeg's becomes one of ours."""
        try:
            yield
        except self._av.error.FFmpegError as error:
            raise DataError(f"cannot write {self.path}: {error.strerror or error}") from error

    def _finish(self) -> None:
        """Encode what is waiting and close the file."""
        with self._writing():
            try:
                if self._video is not None:
                    self._container.mux(self._video.encode(None))
            finally:
                self._container.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._finish()
        except BaseException as failure:
            self._held.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._held.__exit__(kind, error, trace)


def check_target(path: Path, reader: Reader, preset: str, crf: float) -> None:
    """An error if the video that ``reader`` reads cannot be written to ``path`` with these settings."""
    if path.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"cannot write {path.name!r}: the name of a video ends in {', '.join(SUFFIXES)}")
    if path.exists() and path.samefile(reader.path):
        raise ArgumentError(f"{path} is the input itself; give another name")
    if preset not in PRESETS:
        raise ArgumentError(f"no preset {preset!r}; choose from {', '.join(PRESETS)}")
    if not 0 <= crf <= 51:
        raise ArgumentError(f"crf={crf} is not between 0 and 51")
