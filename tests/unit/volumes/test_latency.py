"""Service times drawn by esrally_ebs.volumes.emulated.law.queue."""

import math
import statistics

import pytest

from esrally_ebs.catalog.limits import Service
from esrally_ebs.volumes.emulated.law.queue import Latency

KIB = 1024
READ = Service(base_us=400, per_kib_us=2, sigma=0.2)
WRITE = Service(base_us=1000, per_kib_us=5, sigma=0.0)


def test_the_median_grows_linearly_with_the_size() -> None:
    assert READ.median_s(16 * KIB) == pytest.approx(432e-6)  # 400 + 2 * 16
    assert READ.median_s(256 * KIB) == pytest.approx(912e-6)  # 400 + 2 * 256


def test_draws_have_the_median_and_the_spread_that_were_asked_for() -> None:
    latency = Latency(READ, WRITE, seed=1)
    draws = [latency.seconds(16 * KIB, write=False) for _ in range(20_000)]
    assert statistics.median(draws) == pytest.approx(432e-6, rel=0.01)
    # The ninth decile of a log-normal lies 1.2816 sigma above its median.
    assert statistics.quantiles(draws, n=10)[-1] == pytest.approx(432e-6 * math.exp(1.2816 * 0.2), rel=0.02)


def test_without_spread_every_draw_is_the_median() -> None:
    assert Latency(READ, WRITE, seed=1).seconds(16 * KIB, write=True) == pytest.approx(1080e-6)


def test_the_same_seed_gives_the_same_sequence() -> None:
    first, second = (Latency(READ, WRITE, seed=7) for _ in range(2))
    assert [first.seconds(4096, write=False) for _ in range(50)] == [
        second.seconds(4096, write=False) for _ in range(50)
    ]


def test_a_slowed_service_takes_so_many_times_as_long_at_every_size() -> None:
    slow = READ.slowed(1.5)
    assert slow.median_s(16 * KIB) == pytest.approx(1.5 * 432e-6)
    assert slow.median_s(256 * KIB) == pytest.approx(1.5 * 912e-6)
    assert slow.sigma == READ.sigma
