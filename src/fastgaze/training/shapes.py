"""Working sizes of images of many shapes: those of one size share batches."""

from collections import Counter
from collections.abc import Sequence
from math import log

from fastgaze.data.fixations import Size

MOST_SQUEEZE = 1.2  # a rare shape joins a common one if no side changes by more than this factor


def shared_sizes(sizes: Sequence[Size], least: int) -> list[Size]:
    """The working size of every image; one that fewer than ``least`` images have gives way to a similar common one.

    Otherwise a batch of a rare shape would hold the same few images several times.
    """
    common = [size for size, count in Counter(sizes).items() if count >= least]

    def misfit(size: Size, other: Size) -> float:
        return max(abs(log(a / b)) for a, b in zip(size, other, strict=True))

    def settle(size: Size) -> Size:
        best = min(common, key=lambda other: misfit(size, other), default=size)
        return best if misfit(size, best) <= log(MOST_SQUEEZE) else size

    return [size if size in common else settle(size) for size in sizes]
