"""Rally's own parameter source, plus which arm, round and iteration a request belongs to.

Rally's sources keep only the keys that they know, so ours wraps them and adds its fields to what they give.
"""

from typing import Any

from esrally.track import params as rally_params

from esrally_ebs.rally.schedule import META


class OnArm:
    """Parameters of the wrapped source with ``params["ebs"]``: arm, cluster, round, task, phase, request."""

    def __init__(self, track: Any, params: dict[str, Any], *, inner: Any = None, **_: Any) -> None:
        self._track = track
        self._params = params
        self._ours = params[META]
        self._requests = 0
        self.inner = inner if inner is not None else _inner(track, params)

    def partition(self, index: int, total: int) -> "OnArm":
        """The part of one client; it counts its own requests."""
        return OnArm(self._track, self._params, inner=self.inner.partition(index, total))

    def params(self) -> dict[str, Any]:
        """The next request."""
        self._requests += 1
        return {**self.inner.params(), META: {**self._ours, "request": self._requests}}

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not yet set while unpickling
            raise AttributeError(name)
        return getattr(self.inner, name)


def _inner(track: Any, params: dict[str, Any]) -> Any:
    ours = params[META]
    if ours["inner_source"]:
        return rally_params.param_source_for_name(ours["inner_source"], track, params)
    return rally_params.param_source_for_operation(ours["inner_type"], track, params, ours["rally_task"])
