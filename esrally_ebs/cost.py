"""What a volume costs a month: a VolumeSpec and a region in, US dollars and where the prices are from out.

Prices are data with a date in ``prices.json``. What has no price there has none here: nothing is guessed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The monthly price of a volume."""

    usd: float  # a month
    region: str
    dated: str  # of the price list
    parts: Mapping[str, float]  # US dollars a month by what is paid for
    source: str


def monthly_price(spec: VolumeSpec, region: str) -> Price | None:
    """The price of a volume in a region; None when the list has none for its type there."""
    entry = _prices()["regions"].get(region, {}).get(spec.type)
    if entry is None:
        return None
    # AWS bills what it calls GB and means GiB.
    parts = {"storage": spec.size_bytes / GIB * entry["gb"]}
    if "iops" in entry:
        parts["iops"] = max(0, (spec.iops or 0) - entry.get("iops_included", 0)) * entry["iops"]
    if "mib_per_s" in entry:
        included = entry["mib_per_s_included"]
        throughput = (spec.throughput_bytes_per_s or included * MIB) / MIB
        parts["throughput"] = max(0.0, throughput - included) * entry["mib_per_s"]
    return Price(
        usd=sum(parts.values()),
        region=region,
        dated=entry["dated"],
        parts={name: usd for name, usd in parts.items() if usd},
        source=entry["source"],
    )


def regions() -> tuple[str, ...]:
    """The regions of the price list."""
    return tuple(_prices()["regions"])


@cache
def _prices() -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = json.loads(Path(__file__).with_name("prices.json").read_text())
    return parsed
