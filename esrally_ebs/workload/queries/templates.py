"""Queries grouped by shape: how many, how long they took in the log; never their literals."""

import hashlib
import math
import re
from collections import Counter
from typing import Any, Final

import orjson

from esrally_ebs.workload.queries.shapes import Shape

MAX_TEMPLATES: Final = 2_000  # what more shapes there are is one template, OTHER
OTHER: Final = "other"
_MAX_LAST: Final = 50_000
# 50 buckets to a factor of e: a percentile is within 1 % of the log's
_BUCKETS_PER_E: Final = 50
_LEAST_MS: Final = 1e-3


class Template:
    """Queries that differ by their literals only."""

    __slots__ = ("_took", "count", "name", "shape", "target")

    def __init__(self, name: str, target: str, shape: str) -> None:
        self.name = name
        self.target = target  # indices, and the names of the URL's parameters: "logs-?", "logs-??q&size"
        self.shape = shape
        self.count = 0
        self._took: Counter[int] = Counter()

    def add(self, took_ms: float | None) -> None:
        self.count += 1
        if took_ms is not None:
            self._took[math.floor(math.log(took_ms + _LEAST_MS) * _BUCKETS_PER_E)] += 1

    def took_ms(self) -> dict[str, float] | None:
        """Percentiles of the log's durations; None where the log has none."""
        total = sum(self._took.values())
        if not total:
            return None
        return {f"p{p}": self._percentile(math.ceil(total * p / 100)) for p in (50, 90, 99)}

    def _percentile(self, rank: int) -> float:
        for bucket in sorted(self._took):
            rank -= self._took[bucket]
            if rank <= 0:
                break
        value = math.exp((bucket + 0.5) / _BUCKETS_PER_E) - _LEAST_MS
        return float(f"{max(value, 0.0):.3g}")


class Templates:
    """All templates of a workload."""

    def __init__(self) -> None:
        self._by_shape: dict[tuple[str, str], Template] = {}
        self._last: dict[tuple[Shape, str], Template] = {}  # the same by what is faster to look up
        self._other: Template | None = None

    def of(self, shape: Shape, target: str) -> Template:
        """The template of a query with this shape to this target, whatever numbers its name holds."""
        template = self._last.get((shape, target))
        if template is None:
            if len(self._last) >= _MAX_LAST:
                self._last.clear()
            template = self._last[shape, target] = self._of(shape, re.sub(r"\d+", "?", target))
        return template

    def _of(self, shape: Shape, target: str) -> Template:
        key = (target, shape.text)
        template = self._by_shape.get(key)
        if template is not None:
            return template
        if len(self._by_shape) >= MAX_TEMPLATES:
            self._other = self._other or Template(OTHER, "", "")
            return self._other
        digest = hashlib.blake2b(f"{target}\n{shape.text}".encode(), digest_size=5).hexdigest()
        template = self._by_shape[key] = Template(f"{shape.label[:48]}-{digest}", target, shape.text)
        return template

    def ranked(self) -> list[Template]:
        """The most frequent first; those of one count by name."""
        used = [*self._by_shape.values(), *([self._other] if self._other else [])]
        return sorted(used, key=lambda template: (-template.count, template.name))

    def rows(self) -> list[dict[str, Any]]:
        """As ``templates.json`` lists them."""
        ranked = self.ranked()
        total = sum(template.count for template in ranked)
        return [
            {
                "name": template.name,
                "target": template.target,
                "count": template.count,
                "share": round(template.count / total, 6),
                "took_ms": template.took_ms(),
                "shape": orjson.loads(template.shape) if template.shape else None,
            }
            for template in ranked
        ]
