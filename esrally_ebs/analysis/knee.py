"""The knee: the highest rate of queries at which a percentile of latency stays within a bound.

The search on one arm is a state machine, the same for a node and for a simulated queue: all steps so far in,
the next step out, or none. A step is some seconds of Poisson arrivals at one rate.

    alone     one query at a time: no rate can be better than that
    probe     short steps: the rate doubles until the bound breaks, then halves the way between good and bad
    measure   long steps, each at what is the knee by all steps before it, now a little above, now below

The share of requests that are late can only grow with the rate. Where to look is found from that alone: the
shares of all steps are smoothed to a curve that never falls (isotonic regression, Barlow et al. 1972), which
crosses what the bound allows somewhere. Near there the share grows by a power of the rate, on top of what is
late without any queue. Of the power little is known: it is about the number of requests that come within the
bound, as in the queue M/M/1. The knee is the likeliest one, averaged over the powers, and its interval holds
for all that are likely. Where hardly any request is late, or most are, the share says no more than that:
where a bound is far beyond the service time all steps are such, and the knee is between them. To measure
where the knee seems to be is stochastic approximation (Robbins and Monro 1951) with the whole past in each
estimate, as Wu (1985) has it with a logistic curve. The interval is looked at a few times only, and the looks
share what may go wrong (``sequential``).

Requests that are late come in bursts, as one queue makes many wait. So the step is what is counted, not the
request: its share varies about the curve by a factor, as steps themselves show (gamma quasi-likelihood,
Wedderburn 1974). Where few are late, a step has few bursts or none, and its share says little. More come half
as near to the bound, and tell how latency falls off: beyond some point that of a queue does so exponentially
(Kingman 1964). So a share is that of the requests beyond a part of the bound, times the part of those that go
beyond all of it by an exponential fitted to them. It is fitted up to the bound alone: how late a late one is,
a stall of the volume for instance, says nothing. Where queries take as long without any queue, as the step of
one at a time shows, or far fewer or more are late than it gives, as where all take equally long, no
exponential tells their own time from waiting, and those that are late are counted.

Latency in overload never becomes stationary, so a step that runs away is ended early. Pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy import special
from scipy.optimize import isotonic_regression

from esrally_ebs.analysis.rounds import Floats
from esrally_ebs.analysis.sequential import confidence_of_a_look, looks
from esrally_ebs.analysis.summary import is_of_rounds
from esrally_ebs.model import Bound, Event, State
from esrally_ebs.plan import DesignPlan
from esrally_ebs.plan.tables import MAX_PROBES, MAX_STEP_S, MAX_STEPS
from esrally_ebs.store.encoding import MAX_TIME
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_beside, format_rate, format_seconds, format_share

EVENT = "step"  # says what a round was on an arm
PROBE_S = 8.0  # a step that only looks for the order of magnitude
_ORDER_S = 75.0  # an arm's time for these, and for the seconds before each step
MAX_RATE = 4000.0  # queries per second; a load generator in Python makes no more
_SETTLING_SHARE = 0.2  # of a step, at its start: the queue is still filling, and a new node slow
_OVERLOAD_FROM = 0.8  # from here on, most requests are late in a step that runs away
_CLOSE_FACTOR = 1.25  # good and bad this close to one another: measure from here on
_TAIL_FROM = 0.4  # of the bound: from here on, latency is taken to fall off exponentially
_ALONE_FACTOR = 3  # times what is allowed: where more queries take as long alone, late ones are counted
_LATE_FACTOR = 3  # times what is allowed: more than chance in a probe
_LATE_ERRORS = 4.5  # standard errors of independent requests: the same where many may be late
_LATE_BY_CHANCE = 3  # so many late requests may be chance in a probe
_MAX_CHANCE = 0.05  # a share of many requests is at most so far off by chance
_P_BROKEN = 0.001  # chance of so many late requests alone, were the bound kept
_MIN_DISTANCE, _MAX_DISTANCE = 0.02, 0.06  # a step from the knee: shares at one rate give no curve
_MISFIT_FROM, _MISFIT = 100, 1.4  # late ones, or those by the fall of latency, and times the others
# Of the interval. Steps near the knee:
_NEAR_KNEE = 0.2  # within so much of the logarithm of the rate
_MIN_STEPS_NEAR = 6  # and at least so many
# times what is allowed; beyond, hardly a request is late, or the queue does not come to rest
_SHARE_LIMITS = 0.1, 10.0
_IDLE_BELOW = 0.6  # times the knee: hardly a request waits below
_MAX_FLOOR = 0.5  # times what is allowed: most that is taken to be late without a queue
_MAX_LOG_WIDTH = 0.7  # of the logarithm of the rate: as far as an interval can reach
_POINTS = 281
_POWERS = np.geomspace(1 / 6, 8, 25)  # times the likely one
_POWER_SPREAD = 0.7  # of the logarithm
_VARIES, _VARIES_WEIGHT = 1.5, 3.0  # squared variation of shares that is assumed, and its weight in steps
_VARIES_S = 30.0  # of steps of so many seconds; of longer ones it is less, since they have more bursts
_MIN_LATE_ALLOWED = 20  # requests that the bound allows to be late, in all long steps: fewer are no estimate
# times what is allowed: so many late in one step, and so few in another at a higher rate, come by no queue
_STALLED, _CALM = 4.0, 0.5


class Purpose(StrEnum):
    ALONE = "alone"
    PROBE = "probe"
    MEASURE = "measure"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    purpose: Purpose
    rate: float  # requests per second; 0 for one at a time
    seconds: float

    @property
    def due(self) -> int:
        """Number of requests that are due; 0 for one at a time."""
        return max(1, round(self.rate * self.seconds)) if self.rate else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """A step that was made, without the time in which its queue was filling."""

    purpose: Purpose
    rate: float  # requests per second; 0 for one at a time
    requests: int
    late: int  # of them beyond the bound
    ran_away: bool = False  # at its end most requests were late: more than can be served
    share: float = math.nan  # that is late, by the fall of latency towards the bound; nan: ``late`` says it
    mean_s: float = math.nan  # of the service times
    quantile_s: float = math.nan  # latency at the bound's percentile
    tail_s: float = math.nan  # from here on, latency is taken to fall off; the bound: late ones are counted


def observe(
    step: NextStep,
    due_s: Floats,
    latency_s: Floats,
    service_s: Floats,
    bound: Bound,
    alone: StepResult | None = None,
) -> StepResult:
    """What the requests of a step say, an entry each in the three arrays; ``due_s`` by any clock.

    A request that failed has an infinite latency. ``alone``: the arm's step of one query at a time. Requests
    that a step did not send, since it was ended early, are late: where a stall ended it, these alone show it.
    """
    if not len(due_s):
        return StepResult(purpose=step.purpose, rate=step.rate, requests=0, late=0, ran_away=step.rate > 0)
    span_s = float(np.ptp(due_s))
    into = (due_s - due_s.min()) / span_s if span_s else np.ones(len(due_s))  # of one moment all count
    settled = into >= _SETTLING_SHARE
    counts = settled | (not step.rate)
    late = latency_s > bound.seconds
    ran_away = step.rate > 0 and bool(late[into >= _OVERLOAD_FROM].mean() > _most_late(bound))
    if (unsent := step.due - len(due_s)) > 0 and not ran_away:
        rest_s = np.linspace(due_s.max(), max(due_s.max(), due_s.min() + step.seconds), unsent)
        latency_s = np.append(latency_s, np.full(unsent, np.inf))
        service_s = np.append(service_s, np.full(unsent, service_s.mean()))
        return observe(step, np.append(due_s, rest_s), latency_s, service_s, bound, alone)
    tail_s = alone.tail_s if alone and alone.requests else _TAIL_FROM * bound.seconds
    tail_s = tail_s if step.rate else _tail_from(latency_s[settled], bound)
    return StepResult(
        purpose=step.purpose,
        rate=step.rate,
        requests=int(counts.sum()),
        late=int((late & counts).sum()),
        share=_share_beyond(latency_s[counts], bound.seconds, tail_s),
        tail_s=tail_s,
        ran_away=ran_away,
        mean_s=float(service_s[counts].mean()),
        quantile_s=float(np.quantile(latency_s[counts], bound.percentile / 100, method="inverted_cdf")),
    )


def _tail_from(alone_s: Floats, bound: Bound) -> float:
    """From where on latency falls off by waiting: beyond the bound, where queries alone come near it."""
    start_s = _TAIL_FROM * bound.seconds
    is_rare = np.mean(alone_s > start_s) <= _ALONE_FACTOR * bound.allowed
    most = max(_SHARE_LIMITS[0] * bound.allowed, float(np.mean(alone_s > bound.seconds)))
    return start_s if is_rare and _share_beyond(alone_s, bound.seconds, start_s) <= most else bound.seconds


def _share_beyond(latency_s: Floats, bound_s: float, start_s: float) -> float:
    """The share of latencies beyond the bound, by an exponential through finite ones beyond ``start_s``.

    The exponential is the likeliest where of those beyond the bound only their number is known.
    """
    answered_s = latency_s[np.isfinite(latency_s)]
    excess_s = np.minimum(answered_s[answered_s > start_s], bound_s) - start_s
    within = np.count_nonzero(excess_s < bound_s - start_s)  # none where the bound itself is the start
    beyond = np.exp(-(bound_s - start_s) * within / excess_s.sum()) if within else 1.0
    return float((len(latency_s) - len(answered_s) + beyond * len(excess_s)) / len(latency_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The highest rate that keeps the bound, requests per second, and its interval; or why there is none."""

    rate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why: str = ""  # there is no knee; empty where there is one
    doubt: str = ""  # of the interval
    may_be_lower: bool = False  # by more than the interval, as the doubt says

    @property
    def width(self) -> float:
        """Half of the interval, as a share of the knee."""
        return (self.high - self.low) / 2 / self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeSearch:
    """The rules of a search; all arms have the same."""

    bound: Bound
    step_s: float
    steps: int  # to measure, at most
    confidence: float  # of a look
    margin: float  # half an interval that is narrow enough, as a share of the knee
    longer_by: str = "raise design.budget"  # what to do if the search ended before its knee was known

    @classmethod
    def of(cls, design: DesignPlan) -> "KneeSearch":
        if design.bound is None:
            raise ValueError("the plan seeks no knee")
        return cls(
            bound=design.bound,
            step_s=design.step,
            steps=design.steps,
            confidence=confidence_of_a_look(design.confidence, design.steps),
            margin=design.margin,
        )

    @property
    def usual_s(self) -> float:
        """Of one arm: what all steps to measure take, and those before them unless many are needed."""
        return _ORDER_S + self.steps * self.step_s

    def next(self, steps: Sequence[StepResult]) -> NextStep | None:
        """The step after these of one arm; None when its knee is known well enough, or cannot be."""
        if not steps:
            return NextStep(purpose=Purpose.ALONE, rate=0.0, seconds=PROBE_S)
        measured = sum(step.purpose is Purpose.MEASURE for step in steps)
        if not self._alone_breaks(steps) and (rate := self._probe(steps)) is not None:
            return NextStep(purpose=Purpose.PROBE, rate=rate, seconds=self._probe_s(rate))
        knee = self.knee(steps)
        is_narrow = measured in looks(self.steps) and knee.width <= self.margin
        if knee.why or is_narrow or measured >= self.steps:
            return None
        apart = 1 + min(max(knee.width / 2, _MIN_DISTANCE), _MAX_DISTANCE)
        rate = knee.rate * (apart if measured % 2 else 1 / apart)
        return NextStep(purpose=Purpose.MEASURE, rate=rate, seconds=self.step_s)

    def knee(self, steps: Sequence[StepResult]) -> Knee:
        """The knee by these steps of one arm; any number of them."""
        tried = self._fitting([step for step in _counting(steps) if step.requests or step.ran_away])
        if self._alone_breaks(steps):
            alone_s, share = steps[0].quantile_s, format_share(self.bound.allowed)
            if not math.isfinite(alone_s):
                return Knee(why=f"no rate holds it: asked alone, more than {share} of the queries fail")
            took = f"{format_seconds(alone_s)} ({self.bound.name})"
            return Knee(why=f"no rate holds it: alone a query takes {took}")
        if not tried:
            return Knee(why="no rate was tried")
        good, bad = self._bracket(tried)
        if not good:
            return Knee(why=f"no rate holds it, down to {format_rate(bad)}/s")
        if not math.isfinite(bad):
            why = f"no higher rate was tried: {self.longer_by}"
            if good * 2 > MAX_RATE:
                why = "the load generator makes no more"
            elif sum(step.purpose is Purpose.PROBE for step in steps) >= MAX_PROBES:
                why = f"{MAX_PROBES} short steps went no higher, as the first queries were slow: search again"
            return Knee(why=f"it held up to {format_rate(good)}/s for {self._probe_s(good):g} s, and {why}")
        varies = _VARIES * min(1.0, _VARIES_S / self.step_s)
        rate, low, high = _Shares.of(tried, self.bound.allowed).knee(self.confidence, varies, self.bound)
        low /= 1 + self._overrun
        lower, unsure = self._late_below(tried, rate, varies), self._unsure(tried)
        lower = lower or (self._stalls(tried) if not unsure else "")
        return Knee(rate=rate, low=low, high=high, doubt=lower or unsure, may_be_lower=bool(lower))

    def _fitting(self, tried: Sequence[StepResult]) -> Sequence[StepResult]:
        """The steps; late ones are counted where far fewer or more are late than the fall of latency says."""
        long = [step for step in tried if step.purpose is Purpose.MEASURE and not step.ran_away]
        most = [self.bound.allowed * step.requests for step in long]  # beyond, a few steps would decide
        late = sum(map(min, (step.late for step in long), most))
        fitted = sum(map(min, (step.share * step.requests for step in long), most))
        is_misfit = max(late, fitted) >= max(_MISFIT_FROM, _MISFIT * min(late, fitted))
        return [replace(step, share=math.nan) for step in tried] if is_misfit else tried

    @property
    def _overrun(self) -> float:
        """By what share a rate may be above what is served and its step still keep the bound; 0 if little."""
        share = self.bound.seconds / self.step_s
        return share if share > self.margin / 2 else 0.0

    def _late_below(self, tried: Sequence[StepResult], knee: float, varies: float) -> str:
        """A doubt if too many requests were late up to the knee, and the slowest long step, or far below."""
        slowest = min((step.rate for step in tried if step.purpose is Purpose.MEASURE), default=knee)
        allowed = self.bound.allowed
        floor = max(_MAX_FLOOR * allowed, allowed - _MAX_CHANCE)
        # below a knee bursts of a queue are late by chance; where no step keeps the bound, no queue need be
        varies *= max(step.requests for step in tried) if knee > slowest else 0
        for reach, most, chance in ((max(knee, slowest), allowed, varies), (_IDLE_BELOW * knee, floor, 0.0)):
            below = [step for step in tried if step.rate < reach or math.isclose(step.rate, reach)]
            requests, count = sum(step.requests for step in below), sum(step.late for step in below)
            if count > max(_LATE_BY_CHANCE, most * (requests + math.sqrt(chance * requests))):
                shown = format_beside(count / requests, allowed, least=2)
                return (
                    f"up to {format_rate(reach)}/s {shown} of the requests were late, the bound allows "
                    f"{format_share(allowed)}: they may take so long by themselves, fail, or wait"
                    " for stalls; the knee may be lower, or none"
                )
        return ""

    def _unsure(self, tried: Sequence[StepResult]) -> str:
        """A doubt if steps are too short for the bound, or had too few requests."""
        if self._overrun:
            longer_s = 2 * self.bound.seconds / self.margin
            way = f"make steps {longer_s:.0f} s or longer"
            if longer_s > MAX_STEP_S:
                way = f"steps of 10 min, the longest, have {self.bound.seconds / MAX_STEP_S:.1%}"
            return (
                f"at a rate {self._overrun:.1%} above what is served, the bound breaks only as a step of "
                f"{self.step_s:g} s ends: {way}"
            )
        allowed = self.bound.allowed * sum(s.requests for s in tried if s.purpose is Purpose.MEASURE)
        few = f"the bound allows {allowed:.3g} late requests in all steps, too few: make steps longer"
        return few if 0 < allowed < _MIN_LATE_ALLOWED else ""

    def _stalls(self, tried: Sequence[StepResult]) -> str:
        """A doubt if a long step had many late requests, and one at a higher rate few."""
        allowed = self.bound.allowed
        long = [step for step in tried if step.purpose is Purpose.MEASURE and step.requests]
        calm = [step for step in long if step.late < _CALM * allowed * step.requests]
        fastest = max(calm, key=lambda step: step.rate, default=None)
        slower = [step for step in long if fastest and step.rate < fastest.rate]
        worst = max(slower, key=lambda step: step.late / step.requests, default=None)
        if not fastest or not worst or worst.late < _STALLED * allowed * worst.requests:
            return ""
        many = f"{worst.late / worst.requests:.2%} of the requests were late in a step at"
        many = "a step ran away at" if worst.ran_away else many
        return (
            f"{many} {format_rate(worst.rate)}/s, {fastest.late / fastest.requests:.2%} were late in one at"
            f" {format_rate(fastest.rate)}/s: late ones come in bursts, as of stalls; make steps longer,"
            " since the knee may be lower, or none"
        )

    def longer(self, knee: Knee) -> str:
        """What would tell a knee that is known less well than to the margin."""
        longer_s = self.step_s * (knee.width / self.margin) ** 2
        if longer_s <= MAX_STEP_S:
            return f"steps of about {math.ceil(longer_s / 60)} min would tell (--step)"
        steps = math.ceil(self.steps * longer_s / MAX_STEP_S)
        if steps <= MAX_STEPS:
            return f"up to {steps} steps of 10 min would tell (--step 10m --set design.steps={steps})"
        return "no search is long enough to tell"

    def _alone_breaks(self, steps: Sequence[StepResult]) -> bool:
        """Whether a query alone takes longer, beyond chance."""
        alone = steps[0] if steps else None
        if alone is None or alone.purpose is not Purpose.ALONE or not alone.late:
            return False
        chance = special.bdtrc(alone.late - 1, alone.requests, self.bound.allowed)  # of as many late, or more
        return bool(chance < _P_BROKEN or alone.late > alone.requests / 2)

    def _probe(self, steps: Sequence[StepResult]) -> float | None:
        """The next rate to try in short; None when good and bad are close, or cannot be found."""
        rates = [step.rate for step in steps if step.rate]
        if not rates:
            mean_s = steps[0].mean_s
            return min(0.5 / mean_s if mean_s > 0 else 1.0, MAX_RATE)
        good, bad = self._bracket(_counting(steps))
        if sum(step.purpose is Purpose.PROBE for step in steps) >= MAX_PROBES:
            return None
        if not good:  # also where longer steps show that what probes took for good was chance
            return bad / 4
        if any(step.purpose is Purpose.MEASURE for step in steps):
            return None
        if bad <= good * _CLOSE_FACTOR:
            return bad if rates.count(bad) == 1 else None
        if not math.isfinite(bad):
            return good * 2 if good * 2 <= MAX_RATE else None
        return math.sqrt(good * bad)

    def _bracket(self, tried: Sequence[StepResult]) -> tuple[float, float]:
        """The highest rate that held below the lowest that did not; 0 and infinity where there is none."""
        bad = min((step.rate for step in tried if self._breaks(step)), default=math.inf)
        good = max((step.rate for step in tried if step.rate < bad), default=0.0)
        return good, bad

    def _breaks(self, step: StepResult) -> bool:
        allowed = self.bound.allowed * step.requests
        by_chance = min((_LATE_FACTOR - 1) * allowed, _LATE_ERRORS * math.sqrt(allowed))
        most = min(allowed + by_chance, _most_late(self.bound) * step.requests)
        return step.ran_away or step.late > max(_LATE_BY_CHANCE, most)

    def _probe_s(self, rate: float) -> float:
        """Long enough for some requests to be late."""
        return min(max(PROBE_S, _LATE_BY_CHANCE / self.bound.allowed / rate), self.step_s)


def _most_late(bound: Bound) -> float:
    """Of a step that does not run away, the largest share of late requests: half of what is not allowed."""
    return (1 + bound.allowed) / 2


def _counting(steps: Sequence[StepResult]) -> list[StepResult]:
    """Steps at a rate; of probes at the same rate the last, since compiled code is faster."""
    probes = {step.rate: step for step in steps if step.purpose is Purpose.PROBE}
    return [
        step
        for step in steps
        if step.rate and (step.purpose is not Purpose.PROBE or probes[step.rate] is step)
    ]


@dataclass(frozen=True, slots=True)
class _Shares:
    """Of each step, by rate: its logarithm, the share of late requests over what is allowed, and requests."""

    at: Floats
    share: Floats
    requests: Floats

    @classmethod
    def of(cls, steps: Sequence[StepResult], allowed: float) -> "_Shares":
        """From steps at a rate."""
        rows = []
        for step in sorted(steps, key=lambda step: step.rate):
            requests = max(step.requests, 1)
            share = step.late / requests if math.isnan(step.share) else step.share
            # those that were late at once are few where a step was ended early
            share = 1.0 if step.ran_away else share
            rows.append((math.log(step.rate), share / allowed, requests))
        return cls(*(np.array(column, dtype=float) for column in zip(*rows, strict=True)))

    def crossing(self) -> float:
        """The rate at which a curve that never falls crosses 1; the outermost rate where it does not."""
        smooth = isotonic_regression(self.share, weights=self.requests)
        starts = smooth.blocks[:-1]
        places = np.add.reduceat(self.at * self.requests, starts) / np.add.reduceat(self.requests, starts)
        heights = np.clip(np.log(np.maximum(smooth.x[starts], 1e-9)), -3, 3)  # beyond, nothing near 1
        return float(np.exp(np.interp(0.0, heights, places)))

    def knee(self, confidence: float, varies: float, bound: Bound) -> tuple[float, float, float]:
        """The likeliest knee among the rates that were tried, and the ends of its interval."""
        crossing = self.crossing()
        middle = math.log(crossing)
        distance = np.abs(self.at - middle)
        near = distance <= max(_NEAR_KNEE, np.sort(distance)[:_MIN_STEPS_NEAR][-1])
        least, most = _SHARE_LIMITS[0], min(_SHARE_LIMITS[1], 1 / bound.allowed)
        at, share = self.at[near], np.clip(self.share[near], least, most)
        weight = self.requests[near] / self.requests.max()
        floor = self._floor(middle)
        knees = np.linspace(middle - _MAX_LOG_WIDTH, middle + _MAX_LOG_WIDTH, _POINTS)
        powers = (1 + crossing * bound.seconds) * _POWERS
        grown = np.exp(np.clip(powers[:, None, None] * (at - knees[:, None]), -20, 20))
        expected = np.clip(floor + (1 - floor) * grown, least, most)  # by power, knee and step
        deviance = 2 * (weight * (share / expected + np.log(expected))).sum(axis=2)
        best = expected[np.unravel_index(int(deviance.argmin()), deviance.shape)]
        squares = float((weight * (share / best - 1) ** 2).sum()) + _VARIES_WEIGHT * varies
        telling = int(np.count_nonzero((share > least) & (share < most)))
        scaled = deviance / (squares / (max(telling - 2, 0) + _VARIES_WEIGHT))
        prior = (np.log(_POWERS) / _POWER_SPREAD) ** 2
        chances = np.exp(-0.5 * (scaled - scaled.min() + prior[:, None])).sum(axis=0)
        below = chances.cumsum() / chances.sum()
        ends = np.interp([(1 - confidence) / 2, (1 + confidence) / 2], below, knees)
        likeliest = float(np.clip(knees[chances.argmax()], self.at[0], self.at[-1]))
        low, high = min(ends[0], likeliest), max(ends[1], likeliest)
        return math.exp(likeliest), math.exp(low), math.exp(high)

    def _floor(self, middle: float) -> float:
        """The share that is late without any queue; at most half of what is allowed."""
        idle = self.at < middle + math.log(_IDLE_BELOW)
        if not idle.any():
            return 0.0
        return min(float(np.average(self.share[idle], weights=self.requests[idle])), _MAX_FLOOR)


def steps_of(session: Session) -> Mapping[str, Mapping[int, StepResult]]:
    """The steps of each arm by round, from what a session recorded.

    Leaves out the step that a session was ended in, or is in: at its beginning nobody is late at any rate.
    """
    bound = KneeSearch.of(session.plan.design).bound
    samples = session.samples.filter(is_of_rounds(session.samples))
    arms, rounds = np.array(samples["arm"].to_pylist()), samples["round"].to_numpy()
    service_s, latency_s = samples["service_time_s"].to_numpy(), samples["latency_s"].to_numpy()
    due_s = samples["started_s"].to_numpy() + service_s - latency_s
    latency_s = np.where(samples["success"].to_numpy(zero_copy_only=False), latency_s, np.inf)
    last = None if session.state is State.COMPLETE else rounds.max(initial=0)
    steps: dict[str, dict[int, StepResult]] = {arm.spec.name: {} for arm in session.arms}
    for event in session.events:
        if event.kind == EVENT and event.arm in steps and (known := _step_of(event)):
            own, (step, round_) = steps[event.arm], known
            rows = (arms == event.arm) & (rounds == round_) & (due_s >= 0) & (due_s < MAX_TIME)
            alone = next((made for made in own.values() if made.purpose is Purpose.ALONE), None)
            is_whole = round_ != last or np.count_nonzero(rows) >= (step.due or math.inf)
            if rows.any() and is_whole:
                own[round_] = observe(step, due_s[rows], latency_s[rows], service_s[rows], bound, alone)
    return steps


def _step_of(event: Event) -> tuple[NextStep, int] | None:
    """What a round was, and which; None where the event is not as it is written."""
    rate, seconds, round_ = map(event.number, ("rate", "seconds", "round"))
    purpose = event.fields.get("purpose")
    if rate is None or seconds is None or round_ is None or purpose not in list(Purpose):
        return None
    if not (0 <= rate <= 2 * MAX_RATE and 0 < seconds <= MAX_STEP_S):
        return None
    return NextStep(purpose=Purpose(purpose), rate=rate, seconds=seconds), int(round_)
