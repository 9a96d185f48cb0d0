"""Tries every setting of the catalog on recorded requests: finds the cheapest that keeps a bound."""

import math
from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise, product
from typing import TypeVar

import numpy as np

from esrally_ebs.advice.prediction import PERCENTILES, Prediction, Predictor
from esrally_ebs.advice.usage import Interval, ReplayedUsage, columns_of, replay_usage
from esrally_ebs.catalog import cost
from esrally_ebs.catalog.volume_types import known_model, large_enough, model_for
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Bound, VolumeSpec
from esrally_ebs.units import GIB, MIB
from esrally_ebs.volumes.virtual.replay import Column, Load

TYPES = ("gp2", "gp3", "io2", "st1")  # considered unless others are named
_IOPS = (3000, 4000, 5000, 6000, 8000, 10_000, 12_000, 16_000, 20_000, 25_000, 32_000, 48_000, 64_000, 80_000)
_OF_IO2 = (100, 200, 500, 1000, 2000, 128_000, 256_000)  # IOPS that only io1 and io2 may have, not gp3
_MIB_PER_S = (125, 160, 200, 250, 320, 400, 500, 640, 750, 1000, 1500, 2000)
# for types whose IOPS or throughput follow from the size
_SIZES_GIB = (125, 334, 500, 1000, 2000, 5334, 12_800, 16_384)
_UNITS = {"iops": 1, "throughput_bytes_per_s": MIB, "size_bytes": GIB}  # AWS sells whole units
_NEWEST = ("gp3", "io2", "gp2", "io1", "st1", "sc1")
_NOT_CHOSEN = {
    "efs": "nothing of it is chosen but its mode; race it as an arm of a plan",
    "instance-store": "its disks come with an instance, whose price is not known here",
}
_MOST_USED = 2.0**62  # bound on usage: a log may contain any number
_DEARER = 0.02  # the advised setting costs at most this share more than the cheapest that keeps the bound
_STEP = 0.01  # a p99 that is better by less does not justify a higher price
_UNSURE = 2  # queued shares were up to 1.3 times as large in simulations of minutes
_AnyOption = TypeVar("_AnyOption", bound="Option | UsageOption")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting: its monthly cost, and predicted times of requests."""

    price: cost.Price | None = None  # None: unknown, or not asked for
    prediction: Prediction
    bound: Bound

    @property
    def usd(self) -> float:
        """Monthly cost; infinite without a price."""
        return _usd(self.price)

    @property
    def spec(self) -> VolumeSpec:
        return self.prediction.spec

    @property
    def value_s(self) -> float:
        """Predicted time at the bound's percentile."""
        return self.prediction.percentile(self.bound.percentile).value

    @property
    def interval_s(self) -> tuple[float, float]:
        """Ends of its interval; the upper one is infinite if too few requests were recorded."""
        estimate = self.prediction.percentile(self.bound.percentile)
        assert estimate.low is not None  # predictions always have a lower end
        return estimate.low, math.inf if estimate.high is None else estimate.high

    @property
    def queues(self) -> bool:
        """Whether more requests than the bound allows may find a limit used up, in the long run."""
        return _UNSURE * max(self.prediction.queued.values(), default=0.0) > self.bound.allowed

    @property
    def keeps(self) -> bool:
        """Whether the interval's upper end keeps the bound, and does so for good."""
        behind = self.prediction.falls_behind or self.queues
        return not behind and self.interval_s[1] <= self.bound.seconds

    @property
    def may_keep(self) -> bool:
        """Whether the bound is inside the interval, or kept but for queues in the long run."""
        serves = not self.prediction.falls_behind
        return serves and not self.keeps and self.interval_s[0] <= self.bound.seconds

    @property
    def answer(self) -> str:
        """Whether the bound is kept, in one word."""
        return "yes" if self.keeps else "perhaps" if self.may_keep else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """All options from the cheapest to the dearest, and which to take."""

    bound: Bound
    recorded: VolumeSpec
    today: Option  # the recorded volume; it may have no price
    options: tuple[Option, ...]
    best: Option | None  # the cheapest that keeps the bound
    doubtful: Option | None  # the cheapest that may keep it, if it is cheaper than all that are known to
    region: str  # whose prices count
    unpriced: tuple[str, ...]  # types of which settings, or today's, were left out, without a price there
    load: Load | None  # None: requests one after the other, as they were recorded

    @property
    def suffices(self) -> bool:
        """Whether a setting keeps the bound, or today's volume does without burst credits."""
        return self.best is not None or (self.today.keeps and not _lives_on_credits(self.recorded))

    @property
    def front(self) -> tuple[Option, ...]:
        """Options with no other that is as cheap and noticeably faster, cheapest first.

        One that serves the load counts as faster than any that falls behind: first seconds say little then.
        """
        front, fastest = list[Option](), (True, math.inf)
        for option in self.options:
            behind = option.prediction.falls_behind
            if (behind, option.value_s) < fastest:
                front.append(option)
                fastest = behind, option.value_s * (1 - _STEP)
        return tuple(front)

    def neighbours(self) -> tuple[Option | None, Option | None]:
        """On the front: the next cheaper option, and the next dearer and faster that keeps the bound, too."""
        best = self.best
        assert best is not None
        below = [one for one in self.front if one.usd < best.usd and not one.prediction.falls_behind]
        dearer = [one for one in self.front if one.usd > best.usd and one.value_s < best.value_s]
        above = [one for one in dearer if one.keeps]
        return (below[-1] if below else None), (above[0] if above else None)


def settings(today: VolumeSpec, types: Sequence[str]) -> Iterator[VolumeSpec]:
    """Settings of these types that hold today's data, judged without burst credits, as they serve for good.

    They include settings with today's IOPS and today's throughput; sizes are raised to what the IOPS require,
    and IOPS to what the throughput requires.
    """
    for type_ in types:
        values = product(*_axes(type_, today).values())
        yield from dict.fromkeys(_setting(today, type_, point) for point in values)


def _setting(today: VolumeSpec, type_: str, point: Sequence[int]) -> VolumeSpec:
    """The setting with these values on its type's axes."""
    today = _whole(today, type_)
    bought: Mapping[str, int] = dict(zip(_axes(type_, today), point, strict=True))
    return large_enough(
        replace(
            today,
            name=type_,
            type=type_,
            size_bytes=bought.get("size_bytes", today.size_bytes),
            iops=bought.get("iops"),
            throughput_bytes_per_s=bought.get("throughput_bytes_per_s"),
            credits=0.0,
            time_scale=1.0,
            mode=None,
            one_zone=False,
        )
    )


def _whole(today: VolumeSpec, type_: str) -> VolumeSpec:
    """Today's volume in whole units that AWS sells: instance disks and EFS may have fractions of a GiB."""
    if type_ == today.type:
        return today
    rate = today.throughput_bytes_per_s
    return replace(
        today,
        size_bytes=-(-today.size_bytes // GIB) * GIB,
        throughput_bytes_per_s=None if rate is None else -(-rate // MIB) * MIB,
    )


def _preference(spec: VolumeSpec, usd: float, seconds: float) -> tuple[float, ...]:
    """Sort key: cents, seconds to three digits, newer types, then wider limits."""
    wider = -spec.size_bytes, -(spec.iops or 0), -(spec.throughput_bytes_per_s or 0)
    return round(usd, 2), float(f"{seconds:.3g}"), _NEWEST.index(spec.type), *wider


def _lives_on_credits(today: VolumeSpec) -> bool:
    return today.credits > 0 and model_for(today).bursts


def _written_out(today: VolumeSpec) -> VolumeSpec:
    """Today's volume with gp3's defaults filled in, so that it equals the same setting of the catalog.

    An io2-block-express becomes an io2, except on days and instances where an io2 was less.
    """
    if today.type == "io2-block-express":
        io2 = replace(today, type="io2")
        return io2 if known_model(io2) == model_for(today) else today
    if today.type != "gp3":
        return today
    return replace(
        today,
        iops=today.iops or _IOPS[0],
        throughput_bytes_per_s=today.throughput_bytes_per_s or _MIB_PER_S[0] * MIB,
    )


def _axes(type_: str, today: VolumeSpec) -> dict[str, list[int]]:
    """Candidate values of each field in which a type's settings differ."""
    today = _whole(today, type_)
    size_bytes = today.size_bytes
    sizes = [size_bytes, *(gib * GIB for gib in _SIZES_GIB if gib * GIB > size_bytes)]
    every_iops = sorted({*_IOPS, today.iops or _IOPS[0]})
    rates = sorted({*(mib * MIB for mib in _MIB_PER_S), today.throughput_bytes_per_s or MIB * _MIB_PER_S[0]})
    if type_ == "gp3":
        return {"iops": every_iops, "throughput_bytes_per_s": rates}
    if type_ in ("io1", "io2"):
        return {"iops": sorted({*_OF_IO2, *every_iops})}
    if type_ in ("gp2", "st1", "sc1"):
        return {"size_bytes": sizes}
    why = _NOT_CHOSEN.get(type_, "no settings to choose from")
    raise PlanError(f"--types {type_}: {why}; name some of gp2, gp3, io1, io2, st1, sc1")


def _usd(price: cost.Price | None) -> float:
    return price.usd if price else math.inf


def _price_of(
    region: str, prices: cost.PriceList, spec: VolumeSpec, used: cost.Usage = cost.NO_USAGE
) -> cost.Price | None:
    return cost.of_arms([spec], region, usage={spec.name: used}, prices=prices)[0].price


def _cheapest(
    options: Sequence[_AnyOption],
    today: VolumeSpec,
    types: Sequence[str],
    price_of: Callable[[VolumeSpec], cost.Price | None],
    option_of: Callable[[VolumeSpec, cost.Price], _AnyOption],
    dearer: float = _DEARER,
) -> _AnyOption | None:
    """The first option that keeps the bound, or a cheaper setting between the options that does.

    It costs at most ``dearer`` more than the cheapest. Wider limits are never cheaper and never slower: so of
    the settings between two corners none is cheaper than the lower corner, and none keeps the bound unless
    the upper does. Ranges are halved, cheapest lower corner first, until no remaining one can be cheaper.
    """
    known = {option.spec: option for option in options}
    best = next((option for option in options if option.keeps), None)
    corners: list[tuple[float, str, tuple[int, ...], tuple[int, ...]]] = []

    def usd(type_: str, point: tuple[int, ...]) -> float:
        return _usd(price_of(_setting(today, type_, point)))

    for type_ in types:
        for sides in product(*(pairwise(values) for values in _axes(type_, today).values())):
            low, high = tuple(side[0] for side in sides), tuple(side[1] for side in sides)
            heappush(corners, (usd(type_, low), type_, low, high))
    while best and corners and corners[0][0] * (1 + dearer) < _usd(best.price):
        _, type_, low, high = heappop(corners)
        spec = _setting(today, type_, high)
        price = price_of(spec)
        if price and spec not in known and known_model(spec):
            known[spec] = option_of(spec, price)
        if spec not in known or not known[spec].keeps:
            continue
        best = min(best, known[spec], key=lambda option: _usd(option.price))
        swapped = [(*low[:at], value, *low[at + 1 :]) for at, value in enumerate(high)]
        at = max(range(len(high)), key=lambda at: usd(type_, swapped[at]))
        unit = _UNITS[list(_axes(type_, today))[at]]
        middle = max(low[at], (low[at] + high[at]) // 2 // unit * unit)  # today's value may be fractional
        above = (*low[:at], min((middle // unit + 1) * unit, high[at]), *low[at + 1 :])
        heappush(corners, (usd(type_, low), type_, low, (*high[:at], middle, *high[at + 1 :])))
        heappush(corners, (usd(type_, above), type_, above, high))
    return best


def require_predicted(bound: Bound) -> None:
    """Raise PlanError for a bound on a percentile that is not predicted."""
    if bound.percentile > PERCENTILES[-1]:
        raise PlanError(
            f"--keep {bound.name}: volumes' models do not know rare slow I/Os; name one of p50 to p99"
        )


def advise(
    predictor: Predictor,
    today: VolumeSpec,
    bound: Bound,
    *,
    region: str,
    types: Sequence[str] = TYPES,
    prices: cost.PriceList | None = None,
    used: cost.Usage = cost.NO_USAGE,
) -> Advice:
    """The cheapest setting whose upper end keeps the bound, by these or the known prices.

    ``used`` is billed usage of today's volume, which only EFS needs. Raises MeasurementError if the recorded
    volume itself is predicted badly; PlanError for a percentile that is not predicted, and for a type or
    region without settings or prices.
    """
    require_predicted(bound)
    predictor.require_right()
    prices = prices or cost.price_list()
    priced, unpriced = priced_settings(today, types, region, prices)

    def option_of(spec: VolumeSpec, price: cost.Price) -> Option:
        return Option(price=price, prediction=predictor.predict(spec), bound=bound)

    def rank(option: Option) -> tuple[float, ...]:
        return _preference(option.spec, option.usd, option.value_s)

    options = sorted((option_of(*one) for one in priced), key=rank)
    today, price_of = _written_out(today), partial(_price_of, region, prices)
    best = _cheapest(options, today, types, price_of, option_of)
    if best is not None and best not in options:
        insort(options, best, key=rank)
    price = price_of(today, used)
    check = predictor.check if predictor.load is None else predictor.predict(predictor.check.spec)
    own = Option(price=price, prediction=replace(check, spec=today), bound=bound)
    keeping = [best] if best else []
    keeping += [own] if own.keeps and not _lives_on_credits(today) else []
    usd = min((option.usd for option in keeping), default=math.inf)
    return Advice(
        bound=bound,
        recorded=today,
        today=own,
        options=tuple(options),
        best=best,
        doubtful=next((option for option in options if option.may_keep and option.usd < usd), None),
        region=region,
        unpriced=unpriced if price else tuple(dict.fromkeys((*unpriced, today.type))),
        load=predictor.load,
    )


def priced_settings(
    today: VolumeSpec, types: Sequence[str], region: str, prices: cost.PriceList
) -> tuple[list[tuple[VolumeSpec, cost.Price]], tuple[str, ...]]:
    """Settings that AWS sells, with prices, and the types of which some have no price there.

    Raises PlanError if none has a price, and for a type without settings.
    """
    sold = [spec for spec in settings(today, types) if known_model(spec)]
    costs = cost.of_arms(sold, region, prices=prices)
    priced = [(spec, one.price) for spec, one in zip(sold, costs, strict=True) if one.price]
    if not priced:
        size = f"{today.size_bytes / GIB:g} GiB" + (f" as of {today.date}" if today.date else "")
        none_sold = f"--types {','.join(types)}: none is sold for {size}; name others"
        raise PlanError(next((one.problem for one in costs), none_sold))
    without = [spec.type for spec, one in zip(sold, costs, strict=True) if not one.price]
    return priced, tuple(dict.fromkeys(without))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOption:
    """One setting for a log's usage: its monthly cost, and when its limits would have been reached."""

    spec: VolumeSpec
    price: cost.Price | None  # only today's may have none
    usage: ReplayedUsage

    @property
    def usd(self) -> float | None:
        return self.price.usd if self.price else None

    @property
    def shortfall(self) -> tuple[float, bool]:
        """Seconds at its limits, and whether it would run out of burst credits at the mean usage."""
        return self.usage.limited_s, self.usage.credits_last_s is not None

    @property
    def keeps(self) -> bool:
        """Whether no limit was reached, nor is if such usage lasts."""
        return self.shortfall == (0.0, False)


def usage_options(
    intervals: Sequence[Interval], today: VolumeSpec, *, region: str, types: Sequence[str] = TYPES
) -> tuple[list[UsageOption], tuple[str, ...]]:
    """Today's volume, then by price each setting that is cheaper or less at its limits than all before it.

    Includes the cheapest setting that stays below its limits, also between the considered ones. Also returns
    the types with settings left out for want of a price. All start with today's share of burst credits; usage
    is billed by the log. Raises PlanError for a type or region without settings or prices.
    """
    today, columns, prices = _written_out(today), columns_of(intervals), cost.price_list()
    price_of = partial(_price_of, region, prices)
    priced, unpriced = priced_settings(today, types, region, prices)

    def option_of(spec: VolumeSpec, price: cost.Price | None) -> UsageOption:
        usage = replay_usage(columns, model_for(spec), credits=today.credits)
        return UsageOption(spec=spec, price=price, usage=usage)

    def rank(option: UsageOption) -> tuple[float, ...]:
        return _preference(option.spec, _usd(option.price), option.usage.limited_s)

    made = sorted((option_of(*one) for one in priced), key=rank)
    best = _cheapest(made, today, types, price_of, option_of, dearer=0.0)
    rounded = next((option for option in made if option.keeps), None)
    if best and rounded and _usd(best.price) * (1 + _DEARER) < _usd(rounded.price):
        insort(made, best, key=rank)
    front = [option_of(today, price_of(today, _used(columns)))]
    if front[0].price is None:
        unpriced = tuple(dict.fromkeys((*unpriced, today.type)))
    for option in made:
        if len(front) == 1 or option.shortfall < front[-1].shortfall:
            front.append(option)
    return front, unpriced


def _used(columns: Column) -> cost.Usage:
    """Usage of a month at the pace of these intervals."""
    with np.errstate(all="ignore"):
        seconds, *sums = columns.sum(axis=1)
        a_month = np.nan_to_num(np.array(sums) * (cost.HOURS_A_MONTH * 3600 / seconds))
    reads, read, writes, written = np.minimum(a_month, _MOST_USED).astype(np.int64).tolist()
    return cost.Usage(read_bytes=read, written_bytes=written, ios=reads + writes)
