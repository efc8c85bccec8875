"""A clock adds up what each step took."""

from fastgaze.core.progress import Clock, Seconds


def test_steps_add_up_in_the_order_in_which_they_began() -> None:
    clock = Clock()
    for step in ("decode", "network", "decode"):
        with clock(step):
            sum(range(10_000))
    assert list(clock.steps) == ["decode", "network"]
    assert all(time.wall > 0 and time.cpu > 0 for time in clock.steps.values())
    other = Clock()
    other.add({"network": Seconds(2.0, 1.0)})
    other.add({"network": Seconds(1.0, 0.5)})
    assert other.steps == {"network": Seconds(3.0, 1.5)}
    assert other.milliseconds(count=3) == {"network": 1000.0}


def test_a_step_that_fails_counts_too() -> None:
    clock = Clock()
    try:
        with clock("decode"):
            raise ValueError
    except ValueError:
        pass
    assert "decode" in clock.steps
