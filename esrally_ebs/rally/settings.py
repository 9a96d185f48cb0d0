"""Turns Rally's options into a Plan: track parameters and ``--car`` over the plan's file; and back."""

import configparser
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esrally import config, exceptions, paths
from esrally.client import EsClientFactory
from esrally.utils import opts

from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import plan_path
from esrally_ebs.model import Node
from esrally_ebs.plan import Plan, load_plan
from esrally_ebs.plan.tables import MIN_STARTS, MIN_STEP_S, MIN_STEPS
from esrally_ebs.rally import any_track

_SET_EXAMPLE = """--track-params='{"set": {"design.margin": 0.1}}'"""
_VOLUMES_EXAMPLE = "gp2=/mnt/gp2;gp3=/mnt/gp3"
PLAIN = "ebs.plain"  # in Rally's section "driver": the user started the nodes

_CLIENT_TIMEOUT_S = 60
# Rally sets from-sources itself without a pipeline and a version; None: not in race control.
_OURS = (None, "", "from-sources")
_OF_RALLYS_NODES = {"car.plugins": "--elasticsearch-plugins", "runtime.jdk": "--runtime-jdk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceSettings:
    """How this race is run; the same in every process that loads the track."""

    plan: Plan
    managed: bool  # the pack starts the nodes: neither --pipeline nor --distribution-version is given
    in_race_control: bool  # this process alone may start something
    race_id: str


def race_settings(cfg: Any, plan_of_track: str = "", *, of_track: bool = True) -> RaceSettings:
    """Settings of the race described by ``cfg``; uses the track's plan if no parameter names one.

    ``of_track``: the track itself asks for the pack; others may have parameters of the same names.

    Raises PlanError for an unusable plan or track parameter.
    """
    in_race_control = cfg.exists("race", "pipeline")
    pipeline = cfg.opts("race", "pipeline") if in_race_control else None
    test_mode = bool(cfg.opts("track", "test.mode.enabled", mandatory=False, default_value=False))
    params = dict(cfg.opts("track", "params", mandatory=False, default_value={}) or {})
    own = {"plan": plan_of_track} if plan_of_track else {}
    ours = any_track.parameters()
    given: dict[str, Any] = {**own, **ours, **(params if of_track else {})}
    if isinstance(given.get("set"), Mapping):
        given["set"] = {**ours.get("set", {}), **given["set"]}
    plan = plan_for(given, test_mode=test_mode)
    if in_race_control:
        plan = _with_cars(
            plan,
            cfg.opts("mechanic", "car.names", mandatory=False, default_value=None),
            cfg.opts("mechanic", "car.params", mandatory=False, default_value=None) or {},
        )
    return RaceSettings(
        plan=plan,
        managed=pipeline in _OURS and not cfg.exists("driver", PLAIN),
        in_race_control=in_race_control,
        race_id=str(cfg.opts("system", "race.id", mandatory=False, default_value="")),
    )


def configuration(name: str | None = None) -> Any:
    """What ``rally.ini``, or ``rally-<name>.ini``, says; no more than Rally's own where there is none.

    Raises PlanError for a file that Rally cannot read.
    """
    cfg = config.Config(config_name=name)
    try:
        if cfg.config_present():
            cfg.load_config()
    except (ValueError, KeyError, configparser.Error) as error:
        # without what stands there, which may be a part of a password
        what = str(error) if type(error) is ValueError else type(error).__name__
        line, option = getattr(error, "lineno", None), getattr(error, "option", None)
        where = f" in line {line}" if line else f" at {option}" if option else ""
        raise PlanError(
            f"{cfg.config_file.location}: Rally cannot read it ({what}{where}); mend it: UTF-8, and in a"
            " value $ is written $$ and % is %%"
        ) from error
    return cfg


def documents_of(track: str) -> Path:
    """Where Rally looks for the documents of a track whose only corpus has its name."""
    data = configuration().opts("benchmarks", "local.dataset.cache", mandatory=False)
    return Path(data or Path(paths.rally_confdir(), "benchmarks", "data"), track)


def require_arms(cfg: Any) -> None:
    """Raise PlanError where our own command, which compares arms of a plan, is to race other nodes."""
    if any_track.parameters() and cfg.exists("race", "pipeline"):
        raise PlanError(
            f"--pipeline {cfg.opts('race', 'pipeline')}: is of other nodes than those of the plan's arms; "
            "leave out --pipeline and --distribution-version, or race those nodes by 'esrally race'"
        )


def require_own_nodes(cfg: Any) -> None:
    """Raise PlanError if the user asks for nodes other than the pack's."""
    hosts = cfg.opts("client", "hosts", mandatory=False)
    # Rally sets one itself if the user does not
    rallys = f"127.0.0.1:{cfg.opts('provisioning', 'node.http.port', mandatory=False)}"
    if hosts and hosts.argvalue != rallys:
        raise PlanError(
            f"--target-hosts {hosts.argvalue}: the pack starts the nodes of this race; leave it out, or race "
            "nodes of your own by 'esrally race' with --pipeline=benchmark-only"
        )
    options = cfg.opts("client", "options", mandatory=False)
    for each in options.all_client_options.values() if options else ():
        if each.get("use_ssl"):
            raise PlanError("--client-options use_ssl: the nodes of this race speak plain HTTP; leave it out")
        try:
            EsClientFactory([{"host": "127.0.0.1", "port": 9200}], dict(each)).create()  # asks nothing yet
        except (TypeError, ValueError, exceptions.RallyError) as error:
            raise PlanError(f"--client-options: {' '.join(str(error).split())}; mend them") from error
    for key, flag in _OF_RALLYS_NODES.items():
        if value := cfg.opts("mechanic", key, mandatory=False):
            value = ",".join(value) if isinstance(value, list) else value
            raise PlanError(
                f"{flag} {value}: is of nodes that Rally installs, and those of this race are containers; "
                "leave it out, and name an image that has it by ES_IMAGE"
            )


def plan_for(params: Mapping[str, Any], *, test_mode: bool = False) -> Plan:
    """The plan named by the track parameters, with the other track parameters applied."""
    given = params.get("set", {})
    if not isinstance(given, Mapping):
        raise PlanError(f"track parameter set: {given!r} is no table; write for example {_SET_EXAMPLE}")
    overrides: dict[str, Any] = dict(given)
    for key, where in any_track.OF_PLAN.items():
        if key in params:
            overrides[where] = params[key]
    if "accept" in params:
        overrides["accept"] = _parts(params, "accept", "readahead;other-io")
    if "indices" in params:
        overrides["dataset.indices"] = _parts(params, "indices", "logs-1;logs-2")
    if "volumes" in params:
        overrides["arm"] = _mounted_arms(_parts(params, "volumes", _VOLUMES_EXAMPLE))
    plan = load_plan(plan_path(str(params.get("plan", any_track.DEFAULT_PLAN))), overrides)
    if plan.race is None:
        raise PlanError(f"plan {plan.name}: has no [race]; run it with 'esrally-ebs run {plan.name}'")
    return _shortened(plan) if test_mode else plan


def _parts(params: Mapping[str, Any], name: str, example: str) -> list[str]:
    """Items of a list: text separated by ``;`` or ``,``, or a JSON list of texts.

    Rally's short form of track parameters splits at every comma, quoted or not.
    """
    given = params[name]
    if isinstance(given, str):
        given = given.replace(";", ",").split(",")
    if not isinstance(given, list) or not all(isinstance(part, str) for part in given):
        raise PlanError(f"track parameter {name}: {given!r} is no text; write for example '{name}:{example}'")
    return [part.strip() for part in given]


def _mounted_arms(parts: Sequence[str]) -> list[dict[str, str]]:
    """``["gp2=/mnt/gp2", "gp3=/mnt/gp3"]`` to one ``[[arm]]`` per real mount, replacing the plan's."""
    arms = []
    for part in parts:
        name, equals, path = part.partition("=")
        if not equals or not path.startswith("/"):
            raise PlanError(
                f"track parameter volumes: {part!r} is not name=/mount/point; "
                f"write for example 'volumes:{_VOLUMES_EXAMPLE}'"
            )
        arms.append({"name": name, "type": "mounted", "mount": path})
    return arms


def _with_cars(plan: Plan, names: Any, params: Mapping[str, Any]) -> Plan:
    car = [names] if isinstance(names, str) else list(names or [])
    changes: dict[str, Any] = {}
    if car and car not in (["defaults"], ["external"]):
        changes["car"] = tuple(car)
    if params:
        changes["params"] = {**plan.node.params, **params}
    return updated(plan, "node", **changes) if changes else plan


def naming(tasks: Iterable[str], option: str = "--exclude-tasks") -> str:
    """Rally's option to leave these tasks out, or another one, quoted for a shell: names may have blanks."""
    return f"{option}={shlex.quote(','.join(tasks))}"


def updated(plan: Plan, section: str, **changes: Any) -> Plan:
    return plan.model_copy(update={section: getattr(plan, section).model_copy(update=changes)})


# Rally's --test-mode only proves that everything runs; its figures mean nothing.
_TEST_DOCUMENTS = 1000
_TEST_JOB_BYTES = 4 * 1024**2


def _shortened(plan: Plan) -> Plan:
    jobs = tuple(
        job.model_copy(
            update={"size": _TEST_JOB_BYTES, "runtime": 0.5 if job.runtime else None, "ramp_time": 0.0}
        )
        for job in plan.baseline
    )
    plan = plan.model_copy(update={"baseline": jobs})
    plan = updated(plan, "dataset", documents=_TEST_DOCUMENTS)
    plan = updated(
        plan, "race", iterations=1, warmup_iterations=min(1, plan.race.warmup_iterations if plan.race else 0)
    )
    starts = min(MIN_STARTS, plan.design.starts)
    plan = updated(plan, "design", starts=starts, step=float(MIN_STEP_S), steps=MIN_STEPS)
    rounds = max(plan.least_rounds, min(2, plan.design.most_rounds))
    return updated(plan, "design", rounds=rounds + -rounds % plan.design.starts)


def use_nodes(cfg: Any, nodes: Mapping[str, Node], also_at: str = "") -> None:
    """Point Rally at nodes, by the names of their clusters, as if the user had started them.

    ``also_at``: address at which load hosts reach them.
    """
    places = {name: [f"{also_at or node.host}:{node.port}"] for name, node in nodes.items()}
    hosts = opts.TargetHosts(json.dumps(places))
    given = cfg.opts("client", "options").all_client_options.get("default", {})
    options = json.dumps({name: {"timeout": _CLIENT_TIMEOUT_S, **given} for name in nodes})
    scope = config.Scope.benchmark  # takes precedence over the command line's scope
    cfg.add(scope, "client", "hosts", hosts)
    cfg.add(scope, "client", "options", opts.ClientOptions(options, target_hosts=hosts))
    cfg.add(scope, "race", "pipeline", "benchmark-only")
    cfg.add(scope, "mechanic", "car.names", ["external"])
    cfg.add(scope, "mechanic", "distribution.version", next((node.version for node in nodes.values()), ""))
    cfg.add(scope, "mechanic", "distribution.flavor", "default")
