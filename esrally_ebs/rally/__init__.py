"""Everything that touches Rally; no other part of the pack imports ``esrally``.

``register`` is what a track's ``track.py`` calls.
"""

from typing import Any


def register(registry: Any, *, plan: str = "", of_track: bool = True) -> None:
    """Register the pack's processor, runners and parameter sources with Rally, once.

    ``plan`` is raced unless the track parameter of that name is given. ``of_track``: the track itself asks
    for the pack, so its parameters may be the pack's.
    """
    if getattr(registry, "has_pack", False):
        return
    registry.has_pack = True
    # imported here: the rest of the pack must be importable without Rally
    from esrally.driver import scheduler
    from esrally.track import loader

    from esrally_ebs.rally import knee, open_loop, processor, request_source, runners
    from esrally_ebs.workload.corpus import vectors
    from esrally_ebs.workload.queries import replay

    registry.register_track_processor(processor.Pack(plan, of_track=of_track))
    # Rally drops its own preparator if another processor is registered; it must come last.
    registry.register_track_processor(loader.DefaultTrackPreparator())
    registry.register_param_source(request_source.PARAM_SOURCE, request_source.RequestSource)
    registry.register_param_source(replay.PARAM_SOURCE, replay.Replay)
    registry.register_param_source(vectors.PARAM_SOURCE, vectors.Nearest)
    if registry.runner_registry:
        # not by the registry, which refuses names that the process that forked this one has
        vars(scheduler)["__SCHEDULERS"] |= {
            open_loop.NAME: open_loop.OpenLoop,
            open_loop.ARRIVALS: open_loop.Arrivals,
            open_loop.DRAWN: open_loop.DrawnArrivals,
            knee.NAME: knee.StepSchedule,
        }
        runners.register(registry)
