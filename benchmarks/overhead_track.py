"""Track plugin of overhead.py: what the pack puts into a race, on a node that is already there.

All that race control does in a session but for attaching, starting and taking down.
"""

import os
from pathlib import Path
from typing import Any

from esrally import config
from esrally.track import loader

from esrally_ebs.rally import request_source, runners, schedule
from esrally_ebs.rally.activation import ACTIVATION, Activation, install
from esrally_ebs.store.context import load_context

CONTEXT = Path(os.environ["EBS_OVERHEAD_CONTEXT"])


class OnRunningNode(loader.TrackProcessor):  # type: ignore[misc]
    """The pack's schedule, samples and telemetry for the session of the context file."""

    def __init__(self) -> None:
        self.cfg: Any = None  # set by Rally

    def on_after_load_track(self, track: Any) -> None:  # noqa: ANN401 - Rally is untyped
        """Expand the schedule; in race control, also install what records."""
        plan = load_context(CONTEXT).plan
        for challenge in track.challenges:
            challenge.schedule = schedule.expand(challenge.schedule, plan)
        if self.cfg.exists("race", "pipeline"):
            install(CONTEXT)
            self.cfg.add(config.Scope.benchmark, "driver", ACTIVATION, Activation(CONTEXT))


def register(registry: Any) -> None:  # noqa: ANN401 - Rally is untyped
    """Called by Rally."""
    registry.register_track_processor(OnRunningNode())
    registry.register_param_source(request_source.PARAM_SOURCE, request_source.RequestSource)
    if registry.runner_registry:
        runners.register(registry)
