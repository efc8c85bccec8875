"""What ``GET /metrics`` says, in the text format of Prometheus."""

import os
import resource
from bisect import bisect_left
from collections import Counter

from fastgaze import __version__
from fastgaze.app.server.budget import Budget
from fastgaze.app.server.pool import Pool

_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts of one server."""

    def __init__(self, pool: Pool, uploads: Budget, answers: Budget) -> None:
        self._pool = pool
        self._budgets = {"uploads": uploads, "answers": answers}
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        """One request has been answered; ``path`` is a route, never a client's own words."""
        self._requests[method, path, status] += 1
        if path.startswith("/v1/"):
            buckets = self._seconds.setdefault(path, [0] * (len(_BOUNDS) + 1))
            buckets[bisect_left(_BOUNDS, seconds)] += 1
            self._sums[path] += seconds  # type: ignore[assignment]

    def text(self) -> str:
        """All of them."""
        pool = self._pool
        lines = ["# TYPE fastgaze_info gauge", f'fastgaze_info{{version="{__version__}"}} 1']
        lines.append("# TYPE fastgaze_requests_total counter")
        for (method, path, status), n in sorted(self._requests.items()):
            lines.append(f'fastgaze_requests_total{{method="{method}",path="{path}",status="{status}"}} {n}')
        lines += self._histogram()
        lines += _gauge("requests_in_flight", "", {"": pool.in_flight})
        lanes = {"light": pool.light, "heavy": pool.heavy}
        lines += _gauge("workers", "kind", {name: len(lane.workers) for name, lane in lanes.items()})
        lines += _gauge("tasks_waiting", "kind", {name: lane.waiting for name, lane in lanes.items()})
        lines += _counter("tasks_total", "kind", {name: lane.tasks for name, lane in lanes.items()})
        used = {rank: used + pool.heavy.cpu_seconds[rank] for rank, used in pool.light.cpu_seconds.items()}
        lines += _counter("tasks_cpu_seconds_total", "rank", {rank: round(n, 3) for rank, n in used.items()})
        lines += _gauge("held_bytes", "what", {name: budget.held for name, budget in self._budgets.items()})
        lines += _counter("workers_replaced_total", "why", dict(sorted(pool.events.items())))
        lines += _counter("slow_clients_total", "what", {name: b.given_up for name, b in self._budgets.items()})
        usage = resource.getrusage(resource.RUSAGE_SELF)
        lines += _counter("server_cpu_seconds_total", "", {"": round(usage.ru_utime + usage.ru_stime, 3)})
        lines += _gauge("server_memory_bytes", "", {"": _resident_bytes()})
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name, lines = "fastgaze_request_seconds", ["# TYPE fastgaze_request_seconds histogram"]
        for path, buckets in sorted(self._seconds.items()):
            total = 0
            for bound, n in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
                total += n
                lines.append(f'{name}_bucket{{path="{path}",le="{bound}"}} {total}')
            lines.append(f'{name}_sum{{path="{path}"}} {self._sums[path]:.6f}')
            lines.append(f'{name}_count{{path="{path}"}} {total}')
        return lines


def _gauge(name: str, label: str, values: dict[str, int]) -> list[str]:
    return [f"# TYPE fastgaze_{name} gauge", *_samples(name, label, values)]


def _counter(name: str, label: str, values: dict[str, int] | dict[str, float]) -> list[str]:
    return [f"# TYPE fastgaze_{name} counter", *_samples(name, label, values)]


def _samples(name: str, label: str, values: dict[str, int] | dict[str, float]) -> list[str]:
    return [f'fastgaze_{name}{{{label}="{key}"}} {n}' if label else f"fastgaze_{name} {n}" for key, n in values.items()]


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
