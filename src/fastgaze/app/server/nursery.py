"""The process that workers are forked from: it loads the models once and never sees a picture.

    python -m fastgaze.app.server.nursery FD

FD is a socket to the server. Over it come the settings, and then one byte with a socket for every worker wanted. A
worker is a fork: it starts in a few milliseconds and shares the models' memory with all others. A fork is safe as long
as there is one thread, which holds for onnxruntime with one thread; otherwise every worker loads the models itself.

A worker looks at one picture at a time, within a limit of CPU time (a timer whose signal ends the process) and of
memory. Whatever a picture does to it, the server forks another. Workers and nursery end when the server's sockets do.
"""

import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from time import process_time

import numpy as np
from PIL import Image

from fastgaze.app.server import jobs, wire
from fastgaze.app.server.limits import ApiError, Limits
from fastgaze.core.errors import FastGazeError
from fastgaze.core.jsonable import Document
from fastgaze.runtime.predictor import Predictor, load

LIGHT, HEAVY = b"l", b"h"


@dataclass(frozen=True)
class Allowance:
    """What a worker of one kind may use."""

    memory: int
    """Bytes above what the nursery has."""
    cpu_share: float
    """CPU time for one task, as a share of ``Limits.seconds``."""
    niceness: int
    """Light work goes first."""


LIGHT_SHARE = 0.1
"""What a light worker cannot do in this share of the time goes to a heavy one, which has all of it."""
ALLOWANCES = {LIGHT: Allowance(176 << 20, LIGHT_SHARE, 0), HEAVY: Allowance(340 << 20, 1.0, 10)}
_RECYCLE_BYTES = 56 << 20
"""A worker that has grown by this much makes room for a fresh one: engines keep what they once allocated."""


@dataclass(frozen=True)
class NurserySettings:
    """What the server says at the start."""

    models: list[str]
    engine: str
    threads: int
    limits: Document

    @property
    def forks_loaded(self) -> bool:
        """Whether the models are loaded before the forks."""
        return self.engine == "onnxruntime" and self.threads == 1

    def load(self) -> dict[str, Predictor]:
        """The models by name."""
        predictors = [load(name, self.engine, self.threads) for name in self.models]
        return {predictor.name: predictor for predictor in predictors}


def main() -> None:
    """Load, then fork until the server is gone."""
    # A terminal's Ctrl+C and a service manager's SIGTERM reach the whole group; the server alone decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    control = socket.socket(fileno=int(sys.argv[1]))
    settings = NurserySettings(**json.loads(wire.receive(control)[0]))
    try:
        predictors = _warmed(settings.load())
    except FastGazeError as error:
        control.sendall(wire.pack(wire.Outcome("error", message=str(error))))
        return
    control.sendall(wire.pack(wire.Outcome("hello", pid=os.getpid())))
    _silence()
    gc.collect()
    gc.freeze()
    while True:
        kind, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            return
        if os.fork() == 0:
            control.close()
            _live(socket.socket(fileno=descriptors[0]), kind, settings, predictors)
        os.close(descriptors[0])


def _warmed(predictors: dict[str, Predictor]) -> dict[str, Predictor]:
    """Load what is loaded at first use: decoders, and the default model's buffers."""
    Image.init()
    next(iter(predictors.values())).predict(np.zeros((240, 320, 3), np.uint8), (24, 32))
    return predictors


def _silence() -> None:
    """Decoders write to stderr and warn about every odd file; a client gets an answer instead."""
    warnings.simplefilter("ignore")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)


def _live(connection: socket.socket, kind: bytes, settings: NurserySettings, predictors: dict[str, Predictor]) -> None:
    """A worker's whole life."""
    try:
        if settings.forks_loaded:
            for predictor in predictors.values():
                predictor.inherit()
        else:
            predictors = settings.load()
        allowance = ALLOWANCES[kind]
        os.nice(allowance.niceness)
        limits = Limits(**settings.limits)
        born = _data_bytes()
        _limit_memory(born + allowance.memory)
        connection.sendall(wire.pack(wire.Outcome("hello", pid=os.getpid())))
        grown = False
        while not grown:
            facts, content = wire.receive(connection)
            signal.setitimer(signal.ITIMER_PROF, max(allowance.cpu_share * limits.seconds, 0.1))
            start = process_time()
            outcome, answer = _do(wire.unpack(wire.Task, facts), content, predictors, limits, kind == HEAVY)
            signal.setitimer(signal.ITIMER_PROF, 0)
            grown = outcome.kind == "bug" or _data_bytes() - len(answer) > born + _RECYCLE_BYTES
            said = replace(outcome, last=grown, seconds=round(process_time() - start, 4))
            connection.sendall(wire.pack(said, len(answer)))
            connection.sendall(answer)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # not the nursery's own way out


def _do(
    task: wire.Task, content: bytes, predictors: Mapping[str, Predictor], limits: Limits, heavy: bool
) -> tuple[wire.Outcome, bytes]:
    try:
        found = jobs.work(task, content, predictors, limits, heavy)
    except ApiError as error:
        if not (error.code == jobs.NO_MEMORY and not heavy):
            return wire.Outcome("error", status=error.status, code=error.code, message=error.message), b""
        return wire.Outcome("needs", heavy=True), b""
    except Exception:
        return wire.Outcome("bug", message=traceback.format_exc(limit=8)), b""
    if isinstance(found, jobs.Several):
        parts = [list(part) for part in found.pictures]
        return wire.Outcome("parts", parts=parts, names=found.names, options=asdict(found.options)), b""
    if isinstance(found, jobs.Needs):
        return wire.Outcome("needs", heavy=found.heavy, size=found.size, cost=found.seconds), b""
    return wire.Outcome("answer", media_type=found.media_type), found.content


def _data_bytes() -> int:
    """Private memory that the process has mapped, written or not; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except OSError:
        return 0


def _limit_memory(most: int) -> None:
    if _data_bytes():
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    main()
