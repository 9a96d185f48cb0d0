"""Waiting until something is so."""

import pytest

from esrally_ebs.machine.processes import Clock


@pytest.mark.parametrize(
    ("answers", "came", "waited_s"),
    [([True], True, 0.0), ([False, False, True], True, 2.0), ([False] * 9, False, 3.0)],
)
def test_waiting_asks_at_once_and_gives_up_at_its_limit(
    answers: list[bool], came: bool, waited_s: float
) -> None:
    slept_s: list[float] = []
    clock = Clock(monotonic=lambda: sum(slept_s), sleep=slept_s.append)
    assert clock.wait_until(iter(answers).__next__, limit_s=3.0, poll_s=1.0) is came
    assert sum(slept_s) == waited_s
