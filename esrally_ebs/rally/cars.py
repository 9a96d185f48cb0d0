"""Rally cars to node settings, for ``--car``, ``--car-params`` and a plan's ``[node]``."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esrally import exceptions
from esrally.mechanic import team

from esrally_ebs.errors import PlanError
from esrally_ebs.model import refuse_secrets
from esrally_ebs.node import OVERHEAD_BYTES, STORE_TYPES, NodeSettings, page_cache_bytes
from esrally_ebs.units import format_bytes, parse_bytes

VARIABLES = ("heap_size", "page_cache", "memory_limit", "cpus", "store_type", "readahead", "java_opts")
# used by Rally's own pipelines only
_RALLYS_OWN = ("runtime.jdk", "build.jdk", "jdk.", "system.", "docker.")
# Set by the compose file: the pack finds a node, its data and its log by them, and they keep others away from
# a node that has the machine's network.
_FIXED = (
    "path.",
    "http.port",
    *(f"{of}.{end}host" for of in ("network", "http", "transport") for end in ("", "bind_")),
    "transport.port",
    "transport.profiles.",
    "node.name",
    "discovery.",
    "xpack.security.",
    "index.store.type",
)


# Elasticsearch images take these environment variables as settings; they set nothing else
_SETTING = re.compile(r"[a-z0-9_]+\.[a-z0-9_][\w.-]*")
_PAGE_BYTES = 4096  # the kernel counts readahead in pages


def team_path() -> Path:
    """Rally's ``--team-path`` for the pack's cars."""
    return Path(__file__).with_name("team")


def car_names() -> list[str]:
    return sorted(team.CarLoader(str(team_path())).car_names())


def load_settings(names: Sequence[str], params: Mapping[str, Any]) -> NodeSettings:
    """Settings of a node with these cars; later cars override earlier ones, and ``params`` override all.

    A parameter is a car variable or, if its name has a dot, an Elasticsearch setting. Raises PlanError for an
    unknown car or variable, and for values that no node can start with.
    """
    _check_names(names)
    _check_params(params)
    try:
        variables = dict(team.load_car(str(team_path()), list(names), dict(params)).variables)
    except exceptions.RallyError as error:
        raise PlanError(f"car {'+'.join(names)}: {error}") from error
    if "page_cache" in params and variables["memory_limit"] != "":
        raise PlanError(
            "car variables memory_limit, page_cache: one follows from the other; give one of them"
        )
    heap_bytes = _bytes(variables, "heap_size")
    settings = NodeSettings(
        heap_bytes=heap_bytes,
        memory_bytes=_bytes(variables, "memory_limit")
        or heap_bytes + OVERHEAD_BYTES + _bytes(variables, "page_cache"),
        cpus=_cpus(variables["cpus"]),
        store_type=str(variables["store_type"]),
        java_opts=str(variables["java_opts"]),
        readahead_bytes=_bytes(variables, "readahead") if variables["readahead"] != "" else None,
        es_settings={name: _text(value) for name, value in variables.items() if is_setting(name)},
    )
    _check(settings)
    return settings


def is_setting(name: str) -> bool:
    """Whether a car variable is an Elasticsearch setting, not one of the pack's or Rally's."""
    return "." in name and not name.startswith(_RALLYS_OWN)


def _check_names(names: Sequence[str]) -> None:
    known = car_names()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PlanError(f"car {unknown[0]!r}: unknown; the cars are {', '.join(known)}")
    if not names:
        raise PlanError(f"car: none given; write 'defaults', or one of {', '.join(known)}")


def _check_params(params: Mapping[str, Any]) -> None:
    refuse_secrets(params, "car variable")
    for name in params:
        if name == "data_paths":
            raise PlanError(
                "car variable data_paths: the arm's volume decides it; it is for Rally's own pipelines"
            )
        if name.startswith(_FIXED):
            raise PlanError(
                f"car variable {name}: the pack sets it itself; use store_type for the store, drop the rest"
            )
        if name not in VARIABLES and "." not in name:
            raise PlanError(
                f"car variable {name!r}: unknown; the variables are {', '.join(VARIABLES)}, "
                "and any Elasticsearch setting by its dotted name"
            )
        if is_setting(name) and not _SETTING.fullmatch(name):
            raise PlanError(
                f"car variable {name!r}: is no name of a setting that Elasticsearch's image would take; "
                "write it as in 'indices.queries.cache.size'"
            )


def _bytes(variables: Mapping[str, Any], name: str) -> int:
    """A size in bytes; 0 if empty."""
    value = variables[name]
    # as text: a plan's or JSON's value may have any type, and a number may be negative
    return 0 if value == "" else parse_bytes(str(value), what=f"car variable {name}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cpus(value: object) -> float:
    try:
        cpus = float(str(value))
    except ValueError:
        cpus = -1.0
    if not 0 <= cpus < 1024:
        raise PlanError(
            f"car variable cpus: {value!r} is not a number of processors; write for example 2, or 0 for all"
        )
    return cpus


def _check(settings: NodeSettings) -> None:
    if settings.store_type not in STORE_TYPES:
        raise PlanError(
            f"car variable store_type: {settings.store_type!r} is not one of {', '.join(STORE_TYPES)}"
        )
    if not settings.heap_bytes:
        raise PlanError("car variable heap_size: no node starts without a heap; write for example 512m")
    if page_cache_bytes(settings) == 0:
        raise PlanError(
            f"car variable memory_limit: {format_bytes(settings.memory_bytes)} is too little for a heap of "
            f"{format_bytes(settings.heap_bytes)} and its JVM; raise memory_limit, or lower heap_size"
        )
    if (settings.readahead_bytes or 0) % _PAGE_BYTES:
        raise PlanError(
            f"car variable readahead: {settings.readahead_bytes} bytes are no whole pages of {_PAGE_BYTES}; "
            "write for example 4k, 128k, or 0 for none"
        )
    if any("\n" in value for value in (settings.java_opts, *settings.es_settings.values())):
        raise PlanError("car variables: a value has a line break; write it in one line")
