"""Predicts recorded requests on another volume, or with more memory: percentiles, and what limits them."""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import special

from esrally_ebs.advice.dependencies import PAGE_BYTES, access_patterns, computed_s, slope_within, within
from esrally_ebs.advice.recording import Recording, doubt_of_credits
from esrally_ebs.analysis.rounds import Estimate, critical_t
from esrally_ebs.catalog.limits import CREDITS, Limit, Model, Service
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import digits_beside, number_of
from esrally_ebs.volumes.virtual.replay import Column, Load, Replayed, Thread, replay

PERCENTILES: tuple[float, ...] = (50, 90, 99)  # always predicted; another one if the bound is on it
MAX_ERROR = {50: 0.03, 99: 0.10}  # allowed error of the self-check, by percentile
MAX_TASK_ERROR = 0.10  # of one task, beyond possible chance
_MAX_STRAY = 0.10  # share of I/Os that vary among a task's requests without effect on their time
MAX_SLOPE_ERROR = 0.10  # beyond the interval of the measured slope
MIN_PERTURBED_ROUNDS = 4
_SEEDS = range(1, 5)  # latencies are drawn once per seed
_CONFIDENCE = 0.95
_NORMAL = 1.96  # a normal distribution has _CONFIDENCE within this many sigma of its middle
_TAIL = 90  # a percentile above it may be the slowest request of a part
_OF_MEDIAN = 1.2533  # standard error of a median over that of a mean
_MIN_S = 1e-6  # a request in a log may have taken 0
_MIN_ROUNDS, _PARTS = 4, 8  # of fewer rounds the spread is not known: eighths of the requests are parts then
_BINDING = 0.05  # waits for a limit are named from this share of all requests' time
_NO_TIME = Service(base_us=0.0, per_kib_us=0.0, sigma=0.0)


def least_requests(percentile: float) -> int:
    """Requests needed for an upper end: on average one is beyond this percentile."""
    return math.ceil(round(100 / (100 - percentile), 6))


def _surely_beyond(percentile: float) -> int:
    """Requests needed so that the slowest is beyond this percentile in 19 of 20 cases, for any distribution.

    Wilks, Annals of Mathematical Statistics 12 (1941), p. 91.
    """
    return math.ceil(math.log(1 - _CONFIDENCE) / math.log(percentile / 100))


def _standard_error(values: Column, percentile: float) -> float:
    """Standard error of a row's percentile, averaged over rows, by each value's chance of being it.

    Maritz and Jarrett, Journal of the American Statistical Association 73 (1978), p. 194.
    """
    count = values.shape[1]
    rank = percentile / 100 * (count - 1) + 1
    chances = np.diff(special.betainc(rank, count - rank + 1, np.linspace(0, 1, count + 1)))
    ordered = np.sort(values, axis=1)
    middle = (ordered @ chances)[:, None]
    return float(np.sqrt(np.mean((ordered - middle) ** 2 @ chances)))


def _of_one_run(latency_s: Column, percentiles: tuple[float, ...]) -> Column:
    """Percentiles of one run (a row), averaged over runs.

    In all runs pooled, the p99 of few requests would be closer to the slowest request, which is in each run.
    """
    values: Column = np.percentile(latency_s, percentiles, axis=1).mean(axis=1)
    return values


def footprint_bytes(recording: Recording) -> int:
    """Bytes that requests read, each place counted once."""
    return PAGE_BYTES * len({page for pages in _pages(recording) for page in pages})


def in_memory(recording: Recording, cache_bytes: int) -> Column:
    """By I/O, whether all of it is in an LRU cache of this size that is never dropped.

    The cache starts empty. A write puts its pages into the cache, and reaches the volume in any case.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    most = cache_bytes // PAGE_BYTES
    hits = np.zeros(len(recording.ios["at_s"]), bool)
    for io, pages in enumerate(_pages(recording)):
        hits[io] = all(page in cache for page in pages)
        for page in pages:
            cache[page] = None
            cache.move_to_end(page)
        while len(cache) > most:
            cache.popitem(last=False)
    hits[recording.ios["write"] == 1] = False
    return hits


def with_memory(recording: Recording, thread: Thread, cache_bytes: int) -> Thread:
    """The requests with such a cache: I/Os in it take no time on the volume."""
    requests = np.repeat(np.arange(recording.requests), np.diff(recording.first))
    places = (np.arange(len(requests)) + requests)[in_memory(recording, cache_bytes)]
    path_s = thread.path_s.copy()
    path_s[places] = np.inf
    return thread._replace(path_s=path_s)


def _pages(recording: Recording) -> list[range]:
    begin = recording.ios["offset"] // PAGE_BYTES
    end = -(-(recording.ios["offset"] + recording.ios["bytes"]) // PAGE_BYTES)
    return [range(first, last) for first, last in zip(begin.tolist(), end.tolist(), strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted times of requests on one volume, in seconds."""

    spec: VolumeSpec
    percentiles: tuple[float, ...]
    whole: tuple[Estimate, ...]  # all requests, in the order of ``percentiles``
    tasks: Mapping[str, tuple[float, ...]]  # likewise, by task
    waits: Mapping[str, float]  # I/Os' waits as a share of all requests' time, by limit
    used: Mapping[str, float]  # I/Os' demand as a share of the limit's rate, by limit
    busy: float  # share of the requests' time that an infinitely fast volume would save
    falls_behind: bool = False  # the load exceeds what it serves, so latencies keep growing
    # under a load, by limit but credits: about which share of requests find it used up in the long run
    queued: Mapping[str, float] = field(default_factory=dict)

    def percentile(self, percentile: float) -> Estimate:
        """One of ``percentiles``, over all requests."""
        return self.whole[self.percentiles.index(percentile)]

    @property
    def binds(self) -> str:
        """What limits requests most: a limit, the volume's own latency, or nothing of the volume."""
        if self.falls_behind:  # I/Os of the first seconds may not wait for it yet
            shares = _used_for_good(self.used, self.spec)
            return max(shares, key=shares.__getitem__)
        name, share = max(self.waits.items(), key=lambda item: item[1], default=("", 0.0))
        if share >= _BINDING:
            return name
        return "latency" if self.busy >= _BINDING else "computing"

    @property
    def credits_last_s(self) -> dict[str, float]:
        """How long full burst credits last at this pace, by bucket; infinite if for good.

        An upper bound if credits ran out during the requests, as less was spent then.
        """
        last_s = {}
        for limit in _limits(replace(self.spec, time_scale=1.0)):
            if limit.of_credits:
                lost = (self.used.get(limit.name, 0.0) - 1.0) * limit.rate  # tokens per second
                last_s[limit.name] = limit.capacity / lost if lost > 0 else math.inf
        return last_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """How much longer a request takes per usual read time that reads are slower, averaged over tasks."""

    measured: Estimate  # seconds
    predicted_s: float

    @property
    def agrees(self) -> bool:
        """Whether the prediction is within the interval, or only slightly outside."""
        assert self.measured.low is not None
        assert self.measured.high is not None
        allowed_s = MAX_SLOPE_ERROR * abs(self.predicted_s)
        return self.measured.low - allowed_s <= self.predicted_s <= self.measured.high + allowed_s

    def __str__(self) -> str:
        estimate = self.measured
        value, low, high = (f"{1e3 * (s or 0.0):.1f}" for s in (estimate.value, estimate.low, estimate.high))
        return (
            f"for each usual time that a read takes more a request takes {value} ms [{low}, {high}] longer;"
            f" predicted are {1e3 * self.predicted_s:.1f} ms"
        )


class Predictor:
    """Predicts recorded requests on any volume; ``errors`` are those of the self-check, by percentile."""

    def __init__(self, recording: Recording, thread: Thread, percentile: float = PERCENTILES[-1]) -> None:
        """Predicts the recorded volume first; see ``require_right``. ``percentile`` is that of the bound.

        Raises MeasurementError for too few requests to know their variation.
        """
        if recording.requests < _PARTS:
            raise MeasurementError(
                f"arm {recording.spec.name}: its trace has {recording.requests} measured requests, and how"
                f" much they vary takes {_PARTS} or more; record for longer"
            )
        self.recording, self._percentiles = recording, tuple(sorted({*PERCENTILES, percentile}))
        self.requests = recording.requests
        self._thread = thread
        self.patterns = access_patterns(recording, thread)
        self.load: Load | None = None
        self._fastest_s = float(replay(thread, _fastest(recording.spec)).latency_s.sum())
        self._part = np.unique(recording.round, return_inverse=True)[1]
        if np.ptp(self._part) + 1 < _MIN_ROUNDS:
            # random eighths of each task's requests, since tasks differ and may take turns
            by_task = np.lexsort((np.random.default_rng(1).permutation(recording.requests), recording.task))
            self._part = np.empty(recording.requests, np.int64)
            self._part[by_task] = np.arange(recording.requests) % _PARTS
        runs = _runs(thread, recording.spec)
        self.errors: Mapping[float, float] = {}
        self.check = self._prediction(recording.spec, runs)
        self.errors = {one: self._error(one) for one in self._percentiles} | {50: self._error_of_tasks()}
        self.errors_by_task = self._errors_by_task(runs)
        # again, with intervals widened by these errors, as for settings
        self.check = self._prediction(recording.spec, runs)
        self.slope = self._slope()

    def under(self, load: Load) -> "Predictor":
        """From now on, predict requests under this load; the self-check stays that of requests one at a time.

        Raises PlanError if they need more computing than the cores can do.
        """
        self.load = load
        if self.computing >= 1:
            raise PlanError(
                f"--rate {load.per_s:g}: what queries compute at that rate is {self.computing:.0%} of"
                f" {number_of(load.cores, 'core')}, so no volume keeps a bound; name a lower rate, or more"
                " --cores"
            )
        fastest = _fastest(self.recording.spec)
        runs = [replay(self._thread, fastest, seed=seed, load=load).latency_s for seed in _SEEDS]
        self._fastest_s = float(np.mean(runs, axis=0).sum())
        return self

    def require_right(self) -> None:
        """Raise MeasurementError if the recorded volume itself is predicted badly."""
        fails = f"arm {self.recording.spec.name}: the self-check fails"
        for percentile, most in MAX_ERROR.items():
            error = self.errors[percentile]
            if abs(error) > most:
                digits = digits_beside(abs(error), most, 1)
                raise MeasurementError(
                    f"{fails}: p{percentile} of the recorded volume is"
                    f" predicted {error:+z.{digits}%} off (allowed: {most:.0%}); no advice. {self._doubt}"
                )
        for task, (error, of_luck) in self.errors_by_task.items():
            if abs(error) - of_luck > MAX_TASK_ERROR:
                raise MeasurementError(
                    f"{fails}: requests of {task} are predicted"
                    f" {error:+z.1%} off on the recorded volume, of which {of_luck:.1%} may be luck (allowed"
                    f" beyond: {MAX_TASK_ERROR:.0%}); no advice. {self._doubt}"
                )
        if self.recording.logged and self._lacks_ios:
            raise MeasurementError(
                f"{fails}: requests of a task take as long with fewer I/Os, so some seem to be missing,"
                f" or others'; no advice. {self._doubt}"
            )
        if self.slope is not None and not self.slope.agrees:
            raise MeasurementError(
                f"{fails}: {self.slope}; what requests wait for is not"
                " understood, so no advice. Record again on a quiet machine"
            )

    @property
    def _lacks_ios(self) -> bool:
        """Whether a task's requests take as long where they have fewer I/Os.

        The time of an I/O that is missing counts as computing, which sound requests do not do more of then.
        """
        ios, task = np.diff(self.recording.first), self.recording.task
        slope, half = slope_within(task, ios, self.recording.latency_s + computed_s(self._thread))
        return slope + half < 0 and float(np.var(within(task, ios))) > _MAX_STRAY * float(ios.mean())

    @property
    def _doubt(self) -> str:
        """What to question: the machine's load, or, for a query log, whether trace and log fit."""
        if not self.recording.logged:
            return "All I/Os of its requests are there: was the machine busy? Record again on a quiet one"
        return (
            "Is the trace of this volume, whole, and are all that used it in the log"
            f"{doubt_of_credits(self.recording.spec)}? Record again"
        )

    @property
    def footprint_bytes(self) -> int | None:
        """Bytes that requests read; None if caches were not dropped, as not all of it was recorded then."""
        return footprint_bytes(self.recording) if self.recording.cold.all() else None

    def predict(
        self, spec: VolumeSpec, *, cache_bytes: int = 0, beside: Sequence[VolumeSpec] = ()
    ) -> Prediction:
        """Predict the requests on the volume of ``spec``, also with a page cache that is never dropped.

        At the recorded pace, or under the load; with ``beside``, at the pace of a race in which those volumes
        take turns, so that credits come back meanwhile. Raises PlanError if a type does not allow its spec.
        """
        thread = with_memory(self.recording, self._thread, cache_bytes) if cache_bytes else self._thread
        thread = by_turns(self.recording, thread, beside) if beside else thread
        return self._prediction(spec, _runs(thread, spec, self.load))

    @property
    def computing(self) -> float:
        """Share of the cores' time that the load computes; 0 without a load."""
        if self.load is None:
            return 0.0
        return self.load.per_s * float(self._thread.compute_s.sum()) / self.requests / self.load.cores

    def _prediction(self, spec: VolumeSpec, runs: Sequence[Replayed]) -> Prediction:
        latency_s = np.array([run.latency_s for run in runs])
        total_s, task = float(latency_s.mean(axis=0).sum()), self.recording.task
        tasks = {
            str(name): tuple(_of_one_run(latency_s[:, task == name], self._percentiles).tolist())
            for name in dict.fromkeys(task)
        }
        used = {name: float(np.mean([run.used[name] for run in runs])) for name in runs[0].used}
        lasting = _used_for_good(used, spec).values()
        return Prediction(
            spec=spec,
            percentiles=self._percentiles,
            whole=self._estimates(latency_s),
            tasks=tasks,
            waits={
                name: float(np.mean([run.limit_s[name] for run in runs])) / total_s
                for name in runs[0].limit_s
            },
            used=used,
            busy=max(0.0, 1.0 - self._fastest_s / total_s),
            falls_behind=self.load is not None and max(lasting, default=0.0) >= 1,
            queued={one.name: self._queued(one, used) for one in _limits(spec) if not one.of_credits},
        )

    def _queued(self, limit: Limit, used: Mapping[str, float]) -> float:
        """About which share of a load's requests find the limit's bucket empty in the long run.

        The seconds of a replay hardly show it. The level is that of Brownian motion below a full bucket, by
        the mean and variance of what comes, as if a request took all its tokens at once.
        """
        share = min(used[limit.name], 1.0)
        if self.load is None or not share:
            return 0.0
        of_request = np.diff(self.recording.first)
        if limit.counts == "bytes":
            ends = np.append(0, np.cumsum(self.recording.ios["bytes"]))[self.recording.first]
            of_request = np.diff(ends)
        spread = 1.0 + float(np.var(of_request)) / float(np.mean(of_request)) ** 2
        in_bucket = self.load.per_s * limit.capacity / limit.rate  # requests while it fills
        return math.exp(-2 * (1 - share) * in_bucket / (share**2 * spread))

    def _estimates(self, latency_s: Column) -> tuple[Estimate, ...]:
        """Percentiles that a race of as many requests would measure, from the variation between rounds.

        The recording varies as the race does: hence the factor 2. The self-check's error is no chance, so it
        is added in full. In a part of few requests the p99 is the slowest one, which varies too little: what
        is above p90 gets at least the variation of its neighbours among all requests. Under a load requests
        wait for one another, so the variation between runs with other arrival times is added. With few
        requests the upper end is at least the slowest request; with even fewer there is none.
        """
        percentiles, slowest_s = self._percentiles, float(latency_s.max(axis=1).mean())
        parts = np.unique(self._part)
        logs = np.log(np.maximum(latency_s, _MIN_S))
        each = [np.percentile(logs[:, self._part == part], percentiles, axis=1) for part in parts]
        errors = np.sqrt(np.var(each, axis=0, ddof=1).mean(axis=1) / len(parts))  # a race has one luck
        apart = critical_t(len(parts), _CONFIDENCE) * errors
        for place, percentile in enumerate(percentiles):
            if percentile > _TAIL:
                apart[place] = max(apart[place], _NORMAL * _standard_error(logs, percentile))
        apart *= np.sqrt(2)
        if self.load is not None:
            count = len(logs)
            of_runs = np.percentile(logs, percentiles, axis=1).std(axis=1, ddof=1)
            apart = np.hypot(apart, critical_t(count, _CONFIDENCE) * of_runs * np.sqrt(1 + 1 / count))
        estimates = []
        values = _of_one_run(latency_s, percentiles).tolist()
        for percentile, value, times in zip(percentiles, values, np.exp(apart).tolist(), strict=True):
            off = abs(self.errors.get(percentile, 0.0)) * value
            high = value * times
            if self.requests < _surely_beyond(percentile):
                high = max(high, slowest_s)
            is_bounded = self.requests >= least_requests(percentile)
            low = max(0.0, value / times - off)
            estimates.append(Estimate(value, low, high + off if is_bounded else None))
        return tuple(estimates)

    def _errors_by_task(self, runs: Sequence[Replayed]) -> dict[str, tuple[float, float]]:
        """Median error of each task's requests, and how much of it may be chance of their I/Os.

        Each request is compared with itself: the p50 of few, different requests may be far off by chance.
        """
        middle_s = np.median([run.latency_s for run in runs], axis=0)
        again, recorded = np.log(np.maximum([middle_s, self.recording.latency_s], _MIN_S))
        confidence = 1 - (1 - _CONFIDENCE) / len(self.check.tasks)  # in that all tasks are within theirs
        errors = {}
        for task in self.check.tasks:
            off = (again - recorded)[self.recording.task == task]
            count, of_luck = len(off), float("inf")
            if count > 1:
                error = _OF_MEDIAN * float(np.std(off, ddof=1)) / count**0.5
                of_luck = float(np.expm1(critical_t(count, confidence) * error))
            errors[task] = float(np.expm1(np.median(off))), of_luck
        return errors

    def _error(self, percentile: float) -> float:
        measured = float(np.percentile(self.recording.latency_s, percentile))
        return self.check.percentile(percentile).value / measured - 1

    def _slope(self) -> Slope | None:
        """Least squares over the rounds; None if the recording was not perturbed.

        Fits the difference between measured medians and predicted ones, so that a curve is no error.
        """
        rounds = [one for one in self.recording.perturbed if one.medians_s.keys() == self.check.tasks.keys()]
        times = np.array([one.times for one in rounds])
        if len(rounds) < MIN_PERTURBED_ROUNDS or not np.ptp(times):
            return None
        usual = self.recording.spec.read_latency
        specs = {one: replace(self.recording.spec, read_latency=usual * one) for one in set(times)}
        predicted_s = {
            one: np.mean([median_s for median_s, *_ in self.predict(spec).tasks.values()])
            for one, spec in specs.items()
        }
        expected_s = np.array([predicted_s[one] for one in times])
        rest_s = np.array([np.mean(list(one.medians_s.values())) for one in rounds]) - expected_s
        slope_s = float(np.polyfit(times, expected_s, 1)[0])
        off_s, at_0_s = np.polyfit(times, rest_s, 1)
        noise_s = float(np.sqrt(np.sum((rest_s - at_0_s - off_s * times) ** 2) / (len(times) - 2)))
        half_s = critical_t(len(times) - 1, _CONFIDENCE) * noise_s / (np.std(times) * np.sqrt(len(times)))
        value_s = slope_s + float(off_s)
        measured = Estimate(value_s, value_s - float(half_s), value_s + float(half_s))
        return Slope(measured=measured, predicted_s=slope_s)

    def _error_of_tasks(self) -> float:
        """Mean error of the tasks' medians (geometric): the mix's own median may fall between two tasks."""
        medians_s = self.recording.medians_s()
        pairs_s = [(self.check.tasks[task][0], medians_s[task]) for task in self.check.tasks]
        again, recorded = np.log(np.maximum(pairs_s, _MIN_S)).T
        return float(np.exp(np.mean(again - recorded))) - 1


def _used_for_good(used: Mapping[str, float], spec: VolumeSpec) -> dict[str, float]:
    """Of ``used``, limits that bind a load that lasts; not credits that the volume or the instance has."""
    return {
        name: share
        for name, share in used.items()
        if not name.endswith(CREDITS) or (name == CREDITS and not spec.credits)
    }


def by_turns(recording: Recording, thread: Thread, beside: Sequence[VolumeSpec]) -> Thread:
    """The requests at the pace of a race in which requests to the other volumes come in between."""
    others_s = [replay(thread, model_for(spec), credits=spec.credits).latency_s for spec in beside]
    return thread._replace(rest_s=recording.pause_s * (1 + len(beside)) + sum(others_s))


def _limits(spec: VolumeSpec) -> tuple[Limit, ...]:
    model = model_for(spec)
    return *model.limits, *model.instance_limits


def _fastest(spec: VolumeSpec) -> Model:
    """A volume without limits or latency."""
    return replace(model_for(spec), limits=(), instance_limits=(), read=_NO_TIME, write=_NO_TIME, stripes=1)


def _runs(thread: Thread, spec: VolumeSpec, load: Load | None = None) -> list[Replayed]:
    """The requests on a volume, once per seed."""
    model = model_for(spec)
    return [replay(thread, model, credits=spec.credits, seed=seed, load=load) for seed in _SEEDS]
