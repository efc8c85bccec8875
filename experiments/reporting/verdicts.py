"""Estimates with intervals, the verdicts that follow from them, and the claims of the paper that they decide."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy import stats

RESAMPLES = 2000


class Verdict(StrEnum):
    """What our numbers say about a claim."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval; without an interval nothing can be decided."""

    value: float
    low: float = -math.inf
    high: float = math.inf

    @property
    def bounded(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def shown(self, digits: int = 3, sign: bool = False, unit: str = "") -> str:
        """Such as ``+0.012 [0.004, 0.020]``."""
        plus = "+" if sign else ""
        value = f"{self.value:{plus}.{digits}f}{unit}"
        return f"{value} [{self.low:{plus}.{digits}f}, {self.high:{plus}.{digits}f}]" if self.bounded else value


def above(estimate: Estimate, bound: float = 0.0) -> Verdict:
    """The claim says that the value is above ``bound``."""
    if not estimate.bounded or estimate.low <= bound <= estimate.high:
        return Verdict.UNDECIDED
    return Verdict.REPRODUCED if estimate.low > bound else Verdict.CONTRADICTED


def below(estimate: Estimate, bound: float = 0.0) -> Verdict:
    """The claim says that the value is below ``bound``."""
    return above(Estimate(-estimate.value, -estimate.high, -estimate.low), -bound)


def within(estimate: Estimate, margin: float) -> Verdict:
    """The claim says that the value is no further than ``margin`` from zero."""
    if not estimate.bounded:
        return Verdict.UNDECIDED
    if -margin < estimate.low and estimate.high < margin:
        return Verdict.REPRODUCED
    return Verdict.CONTRADICTED if estimate.low > margin or estimate.high < -margin else Verdict.UNDECIDED


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a claim with several parts: reproduced if all are, contradicted if one is."""
    if Verdict.CONTRADICTED in verdicts:
        return Verdict.CONTRADICTED
    reproduced = bool(verdicts) and all(verdict is Verdict.REPRODUCED for verdict in verdicts)
    return Verdict.REPRODUCED if reproduced else Verdict.UNDECIDED


def paired(ours: npt.ArrayLike, others: npt.ArrayLike) -> Estimate:
    """Mean of ours minus others over the same images, with a bootstrap interval over images."""
    return bootstrapped(np.asarray(ours, np.float64) - np.asarray(others, np.float64))


def bootstrapped(values: npt.ArrayLike) -> Estimate:
    """The mean, with a percentile interval of means of draws with replacement."""
    found = np.asarray(values, np.float64)
    drawn = np.random.default_rng(0).integers(len(found), size=(RESAMPLES, len(found)))
    low, high = np.quantile(found[drawn].mean(axis=1), [0.025, 0.975])
    return Estimate(float(found.mean()), float(low), float(high))


def unpaired(ours: Estimate, others: Estimate) -> Estimate:
    """Difference of two independent estimates; their half widths add in squares."""
    value = ours.value - others.value
    if not (ours.bounded and others.bounded):
        return Estimate(value)
    return Estimate(
        value,
        low=value - math.hypot(ours.value - ours.low, others.high - others.value),
        high=value + math.hypot(ours.high - ours.value, others.value - others.low),
    )


@dataclass(frozen=True)
class Sample:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float
    count: int

    def minus(self, other: "Sample") -> Estimate:
        """Difference of the means with Welch's interval; without one if a seed has no other beside it."""
        value = self.mean - other.mean
        if min(self.count, other.count) < 2:
            return Estimate(value)
        parts = [sample.deviation**2 / sample.count for sample in (self, other)]
        error = math.sqrt(sum(parts))
        if error == 0:
            return Estimate(value, value, value)
        freedom = error**4 / sum(
            part**2 / (sample.count - 1) for part, sample in zip(parts, (self, other), strict=True)
        )
        half = float(stats.t.ppf(0.975, freedom)) * error
        return Estimate(value, value - half, value + half)


@dataclass(frozen=True)
class Claim:
    """One row of the opening table; ``ours`` says what was found, or what is missing."""

    text: str
    paper: str
    ours: str
    verdict: Verdict
    command: str


def not_measured(text: str, paper: str, command: str) -> Claim:
    """A claim that nothing was measured for yet."""
    return Claim(text, paper, "not measured yet", Verdict.UNDECIDED, command)


def joined(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
