"""Points in a few hundred clusters, like embeddings of texts, and points to search neighbours of."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from esrally_ebs.errors import PlanError
from esrally_ebs.model import MAX_DOCUMENTS

DIMENSIONS: Final = 128
PARAM_SOURCE: Final = "ebs-nearest"
_CLUSTERS: Final = 300
_CATEGORIES: Final = 50
_SPREAD: Final = 0.35  # of a cluster, relative to the distance between two
_SEARCHED: Final = 1_000_000_007  # instead of a chunk's number: searched points are no documents


class VectorRenderer:
    """Writes points with a category (some of them rare) and a number."""

    bytes_per_document = 1050
    capacity = MAX_DOCUMENTS

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise PlanError(f"seed {seed}: choose one from 0")
        self._seed = seed
        self._centres = np.random.default_rng(seed).normal(size=(_CLUSTERS, DIMENSIONS))

    def lines(self, start: int, stop: int) -> bytes:
        count = stop - start
        draw = np.random.default_rng([self._seed, start])
        categories = np.exp(draw.random(count) * np.log(_CATEGORIES)).astype(int)
        rows = zip(
            self._points(draw, count),
            categories.tolist(),
            draw.integers(0, 1000, count).tolist(),
            strict=True,
        )
        return "".join(
            f'{{"point":[{point}],"category":"category-{category:02}","number":{number}}}\n'
            for point, category, number in rows
        ).encode("ascii")

    def searched(self, number: int) -> list[float]:
        """A point to search neighbours of; always the same for the same number."""
        (point,) = self._points(np.random.default_rng([self._seed, _SEARCHED, number]), 1)
        return [float(part) for part in point.split(",")]

    def _points(self, draw: np.random.Generator, count: int) -> Iterator[str]:
        centres = self._centres[draw.integers(0, _CLUSTERS, count)]
        points = centres + draw.normal(scale=_SPREAD, size=centres.shape)
        return (",".join(map("{:.3f}".format, point)) for point in points.tolist())


class Nearest:
    """Parameters for Rally's ``search``: the neighbours of one point after another.

    From the operation: ``index``, ``k``, ``num_candidates``, an optional ``filter``, and the number of the
    ``first`` point.
    """

    infinite = True

    def __init__(self, track: object, params: dict[str, Any], **_: object) -> None:
        self._params = params
        self._renderer = VectorRenderer(params.get("seed", 42))
        self._next, self._step = params.get("first", 0), 1

    def partition(self, index: int, total: int) -> "Nearest":
        """Each client searches its own points."""
        part = Nearest(None, self._params)
        part._next, part._step = self._next + index, total
        return part

    def params(self) -> dict[str, Any]:
        given = ("k", "num_candidates", "filter")
        knn: dict[str, Any] = {name: self._params[name] for name in given if name in self._params}
        knn |= {"field": "point", "query_vector": self._renderer.searched(self._next)}
        self._next += self._step
        return {
            "operation-type": "search",
            "index": self._params["index"],
            "type": None,
            "cache": None,
            "detailed-results": self._params.get("detailed-results", False),
            "response-compression-enabled": True,
            "request-params": {},
            "body": {"knn": knn, "_source": False},
        }
