"""Price lists: our dated ``prices.json`` and a file of the user's own in, one dated rate out."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from esrally_ebs.errors import PlanError

PRICES_VARIABLE = "ESRALLY_EBS_PRICES"
MAX_USD = 1e9  # US dollars: more is a mistake, as are NaN and infinity
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\Z")
_KEYS = ("units", "included", "sources", "unverified", "regions")
_NAMES = (  # what is paid for
    *("gb", "iops", "iops_above_32000", "iops_above_64000", "mib_per_s"),
    *("one_zone_gb", "read_gb", "written_gb", "million_ios"),
)
_MAX_CHARACTERS = 2**26
_EXAMPLE = '{"regions": {"eu-west-1": {"gp3": {"gb": [[0.088, "2026-11-21", "where it is from"]]}}}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One price."""

    usd: float  # per unit and month
    dated: str
    source: str
    verified: bool  # False: remembered or assumed, no source found


_Rates = Mapping[tuple[str, str, str], tuple[Rate, ...]]  # by region, type, what is paid for; oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """All rates that are known."""

    rates: _Rates
    _included: Mapping[str, Mapping[str, float]]

    def rate(self, region: str, type_: str, what: str, on: str | None = None) -> Rate:
        """The newest rate up to the day ``on``, else the oldest; PlanError, saying how to give it."""
        rates = self.rates.get((region, type_, what))
        if not rates:
            known = ", ".join(self.regions(type_)) or "no region"
            raise PlanError(
                f"price of {type_} {what} in {region}: not known (this type's prices are known in {known});"
                f" name a file with it in {PRICES_VARIABLE} or --prices, see docs/studies.md"
            )
        until = [rate for rate in rates if on is None or rate.dated <= on]
        return until[-1] if until else rates[0]

    def regions(self, type_: str | None = None) -> tuple[str, ...]:
        """Every region with a price, of one type or of any."""
        return tuple(dict.fromkeys(region for region, of, _ in self.rates if type_ in (None, of)))

    def included(self, type_: str) -> Mapping[str, float]:
        """What is in the price of storage."""
        return self._included[type_]


def read_prices(path: str | None) -> PriceList:
    """Our list, with the rates of the user's file instead of ours where it has any."""
    ours = _ours()
    if path is None:
        return ours
    try:
        with Path(path).expanduser().open() as file:
            text = file.read(_MAX_CHARACTERS)  # of more, what is cut off is no JSON
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise PlanError(
            f"{path}: prices cannot be read: {reason}; name a JSON file such as {_EXAMPLE}"
        ) from error
    try:
        rates = _parse(json.loads(text), path)
    except ValueError as error:
        raise PlanError(f"{path}: not JSON: {error}; write for example {_EXAMPLE}") from error
    except RecursionError as error:
        raise PlanError(f"{path}: nested too deeply; write for example {_EXAMPLE}") from error
    return PriceList(rates={**ours.rates, **rates}, _included=ours._included)


@cache
def _ours() -> PriceList:
    path = Path(__file__).with_name("prices.json")
    data = json.loads(path.read_text())
    return PriceList(rates=_parse(data, path.name), _included=data["included"])


def _parse(data: Any, where: str) -> _Rates:  # noqa: ANN401 - whatever JSON held
    sources = _table(_table(data, where).get("sources", {}), f"{where}: sources")
    _check_known(data, _KEYS, where)
    unverified = _table(data.get("unverified", {}), f"{where}: unverified")  # by source: why
    rates: dict[tuple[str, str, str], tuple[Rate, ...]] = {}
    for region, types in _table(data.get("regions", {}), f"{where}: regions").items():
        for type_, parts in _table(types, f"{where}: {region}").items():
            _check_known(_table(parts, f"{where}: {region}.{type_}"), _NAMES, f"{where}: {region}.{type_}")
            for what, listed in parts.items():
                place = f"{where}: {region}.{type_}.{what}"
                entries = listed if isinstance(listed, list) and listed else [listed]
                dated = [_rate(entry, place, sources, unverified) for entry in entries]
                rates[region, type_, what] = tuple(sorted(dated, key=lambda rate: rate.dated))
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
