"""Learning-rate schedules as functions of the step."""

import math

import pytest

from stepwell.errors import ConfigError
from stepwell.train import ConstantRate, CosineDecay, LinearDecay, Schedule, StepDecay


def factors(schedule: Schedule, *steps: int) -> list[float]:
    return [schedule.factor(step) for step in steps]


def test_constant_with_and_without_warm_up() -> None:
    assert factors(ConstantRate(), 1, 2, 10**9) == [1.0, 1.0, 1.0]
    assert factors(ConstantRate(warmup_steps=4), 1, 2, 3, 4, 5) == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_linear() -> None:
    schedule = LinearDecay(warmup_steps=2, steps=10, end_factor=0.5)
    assert factors(schedule, 1, 2, 7, 12, 1000) == [0.5, 1.0, 0.75, 0.5, 0.5]
    assert factors(LinearDecay(steps=4), 1, 2, 4, 5) == [0.75, 0.5, 0.0, 0.0]


def test_cosine() -> None:
    schedule = CosineDecay(steps=8, end_factor=0.2)
    expected = [0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * min(step, 8) / 8)) for step in (1, 4, 8, 9)]
    assert factors(schedule, 1, 4, 8, 9) == pytest.approx(expected, rel=1e-12)
    assert schedule.factor(8) == pytest.approx(0.2)


def test_step_decay_counts_from_the_end_of_the_warm_up() -> None:
    schedule = StepDecay(warmup_steps=10, at_steps=(5, 20), decay=0.5)
    assert factors(schedule, 5, 10, 14, 15, 29, 30, 99) == [0.5, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ConstantRate(warmup_steps=-1), "warmup_steps: found -1"),
        (lambda: LinearDecay(steps=0), "steps: found 0"),
        (lambda: CosineDecay(steps=1, end_factor=2.0), "end_factor: found 2.0"),
        (lambda: StepDecay(at_steps=()), "at_steps"),
        (lambda: StepDecay(at_steps=(3, 3)), "steps >= 1 that rise"),
        (lambda: StepDecay(at_steps=(3,), decay=0.0), "decay: found 0.0"),
    ],
)
def test_wrong_ones(make: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()  # type: ignore[operator]


def test_a_schedule_goes_to_json_and_back() -> None:
    for schedule in (ConstantRate(warmup_steps=3), StepDecay(at_steps=(3, 4)), CosineDecay(steps=2)):
        assert Schedule.from_json(schedule.to_json()) == schedule
