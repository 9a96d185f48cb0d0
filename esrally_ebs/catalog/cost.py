"""Monthly price of a volume: from a VolumeSpec and a region to US dollars with date and source.

Pure except for ``price_list``, which reads a file, and for today's date if no day is given. Prices are dated
data in ``prices.json``; a file of the user's takes precedence. A missing price is reported as missing:
nothing is guessed.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from esrally_ebs.catalog.volume_types import efs_mode, known_model
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, MIB

PRICES_VARIABLE = "ESRALLY_EBS_PRICES"
HOURS_A_MONTH = 730  # AWS's convention
MAX_USD = 1e9  # US dollars: more is a mistake, like NaN and infinity
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\Z")
_KEYS = ("units", "included", "sources", "unverified", "regions")
_NAMES = (  # billed items
    *("gb", "iops", "iops_above_32000", "iops_above_64000", "mib_per_s"),
    *("one_zone_gb", "read_gb", "written_gb", "million_ios"),
)
_MAX_CHARACTERS = 2**26
_EXAMPLE = '{"regions": {"eu-west-1": {"gp3": {"gb": [[0.088, "2026-11-21", "where it is from"]]}}}}'

# EFS Provisioned: storage includes 1 MiB/s for every 20 GiB stored. infracost, by AWS's price list, bills
# 88.5 of 100 MiB/s at 230 GiB.
_EFS_INCLUDED_MIB_PER_GIB = 0.05
_NOT_SOLD = ("directory", "mounted")
_BY_USE = ("read_gb", "written_gb", "million_ios")  # billed once, for any number of volumes
_WITH_INSTANCE = "instance-store"  # included in the instance's price


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    usd: float  # per unit and month
    dated: str
    source: str
    verified: bool  # False: remembered or assumed, without a source


_Rates = Mapping[tuple[str, str, str], tuple[Rate, ...]]  # by region, type and billed item; oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    rates: _Rates
    _included: Mapping[str, Mapping[str, float]]

    def rate(self, region: str, type_: str, what: str, on: str | None = None) -> Rate:
        """The newest rate up to the day ``on``, by default today, else the oldest.

        Raises PlanError, saying how to give one.
        """
        on = on or datetime.now(UTC).date().isoformat()
        rates = self.rates.get((region, type_, what))
        if not rates:
            known = ", ".join(self.regions(type_)) or "no region"
            raise PlanError(
                f"price of {type_} {what} in {region}: not known (this type's prices are known in {known});"
                f" name a file with it in {PRICES_VARIABLE}, see docs/studies.md"
            )
        until = [rate for rate in rates if rate.dated <= on]
        return until[-1] if until else rates[0]

    def regions(self, type_: str) -> tuple[str, ...]:
        """All regions with a price for the type."""
        return tuple(dict.fromkeys(region for region, of, _ in self.rates if of == type_))

    def included(self, type_: str) -> Mapping[str, float]:
        """Amounts included in the price of storage."""
        return self._included[type_]


def own_list() -> str | None:
    """Path of the user's price list, from ESRALLY_EBS_PRICES."""
    return os.environ.get(PRICES_VARIABLE)


def read_list(path: str) -> str:
    """Text of a price list. Raises PlanError if it cannot be read."""
    try:
        file = Path(path).expanduser()
        if file.exists() and not file.is_file():  # somebody else's plan may name a pipe or a terminal
            raise ValueError("that is no file")
        with file.open(encoding="utf-8-sig") as opened:  # editors on Windows begin with a mark ("-sig")
            return opened.read(_MAX_CHARACTERS)  # a longer file is cut, and thus no JSON
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise PlanError(
            f"{path}: prices cannot be read: {reason}; name a JSON file such as {_EXAMPLE}"
        ) from error


def price_list(path: str | None = None) -> PriceList:
    """Our prices; those of ESRALLY_EBS_PRICES go before them, and those of ``path`` before these.

    Raises PlanError, with file and key, if a file cannot be read or is no price list.
    """
    ours = _ours()
    rates = dict(ours.rates)
    for own in filter(None, (own_list(), path)):
        try:
            rates |= _parse(json.loads(read_list(own)), own)
        except ValueError as error:
            raise PlanError(f"{own}: not JSON: {error}; write for example {_EXAMPLE}") from error
        except RecursionError as error:
            raise PlanError(f"{own}: nested too deeply; write for example {_EXAMPLE}") from error
    return PriceList(rates=rates, _included=ours._included)


@cache
def _ours() -> PriceList:
    path = Path(__file__).with_name("prices.json")
    data = json.loads(path.read_text())
    return PriceList(rates=_parse(data, path.name), _included=data["included"])


def _parse(data: Any, where: str) -> _Rates:  # noqa: ANN401 - whatever JSON held
    sources = _table(_table(data, where).get("sources", {}), f"{where}: sources")
    _check_known(data, _KEYS, where)
    unverified = _table(data.get("unverified", {}), f"{where}: unverified")  # reason by source
    rates: dict[tuple[str, str, str], tuple[Rate, ...]] = {}
    for region, types in _table(data.get("regions", {}), f"{where}: regions").items():
        for type_, parts in _table(types, f"{where}: {region}").items():
            _check_known(_table(parts, f"{where}: {region}.{type_}"), _NAMES, f"{where}: {region}.{type_}")
            for what, listed in parts.items():
                place = f"{where}: {region}.{type_}.{what}"
                entries = listed if isinstance(listed, list) and listed else [listed]
                dated = [_rate(entry, place, sources, unverified) for entry in entries]
                rates[region, _listed(type_), what] = tuple(sorted(dated, key=lambda rate: rate.dated))
    return rates


def _check_known(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise PlanError(f"{where}: no key {key!r} in a price list; use {', '.join(known)}")


def _table(value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise PlanError(f"{where}: must be a table; write for example {_EXAMPLE}")
    return value


def _rate(entry: Any, where: str, sources: Mapping[str, Any], unverified: Mapping[str, Any]) -> Rate:  # noqa: ANN401
    match entry:
        case [float() | int() as usd, str(dated), str(source)] if _is_price(usd) and _DATE.match(dated):
            verified = source not in unverified
            return Rate(
                usd=float(usd), dated=dated, source=str(sources.get(source, source)), verified=verified
            )
    raise PlanError(f'{where}: {json.dumps(entry)} is not [US dollars, "YYYY-MM-DD", "source"]; mend it')


def _is_price(usd: float) -> bool:
    return not isinstance(usd, bool) and 0 <= usd < MAX_USD


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Monthly usage that is billed; EBS volumes are billed for what is provisioned."""

    stored_bytes: int | None = None  # EFS; None = the arm's size
    read_bytes: int = 0  # EFS Elastic
    written_bytes: int = 0
    ios: int = 0  # magnetic


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPart:
    """One line of the bill."""

    what: str
    amount: float
    rate: Rate

    @property
    def usd(self) -> float:
        """US dollars a month."""
        return self.amount * self.rate.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """An arm's monthly price."""

    region: str
    parts: tuple[CostPart, ...]

    @property
    def usd(self) -> float:
        """US dollars per month."""
        return sum(part.usd for part in self.parts)

    @property
    def dated(self) -> str:
        """Date of the price list: the oldest of the price's parts."""
        return min((part.rate.dated for part in self.parts), default="")

    @property
    def source(self) -> str:
        """Sources of the prices, each once."""
        return "; ".join(dict.fromkeys(part.rate.source for part in self.parts))

    @property
    def unverified(self) -> tuple[str, ...]:
        """Parts with remembered or assumed prices: every output must show them."""
        return tuple(part.what for part in self.parts if not part.rate.verified)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCost:
    """An arm's price and what it buys; ``price`` is None if ``problem`` says why."""

    arm: str
    price: Price | None = None
    problem: str = ""
    iops: float | None = None  # sustained: without burst credits, ignoring the instance
    bytes_per_s: float | None = None

    @property
    def usd_per_1000_iops(self) -> float | None:
        """US dollars per month for a thousand sustained operations per second."""
        return self.price.usd / self.iops * 1000 if self.price and self.iops else None

    @property
    def usd_per_mib_per_s(self) -> float | None:
        """US dollars per month for a sustained MiB/s."""
        return self.price.usd / self.bytes_per_s * MIB if self.price and self.bytes_per_s else None


def monthly(
    spec: VolumeSpec,
    region: str,
    *,
    usage: Usage = NO_USAGE,
    prices: PriceList | None = None,
    on: str | None = None,
) -> Price:
    """An arm's price in a region, by the newest price list up to the day ``on`` or today (else its oldest).

    Raises PlanError, saying how to give it, if a needed price is missing.
    """
    if spec.type in _NOT_SOLD:
        raise PlanError(f"arm {spec.name}: a {spec.type} has no price; give its type, such as gp3")
    known = prices or price_list()
    parts = []
    for what, amount, key in _charges(spec, usage, known):
        if amount > 0:
            rate = known.rate(region, _listed(spec.type), key, on)
            volumes = 1 if key in _BY_USE else spec.stripes
            parts.append(CostPart(what=what, amount=amount * volumes, rate=rate))
    return Price(region=region, parts=tuple(parts))


def of_arms(
    specs: Sequence[VolumeSpec],
    region: str,
    *,
    usage: Mapping[str, Usage] | None = None,
    prices: PriceList | None = None,
    on: str | None = None,
) -> tuple[ArmCost, ...]:
    """Price of every arm, in order; ``usage`` by arm. An arm without one has the reason in ``problem``."""
    costs = list[ArmCost]()
    for spec in specs:
        used, price, problem = (usage or {}).get(spec.name, NO_USAGE), None, ""
        try:
            price = monthly(spec, region, usage=used, prices=prices, on=on)
        except PlanError as error:
            problem = str(error)
        iops, rate = sustained(spec)
        costs.append(ArmCost(arm=spec.name, price=price, problem=problem, iops=iops, bytes_per_s=rate))
    return tuple(costs)


def sustained(spec: VolumeSpec) -> tuple[float | None, float | None]:
    """Sustained operations and bytes per second; None if the type has no such limit.

    Burst credits refill at the baseline, so the slowest bucket of each kind remains. Ignores the instance's
    limits, which are not part of what is paid for here.
    """
    model = known_model(spec)
    if model is None:
        return None, None  # a directory, or a type that only AWS knows
    iops, bytes_per_s = (
        min((limit.rate for limit in model.limits if limit.counts == kind), default=inf)
        for kind in ("operations", "bytes")
    )
    # An operation has at most this size: gp2 without credits moves less than its throughput.
    bytes_per_s = min(bytes_per_s, iops * model.accounting.max_io_bytes)
    return None if iops == inf else iops * spec.stripes, bytes_per_s * spec.stripes


def _listed(type_: str) -> str:
    return {"magnetic": "standard", "io2-block-express": "io2"}.get(type_, type_)


_Charge = tuple[str, float, str]  # item, amount, key of the price list


def _charges(spec: VolumeSpec, usage: Usage, prices: PriceList) -> list[_Charge]:
    """All billed items of one volume; AWS says GB and means GiB."""
    if spec.type == _WITH_INSTANCE:
        return []
    if spec.type == "efs":
        return _efs(spec, usage)
    storage = ("storage", spec.size_bytes / GIB, "gb")
    if spec.type == "gp3":
        included = prices.included("gp3")
        iops = max(0, (spec.iops or 0) - included["iops"])
        rate = max(0.0, (spec.throughput_bytes_per_s or 0) / MIB - included["mib_per_s"])
        return [storage, ("IOPS", iops, "iops"), ("throughput", rate, "mib_per_s")]
    if spec.type == "io1":
        return [storage, ("IOPS", spec.iops or 0, "iops")]
    if _listed(spec.type) == "io2":
        return [storage, *_io2_tiers(spec.iops or 0)]
    if _listed(spec.type) == "standard":
        return [storage, ("I/Os", usage.ios / 1e6, "million_ios")]
    return [storage]


def _io2_tiers(iops: int) -> list[_Charge]:
    edges = ((0, 32_000, "iops"), (32_000, 64_000, "iops_above_32000"), (64_000, inf, "iops_above_64000"))
    return [
        (f"IOPS above {low:,}" if low else "IOPS", max(0, min(iops, high) - low), key)
        for low, high, key in edges
    ]


def _efs(spec: VolumeSpec, usage: Usage) -> list[_Charge]:
    stored = (spec.size_bytes if usage.stored_bytes is None else usage.stored_bytes) / GIB
    charges: list[_Charge] = [("storage", stored, "one_zone_gb" if spec.one_zone else "gb")]
    mode = efs_mode(spec)
    if mode == "provisioned":
        bought = (spec.throughput_bytes_per_s or 0) / MIB - stored * _EFS_INCLUDED_MIB_PER_GIB
        return [*charges, ("throughput", bought, "mib_per_s")]
    if mode == "elastic":
        charges.append(("reads", usage.read_bytes / GIB, "read_gb"))
        charges.append(("writes", usage.written_bytes / GIB, "written_gb"))
    return charges
