"""Tracks that do not register the pack: the pack registers itself after them.

``esrally-ebs race`` starts ``esrally`` with our track parameters in the environment, since Rally refuses
those that a track does not use. ``local_actors`` calls ``join`` once Rally's module of tracks has been
loaded.
"""

import json
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NoReturn

from esrally_ebs.errors import EbsError, PlanError
from esrally_ebs.rally import register

DEFAULT_PLAN = "gp2-vs-gp3"
# The pack's track parameters. A value goes to that key of the plan as it is.
OF_PLAN = {
    "rounds": "design.rounds",
    "max_rounds": "design.max_rounds",
    "budget": "design.budget",
    "iterations": "race.iterations",
    "warmup_iterations": "race.warmup_iterations",
    "documents": "dataset.documents",
    "cache": "cache.mode",
    "data": "dataset.data",
    "snapshot": "dataset.snapshot",
}
PARAMETERS = frozenset({*OF_PLAN, "plan", "set", "accept", "indices", "volumes"})
_VARIABLE = "ESRALLY_EBS_RACE"


def environment(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables for a race with these track parameters of the pack."""
    return {_VARIABLE: json.dumps(parameters)}


def parameters() -> dict[str, Any]:
    """Track parameters from our own command; empty if Rally was started otherwise."""
    given: dict[str, Any] = json.loads(os.environ.get(_VARIABLE, "{}"))
    return given


def join(loader: ModuleType) -> None:
    """If our command started this race, have every track register the pack last."""
    if not parameters():
        return
    from esrally import exceptions  # imported here: report and others import this module, and need no Rally

    reader = loader.TrackPluginReader
    has_plugins, load = reader.can_load, reader.load

    def load_with_pack(self: Any) -> None:
        from esrally_ebs.rally import patches  # imported here: it imports this module

        patches.install([patches.FAILURE])  # the track's own processors run before the pack's
        if has_plugins(self):
            try:
                load(self)
            except (exceptions.SystemSetupError, SystemExit) as error:
                refuse(error)
        register(self, of_track=False)

    reader.can_load, reader.load = lambda self: True, load_with_pack


def refuse(error: Any) -> NoReturn:
    """Raise PlanError for an error in a track's own code, which Rally describes only in its log."""
    cause = error if isinstance(error, SystemExit) else error.__context__
    if not isinstance(cause, Exception | SystemExit) or isinstance(cause, EbsError):
        raise error
    text = f"{getattr(error, 'message', 'track.py')}: {type(cause).__name__}: {cause}"
    raise PlanError(f"{' '.join(text.split())}; mend the track's code") from None
