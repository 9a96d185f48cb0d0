"""First come, first served, by some servers: queues whose knee is known, for tests and benchmarks/knee.py."""

import heapq

import numpy as np
import numpy.typing as npt

from esrally_ebs.analysis.knee import KneeSearch, NextStep, StepResult, observe

Floats = npt.NDArray[np.float64]


def latencies(due_s: Floats, service_s: Floats, servers: int) -> Floats:
    """How long each request takes with its wait; ``due_s`` in order."""
    if servers == 1:  # Lindley's recursion: the last time that the queue was empty decides
        served = service_s.cumsum()
        done: Floats = np.maximum.accumulate(due_s - served + service_s) + served
        return done - due_s
    free = [0.0] * servers
    done = np.empty(len(due_s))
    for place, (due, service) in enumerate(zip(due_s.tolist(), service_s.tolist(), strict=True)):
        done[place] = max(due, free[0]) + service
        heapq.heapreplace(free, done[place])
    return done - due_s


def make(
    step: NextStep, service_s: Floats, servers: int, draw: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """When requests of a step are due, their latency and their service time, one of ``service_s`` each."""
    if not step.rate:
        service = draw.choice(service_s, max(5, int(step.seconds / service_s.mean())))
        return np.cumsum(service), service, service
    due, service = np.sort(draw.random(step.due)) * step.seconds, draw.choice(service_s, step.due)
    return due, latencies(due, service, servers), service


def run(search: KneeSearch, service_s: Floats, servers: int, seed: int) -> list[StepResult]:
    """All steps of a search on this queue."""
    draw, steps = np.random.default_rng(seed), list[StepResult]()
    while (step := search.next(steps)) is not None:
        due, latency, service = make(step, service_s, servers, draw)
        lags = latency - service > 5 * search.bound.seconds + 1  # as rally/knee.py
        sent = int(lags.argmax()) if lags.any() else len(due)
        alone = steps[0] if steps else None
        steps.append(observe(step, due[:sent], latency[:sent], service[:sent], search.bound, alone))
    return steps


def true_knee(service_s: Floats, servers: int, search: KneeSearch, requests: int) -> float:
    """The rate at which just the allowed share of so many requests is late, by halving."""
    draw = np.random.default_rng(1)
    gaps, service = draw.exponential(1.0, requests).cumsum(), draw.choice(service_s, requests)
    low, high = 0.0, servers / float(service_s.mean())
    for _ in range(16):
        rate = (low + high) / 2
        late = latencies(gaps / rate, service, servers)[requests // 20 :] > search.bound.seconds
        low, high = (low, rate) if late.mean() > search.bound.allowed else (rate, high)
    return low
