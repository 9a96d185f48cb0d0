"""Recorded requests on another volume, or with more memory: percentiles, and what held them back."""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from esrally_ebs.advice.dependencies import PAGE_BYTES, access_patterns
from esrally_ebs.advice.recording import Recording, doubt_of_credits
from esrally_ebs.analysis.rounds import Estimate, critical_t
from esrally_ebs.catalog.limits import CREDITS, Model, Service
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.volumes.virtual.replay import Column, Load, Replayed, Thread, replay

PERCENTILES = (50, 90, 99)
MAX_ERROR = {50: 0.03, 99: 0.10}  # of the self-check, by percentile
MAX_TASK_ERROR = 0.10  # of one task, beyond what may be the luck of its I/Os
MAX_SLOPE_ERROR = 0.10  # beyond the interval of the measured slope
MIN_PERTURBED_ROUNDS = 4
_SEEDS = range(1, 5)  # latencies are drawn so many times
_CONFIDENCE = 0.95
_NORMAL = 1.96  # so many sigma from the middle, on both sides, is _CONFIDENCE of a normal distribution
_OF_MEDIAN = 1.2533  # its standard error, times that of the mean
_MIN_S = 1e-6  # a request of a log may have taken none
_MIN_ROUNDS, _PARTS = 4, 8  # of fewer rounds the spread is not known: eighths of the requests are parts then
_BINDING = 0.05  # of all requests' time: waits for a limit that are worth naming
_NO_TIME = Service(base_us=0.0, per_kib_us=0.0, sigma=0.0)


def least_requests(percentile: float) -> int:
    """So many that one is beyond this percentile in the mean: of fewer nothing bounds it."""
    return math.ceil(round(100 / (100 - percentile), 6))


def _surely_beyond(percentile: float) -> int:
    """So many that the slowest is beyond this percentile in 19 of 20 cases, whatever the distribution.

    Wilks, Annals of Mathematical Statistics 12 (1941), p. 91.
    """
    return math.ceil(math.log(1 - _CONFIDENCE) / math.log(percentile / 100))


def _standard_error(values: Column, percentile: float) -> float:
    """Of the percentile of a row, on average of the rows, by the chance of each value to be it.

    Maritz and Jarrett, Journal of the American Statistical Association 73 (1978), p. 194.
    """
    count = values.shape[1]
    rank = percentile / 100 * (count - 1) + 1
    chances = np.diff(special.betainc(rank, count - rank + 1, np.linspace(0, 1, count + 1)))
    ordered = np.sort(values, axis=1)
    middle = (ordered @ chances)[:, None]
    return float(np.sqrt(np.mean((ordered - middle) ** 2 @ chances)))


def _of_one_run(latency_s: Column) -> Column:
    """PERCENTILES of one of the runs, which are rows, on average.

    Of all runs together the p99 of few requests would be nearer to the slowest, which is there in each.
    """
    percentiles: Column = np.percentile(latency_s, PERCENTILES, axis=1).mean(axis=1)
    return percentiles


def footprint_bytes(recording: Recording) -> int:
    """Of all that requests read, each place once."""
    return PAGE_BYTES * len({page for pages in _pages(recording) for page in pages})


def in_memory(recording: Recording, cache_bytes: int) -> Column:
    """By I/O whether all of it is in a cache of so many bytes, of what was used last, that is never dropped.

    The cache is empty when the recording begins. A write puts its place into the cache, and reaches the
    volume in any case.
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
    """The requests with such a cache: what is in it takes the volume no time."""
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
    """What requests would take on one volume, seconds."""

    spec: VolumeSpec
    whole: tuple[Estimate, ...]  # of all requests, in the order of PERCENTILES
    tasks: Mapping[str, tuple[float, ...]]  # the same by task
    waits: Mapping[str, float]  # by limit: I/Os' waits as a share of the time of all requests
    used: Mapping[str, float]  # by limit: what I/Os take, as a share of what its rate gives
    busy: float  # the share of requests' time that is not there with an infinitely fast volume
    falls_behind: bool = False  # more comes than it serves, so latencies grow for as long as that lasts

    def percentile(self, percentile: float) -> Estimate:
        """One of PERCENTILES, of all requests."""
        return self.whole[PERCENTILES.index(int(percentile))]

    @property
    def binds(self) -> str:
        """What holds requests back most: a limit, the volume's own latency, or nothing of the volume."""
        name, share = max(self.waits.items(), key=lambda item: item[1], default=("", 0.0))
        if share >= _BINDING:
            return name
        return "latency" if self.busy >= _BINDING else "computing"

    @property
    def credits_last_s(self) -> dict[str, float]:
        """By bucket of burst credits how long a full one lasts if requests go on so; infinite: for good.

        At most so long where credits ran out meanwhile, as less was taken then.
        """
        model, last_s = model_for(replace(self.spec, time_scale=1.0)), {}
        for limit in (*model.limits, *model.instance_limits):
            if limit.of_credits:
                lost = (self.used.get(limit.name, 0.0) - 1.0) * limit.rate  # tokens a second
                last_s[limit.name] = limit.capacity / lost if lost > 0 else math.inf
        return last_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """What a request takes longer for each time that reads take as long as usual, on average of the tasks."""

    measured: Estimate  # seconds
    predicted_s: float

    @property
    def agrees(self) -> bool:
        """Whether the prediction is within the interval, or little beyond its ends."""
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
    """Predicts recorded requests on any volume; ``errors`` are the self-check's, by percentile."""

    def __init__(self, recording: Recording, thread: Thread) -> None:
        """Predicts the recorded volume first, see ``require_right``.

        Raises MeasurementError for so few requests that nobody knows how much they vary.
        """
        if recording.requests < _PARTS:
            raise MeasurementError(
                f"arm {recording.spec.name}: its trace has {recording.requests} measured requests, and how"
                f" much they vary takes {_PARTS} or more; record for longer"
            )
        self._of = recording
        self.requests = recording.requests
        self._thread = thread
        self.patterns = access_patterns(recording, thread)
        self.halves, self.earlier = recording.halves, recording.earlier
        self.slower_s = recording.slower_s
        self.waits_seen = recording.waits_seen
        self.quickening = recording.quickening
        self.load: Load | None = None
        self._fastest_s = float(replay(thread, _fastest(recording.spec)).latency_s.sum())
        self._part = np.unique(recording.round, return_inverse=True)[1]
        if np.ptp(self._part) + 1 < _MIN_ROUNDS:
            # an eighth of each task's requests, by chance: tasks differ, and may take turns
            by_task = np.lexsort((np.random.default_rng(1).permutation(recording.requests), recording.task))
            self._part = np.empty(recording.requests, np.int64)
            self._part[by_task] = np.arange(recording.requests) % _PARTS
        runs = _runs(thread, recording.spec)
        self.errors: Mapping[int, float] = {}
        self.check = self._prediction(recording.spec, runs)
        self.errors = {50: self._error_of_tasks(), 90: self._error(90), 99: self._error(99)}
        self.errors_by_task = self._errors_by_task(runs)
        # with intervals that these widen, as those of settings
        self.check = self._prediction(recording.spec, runs)
        self.slope = self._slope()

    def under(self, load: Load) -> "Predictor":
        """Predicts requests that come so from now on; the self-check stays that of one after the other.

        Raises PlanError where they compute more than the cores can.
        """
        self.load = load
        if self.computing >= 1:
            raise PlanError(
                f"--rate {load.per_s:g}: what queries compute at that rate is {self.computing:.0%} of"
                f" {load.cores} cores, so no volume keeps a bound; name a lower rate, or more --cores"
            )
        fastest = _fastest(self._of.spec)
        runs = [replay(self._thread, fastest, seed=seed, load=load).latency_s for seed in _SEEDS]
        self._fastest_s = float(np.mean(runs, axis=0).sum())
        return self

    def require_right(self) -> None:
        """Raise MeasurementError when the recorded volume itself is not predicted well."""
        for percentile, most in MAX_ERROR.items():
            error = self.errors[percentile]
            if abs(error) > most:
                raise MeasurementError(
                    f"arm {self._of.spec.name}: the self-check fails: p{percentile} of the recorded volume is"
                    f" predicted {error:+z.1%} off (allowed: {most:.0%}); no advice. {self._doubt}"
                )
        for task, (error, of_luck) in self.errors_by_task.items():
            if abs(error) - of_luck > MAX_TASK_ERROR:
                raise MeasurementError(
                    f"arm {self._of.spec.name}: the self-check fails: requests of {task} are predicted"
                    f" {error:+z.1%} off on the recorded volume, of which {of_luck:.1%} may be luck (allowed"
                    f" beyond: {MAX_TASK_ERROR:.0%}); no advice. {self._doubt}"
                )
        if self.slope is not None and not self.slope.agrees:
            raise MeasurementError(
                f"arm {self._of.spec.name}: the self-check fails: {self.slope}; what requests wait for is not"
                " understood, so no advice. Record again on a quiet machine"
            )

    @property
    def _doubt(self) -> str:
        """What to ask of a recording whose I/Os were counted, or of one of a volume of one's own."""
        if not self._of.logged:
            return "All I/Os of its requests are there: was the machine busy? Record again on a quiet one"
        return (
            "Is the trace of this volume, whole, and are all that used it in the log"
            f"{doubt_of_credits(self._of.spec)}? Record again"
        )

    @property
    def footprint_bytes(self) -> int | None:
        """Of what requests read; None where caches were not dropped, so that not all of it was recorded."""
        return footprint_bytes(self._of) if self._of.cold.all() else None

    def predict(
        self, spec: VolumeSpec, *, cache_bytes: int = 0, beside: Sequence[VolumeSpec] = ()
    ) -> Prediction:
        """The requests on the volume of ``spec``, and with a page cache that is never dropped.

        At the pace at which they were recorded, or under the load; or at the pace of a race in which volumes
        take turns, with those of ``beside``: then credits come back meanwhile. Raises PlanError when a type
        does not allow its spec.
        """
        thread = with_memory(self._of, self._thread, cache_bytes) if cache_bytes else self._thread
        thread = by_turns(self._of, thread, beside) if beside else thread
        return self._prediction(spec, _runs(thread, spec, self.load))

    @property
    def computing(self) -> float:
        """How busy the cores are under the load, as a share; 0 without one."""
        if self.load is None:
            return 0.0
        return self.load.per_s * float(self._thread.compute_s.sum()) / self.requests / self.load.cores

    def _prediction(self, spec: VolumeSpec, runs: Sequence[Replayed]) -> Prediction:
        latency_s = np.array([run.latency_s for run in runs])
        total_s = float(latency_s.mean(axis=0).sum())
        tasks = {
            str(task): tuple(_of_one_run(latency_s[:, self._of.task == task]).tolist())
            for task in dict.fromkeys(self._of.task)
        }
        used = {name: float(np.mean([run.used[name] for run in runs])) for name in runs[0].used}
        lasting = [
            share
            for name, share in used.items()
            if not name.endswith(CREDITS) or (name == CREDITS and not spec.credits)
        ]
        return Prediction(
            spec=spec,
            whole=self._estimates(latency_s),
            tasks=tasks,
            waits={
                name: float(np.mean([run.limit_s[name] for run in runs])) / total_s
                for name in runs[0].limit_s
            },
            used=used,
            busy=max(0.0, 1.0 - self._fastest_s / total_s),
            falls_behind=self.load is not None and max(lasting, default=0.0) >= 1,
        )

    def _estimates(self, latency_s: Column) -> tuple[Estimate, ...]:
        """Where the percentiles of a race of as many requests will lie, by how they vary from round to round.

        Those of the recording vary as those of the race do, hence the 2. What the self-check is off by is no
        chance, so it is added whole. The p99 of a part of a few requests is its slowest, which varies too
        little: it varies at least as by its neighbours among all requests. Under a load requests wait for
        one another, so how runs differ, by when requests come, is added. Of few the upper end is the
        slowest of all, if that is more, and of fewer none.
        """
        slowest_s = float(latency_s.max(axis=1).mean())
        parts = np.unique(self._part)
        logs = np.log(np.maximum(latency_s, _MIN_S))
        each = [np.percentile(logs[:, self._part == part], PERCENTILES, axis=1) for part in parts]
        errors = np.sqrt(np.var(each, axis=0, ddof=1).mean(axis=1) / len(parts))  # a race has one luck
        apart = critical_t(len(parts), _CONFIDENCE) * errors
        apart[-1] = max(apart[-1], _NORMAL * _standard_error(logs, PERCENTILES[-1]))
        apart *= np.sqrt(2)
        if self.load is not None:
            count = len(logs)
            of_runs = np.percentile(logs, PERCENTILES, axis=1).std(axis=1, ddof=1)
            apart = np.hypot(apart, critical_t(count, _CONFIDENCE) * of_runs * np.sqrt(1 + 1 / count))
        estimates = []
        values = _of_one_run(latency_s).tolist()
        for percentile, value, times in zip(PERCENTILES, values, np.exp(apart).tolist(), strict=True):
            off = abs(self.errors.get(percentile, 0.0)) * value
            high = value * times
            if self.requests < _surely_beyond(percentile):
                high = max(high, slowest_s)
            is_bounded = self.requests >= least_requests(percentile)
            low = max(0.0, value / times - off)
            estimates.append(Estimate(value, low, high + off if is_bounded else None))
        return tuple(estimates)

    def _errors_by_task(self, runs: Sequence[Replayed]) -> dict[str, tuple[float, float]]:
        """What the middle of a task's requests is off by, and how much of that may be the luck of their I/Os.

        Each request is compared with itself: the p50 of few requests that differ may be far off by chance.
        """
        middle_s = np.median([run.latency_s for run in runs], axis=0)
        again, recorded = np.log(np.maximum([middle_s, self._of.latency_s], _MIN_S))
        confidence = 1 - (1 - _CONFIDENCE) / len(self.check.tasks)  # in that all tasks are within theirs
        errors = {}
        for task in self.check.tasks:
            off = (again - recorded)[self._of.task == task]
            count, of_luck = len(off), float("inf")
            if count > 1:
                error = _OF_MEDIAN * float(np.std(off, ddof=1)) / count**0.5
                of_luck = float(np.expm1(critical_t(count, confidence) * error))
            errors[task] = float(np.expm1(np.median(off))), of_luck
        return errors

    def _error(self, percentile: int) -> float:
        measured = float(np.percentile(self._of.latency_s, percentile))
        return self.check.percentile(percentile).value / measured - 1

    def _slope(self) -> Slope | None:
        """By least squares over the rounds; None for a recording that was not perturbed.

        What of the measured medians is not predicted is fitted, so that a curve is taken for no error.
        """
        rounds = [one for one in self._of.perturbed if one.medians_s.keys() == self.check.tasks.keys()]
        times = np.array([one.times for one in rounds])
        if len(rounds) < MIN_PERTURBED_ROUNDS or not np.ptp(times):
            return None
        usual = self._of.spec.read_latency
        specs = {one: replace(self._of.spec, read_latency=usual * one) for one in set(times)}
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
        """Of the middle of the tasks' medians: the mix's own median may fall between two tasks."""
        medians_s = self._of.medians_s()
        pairs_s = [(self.check.tasks[task][0], medians_s[task]) for task in self.check.tasks]
        again, recorded = np.log(np.maximum(pairs_s, _MIN_S)).T
        return float(np.exp(np.mean(again - recorded))) - 1


def by_turns(recording: Recording, thread: Thread, beside: Sequence[VolumeSpec]) -> Thread:
    """The requests at the pace of a race in which those on other volumes take turns with them."""
    others_s = [replay(thread, model_for(spec), credits=spec.credits).latency_s for spec in beside]
    return thread._replace(rest_s=recording.pause_s * (1 + len(beside)) + sum(others_s))


def _fastest(spec: VolumeSpec) -> Model:
    """A volume that takes no time."""
    return replace(model_for(spec), limits=(), instance_limits=(), read=_NO_TIME, write=_NO_TIME, stripes=1)


def _runs(thread: Thread, spec: VolumeSpec, load: Load | None = None) -> list[Replayed]:
    """The requests on a volume, once with each luck."""
    model = model_for(spec)
    return [replay(thread, model, credits=spec.credits, seed=seed, load=load) for seed in _SEEDS]
