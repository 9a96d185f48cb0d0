"""The whole plan: TOML text and overrides in, a validated Plan out, or one line that names file, key and what
is allowed.
"""

import math
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, ValidationError, ValidationInfo, field_validator

from esrally_ebs.catalog.generations import type_aliases, volume_types
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import PlanError, near
from esrally_ebs.model import MAX_READ_LATENCY, NAME, AwsSpec, Backend, VolumeSpec, refuse_secrets
from esrally_ebs.plan.mistakes import first_problem, keys_of, refuse_odd_values, unknown_key
from esrally_ebs.plan.tables import (
    BaselineJob,
    CachePlan,
    CostPlan,
    DatasetPlan,
    DesignPlan,
    HostPlan,
    ModifyPlan,
    NodePlan,
    RacePlan,
    Section,
    yes_or_perturb,
)
from esrally_ebs.units import format_bytes

PLUG_INS = "esrally_ebs.volumes"  # entry point group of plug-in volume types
# Factors on the time of reads, round by round, for trace = "perturb". In this order a drift over four rounds
# correlates with neither the slow nor the fast ones.
_READ_LATENCIES = (1.0, 4.0, 0.5, 2.0)
_MAX_CHARACTERS = 2**22  # of a plan's file; a larger one is no plan, or an endless device
_NOT_OF_A_PLAN = ("aws", "readahead_bytes")  # fields of an arm's spec that are no keys of ``[[arm]]``


class Plan(Section):
    """What one session does."""

    name: str = Field(pattern=NAME)
    aws: AwsSpec | None = None
    arm: tuple[VolumeSpec, ...] = Field(min_length=1)
    host: tuple[HostPlan, ...] = ()
    node: NodePlan = NodePlan()
    dataset: DatasetPlan = DatasetPlan()
    race: RacePlan | None = None
    cache: CachePlan = CachePlan()
    design: DesignPlan = DesignPlan()
    baseline: tuple[BaselineJob, ...] = ()
    cost: CostPlan = CostPlan()
    accept: tuple[str, ...] = ()  # names of checks that do not stop the session
    modify: ModifyPlan | None = None
    # keep every I/O of emulated arms; "perturb": and change the latency of reads from round to round
    trace: Annotated[bool | Literal["perturb"], PlainValidator(yes_or_perturb)] = False
    _source: str = ""  # the file's name, for messages

    @field_validator("arm")
    @classmethod
    def _made_on_aws(cls, arms: tuple[VolumeSpec, ...], info: ValidationInfo) -> tuple[VolumeSpec, ...]:
        """With ``[aws]``, volumes that would be emulated are made on AWS."""
        aws = info.data.get("aws")
        return tuple(
            replace(arm, aws=aws) if aws and arm.backend is Backend.EMULATED else arm for arm in arms
        )

    def _conflicts(self) -> Iterator[tuple[object, str]]:
        race, design, is_steady = self.race, self.design, self.cache.mode == "steady"
        if self.modify is not None:
            is_none = self.modify.arm not in {arm.name for arm in self.arm}
            yield is_none, f"modify.arm: no arm is named {self.modify.arm!r}; give the name of one"
            yield race, "modify: measured by fio jobs, not by requests; remove [race]"
            yield not self.baseline, "modify: measured by fio jobs, and there is none; give a [[baseline]]"
        yield (
            is_steady and design.nodes == "one",
            "cache.mode: 'steady' is of one arm's page cache; set design.nodes = \"per-arm\"",
        )
        yield (
            is_steady and race and not race.warmup_iterations,
            "race.warmup_iterations: with cache.mode = 'steady' misses are counted in windows of so many "
            "requests; give more than 0",
        )
        if design.knee is not None:
            yield race is None, "design.knee: is a rate of queries, and the plan has none; give a [race]"
            yield (
                self.cache.mode == "cold",
                "cache.mode: 'cold' evicts before each query, which would delay those that are due; set "
                'cache.mode = "steady" or "warm"',
            )
            yield (
                design.nodes == "one",
                'design.nodes: "one" sends requests in pairs, not when they are due; set "per-arm"',
            )
        if self.trace == "perturb":
            what, rounds = "trace: 'perturb'", self.least_rounds
            yield race is None, f"{what} is of requests, and the plan has none; give a [race]"
            yield (
                len(self.arm) > 1,
                f"{what} changes an arm from round to round, so it is compared with none; leave one arm",
            )
            is_real = self.arm[0].backend is not Backend.EMULATED
            yield is_real, f"{what} makes reads slower, as only emulated volumes can be; write true"
            is_few = design.most_rounds < rounds
            yield is_few, f"{what} takes {rounds} rounds or more; set design.rounds"
        yield from self._conflicts_of_several()
        yield from self._conflicts_of_hosts()
        yield from self._conflicts_of_names()
        yield from self._conflicts_on_instances()
        yield from self._conflicts_of_places()

    def _conflicts_of_several(self) -> Iterator[tuple[object, str]]:
        race, design = self.race, self.design
        if design.starts > 1:
            yield race is None, "design.starts: is of nodes, and fio alone has none; give a [race]"
            text = "design.starts: nodes of a cluster are started once; set node.count = 1"
            yield self.node.count > 1, text
        if design.volumes > 1:
            what = "design.volumes:"
            yield race is None, f"{what} requests are compared, and there are none; give a [race]"
            yield len(self.arm) < 2, f"{what} types are compared, and there is one; give another [[arm]]"
            yield self.node.count > 1, f"{what} each has one node; set node.count = 1"
        for number, arm in enumerate(self.arm if design.volumes == 1 else ()):
            yield arm.spread, f"arm.{number}.spread: is of several volumes; set design.volumes"
        if self.node.count > 1:
            what = "node.count:"
            yield race is None, f"{what} nodes are of a race, and there is none; give a [race], or remove it"
            is_one = design.nodes == "one"
            yield is_one, f'{what} design.nodes = "one" is one node for all arms; remove either'
            data = f"{what} dataset.data is of one node; build the indices from documents instead"
            yield self.dataset.data, data
            yield self.trace, f"{what} I/Os are kept of arms of one node; remove trace"
            names = [name for arm in self.arm for name in (arm.name, *self.node_names(arm.name))]
            for name in names:
                is_bad = names.count(name) > 1 or not re.match(NAME, name)
                yield is_bad, f"{what} a node would be called {name!r}; give arms other names"

    def _conflicts_of_hosts(self) -> Iterator[tuple[object, str]]:
        """If there are hosts, every arm has one and each has an arm; arms on several need addresses."""
        hosts = [host.name for host in self.host]
        mend = f"write one of {', '.join(hosts)}" if hosts else "give a [[host]] with that name"
        for number, arm in enumerate(self.arm):
            key = f"arm.{number}.hosts" if arm.hosts else f"arm.{number}.host"
            yield arm.hosts and arm.host, f"{key}: {arm.name!r} has a host as well; remove one of them"
            for name in arm.all_hosts:
                yield name not in hosts, f"{key}: no host is named {name!r}; {mend}"
            is_without = hosts and not arm.all_hosts
            yield is_without, f"{key}: {arm.name!r} has none, while the plan has hosts; {mend}"
        for number, host in enumerate(self.host):
            arms = [arm for arm in self.arm if host.name in arm.all_hosts]
            text = f"no arm is on {host.name!r}; give one host = {host.name!r}"
            yield not arms, f"host.{number}.name: {text}"
            apart = [arm.name for arm in arms if self.node.count > 1 and len(set(arm.hosts)) > 1]
            yield (
                apart and host.address is None,
                f"host.{number}.address: is required, as nodes of arm {', '.join(apart)} are on several "
                f"hosts and must reach one another; give an address of {host.name!r} in a private network",
            )
        for wrong, what in (
            (self.modify, "[modify]"),
            (self.trace, "trace"),
            (self.design.nodes == "one", 'design.nodes = "one"'),
            (self.design.knee, "design.knee"),
            (self.cache.mode == "steady", 'cache.mode = "steady"'),
        ):
            yield hosts and wrong, f"host: {what} is not done on other machines yet; remove it or the hosts"

    def _conflicts_of_names(self) -> Iterator[tuple[object, str]]:
        """The reference must be an arm; names must be unique within their kind."""
        reference, names = self.design.reference, [arm.name for arm in self.arm]
        yield (
            reference not in (None, *names, *self.types),
            f"design.reference: no arm is named {reference!r}; write one of {', '.join(names)}",
        )
        for what, named in (("arm", self.arm), ("host", self.host), ("baseline", self.baseline)):
            names = [each.name for each in named]
            for number, name in enumerate(names):
                text = f"{name!r} is used twice; give each {what} a name of its own"
                yield name in names[:number], f"{what}.{number}.name: {text}"

    def _conflicts_on_instances(self) -> Iterator[tuple[object, str]]:
        """Arms on one instance must have one host and one time scale."""
        firsts: dict[str, VolumeSpec] = {}
        for number, arm in enumerate(self.arm):
            first = arm if arm.instance is None else firsts.setdefault(arm.instance, arm)
            yield (
                arm.all_hosts != first.all_hosts,
                f"arm.{number}.instance: {arm.instance!r} is on host {', '.join(first.all_hosts)!r}; write "
                f"'{arm.instance}#2' for another instance",
            )
            yield (
                arm.time_scale != first.time_scale,
                f"arm.{number}.time_scale: {arm.name!r} shares the limits of {arm.instance!r} with an arm of "
                f"another; give both one, or write '{arm.instance}#2' for another instance",
            )

    def _conflicts_of_places(self) -> Iterator[tuple[object, str]]:
        """Mounts or hosts, where given, must be one per node (or volume) of the arm."""
        several = self.design.volumes > 1
        key, what = ("design.volumes", "volume") if several else ("node.count", "node")
        count = self.design.volumes if several else self.node.count
        for number, arm in enumerate(self.arm):
            for given, one in ((arm.mounts, "mount"), (arm.hosts, "host")):
                text = f"{len(given)} for {count} {what}s; give one {one} for each of {key}"
                yield given and len(given) != count, f"arm.{number}.{one}s: {text}"
            yield (
                arm.mount is not None and (self.node.count > 1 or arm.mounts),
                f"arm.{number}.mount: is of one {what}; with {key} = {count} write mounts = [...], one mount "
                "for each",
            )

    @property
    def types(self) -> dict[str, tuple[str, ...]]:
        """Names of each type's volumes, by type, in a plan with several ``design.volumes``; else empty."""
        count, names = self.design.volumes, [arm.name for arm in self.arm]
        firsts = range(0, len(names), count) if count > 1 else ()
        return {names[at].removesuffix("-1"): tuple(names[at : at + count]) for at in firsts}

    def with_volumes(self) -> Self:
        """The plan with each arm replaced by ``design.volumes`` arms: ``gp3`` by ``gp3-1``, ``gp3-2`` ...

        An arm's ``spread`` is drawn for each volume from the design's seed. Raises PlanError for an invalid
        or duplicate name, for one mount where there must be several, and for reads that would take too long.
        """
        count = self.design.volumes
        if count == 1:
            return self
        arms = []
        for arm in self.arm:
            if arm.mount is not None:
                raise PlanError(
                    f"arm {arm.name} has one mount; write mounts = [...], one mount for each of its volumes"
                )
            for number, place in enumerate(_places(arm, count), start=1):
                name = f"{arm.name}-{number}"
                drawn = math.exp(random.Random(f"{self.design.seed} {name}").gauss(0, arm.spread))
                latency = arm.read_latency * drawn
                if latency > MAX_READ_LATENCY:
                    raise PlanError(
                        f"{name} would have read_latency = {latency:.0f}, above {MAX_READ_LATENCY}; lower "
                        f"read_latency or spread of arm {arm.name}"
                    )
                arms.append(replace(arm, name=name, read_latency=latency, **place))
        names = [arm.name for arm in arms]
        for name in names:
            if names.count(name) > 1 or not re.match(NAME, name):
                raise PlanError(f"one would be called {name!r}; give arms other names")
        return self.model_copy(update={"arm": tuple(arms)})

    @property
    def has_latency(self) -> bool:
        """Whether requests are sent when due: no evictions and no requests to other arms hold them back."""
        return self.cache.mode != "cold" and self.design.nodes != "one"

    @property
    def least_rounds(self) -> int:
        """The fewest rounds that its design and its trace allow."""
        perturbed = 2 * len(_READ_LATENCIES) if self.trace == "perturb" else 1
        return max(perturbed, self.design.starts)

    def read_latency_of(self, round_: int) -> float:
        """Factor on the usual time of reads in this round."""
        if self.trace != "perturb" or not round_:
            return 1.0
        return _READ_LATENCIES[(round_ - 1) % len(_READ_LATENCIES)]

    def node_names(self, arm: str) -> tuple[str, ...]:
        """Names of an arm's nodes and their volumes: ARM if there is one, else ARM-1, ARM-2 ..."""
        count = self.node.count
        return (arm,) if count == 1 else tuple(f"{arm}-{number}" for number in range(1, count + 1))

    def volumes_of(self, arm: VolumeSpec) -> tuple[VolumeSpec, ...]:
        """The volumes of an arm, one per node, each with its own name, instance, mount and host."""
        count = self.node.count
        if count == 1:
            return (replace(arm, **_places(arm, 1)[0]),)
        named = zip(self.node_names(arm.name), _places(arm, count), strict=True)
        return tuple(
            replace(arm, name=name, instance=arm.instance and f"{arm.instance}#{number}", **place)
            for number, (name, place) in enumerate(named, start=1)
        )

    @contextmanager
    def naming(self, place: str) -> Iterator[None]:
        """Make PlanErrors raised inside name the plan's file, ``place`` (such as ``arm.0``) and the key."""
        try:
            yield
        except PlanError as error:
            where = f"{place}.{error.key}" if error.key else place
            raise PlanError(f"{self._source or self.name}: {where}: {error}") from error

    def require_local(self, what: str) -> None:
        """Raise PlanError if the plan has other machines, which ``what`` does not support."""
        if self.host:
            with self.naming("host"):
                raise PlanError(f"{what} is not done on other machines yet; remove the hosts")

    def record(self) -> dict[str, Any]:
        """The plan as ``session.json`` keeps it: with a plan file's keys, in base units."""
        return self.model_dump(mode="json", by_alias=True, exclude={"arm": {"__all__": set(_NOT_OF_A_PLAN)}})


def _places(arm: VolumeSpec, count: int) -> list[dict[str, Any]]:
    """The mount and host of each of an arm's volumes, by the fields of their specs."""
    mounts, hosts = arm.mounts or (arm.mount,) * count, arm.hosts or (arm.host,) * count
    return [{"mount": m, "mounts": (), "host": h, "hosts": ()} for m, h in zip(mounts, hosts, strict=True)]


@cache
def keys_by_table() -> dict[str, tuple[str, ...]]:
    """Keys that a plan may have, by table; "" = the top."""
    tables: dict[str, type] = {
        "": Plan,
        "arm": VolumeSpec,
        "host": HostPlan,
        "baseline": BaselineJob,
        "aws": AwsSpec,
        "node": NodePlan,
        "dataset": DatasetPlan,
        "race": RacePlan,
        "cache": CachePlan,
        "design": DesignPlan,
        "cost": CostPlan,
        "modify": ModifyPlan,
    }
    keys = {name: keys_of(table) for name, table in tables.items()}
    return keys | {"arm": tuple(key for key in keys["arm"] if key not in _NOT_OF_A_PLAN)}


def parse_plan(text: str, source: str, overrides: Mapping[str, Any] | None = None) -> Plan:
    """Parse TOML text into a Plan; dotted overrides (``{"design.rounds": 2}``) replace its keys.

    ``source`` is the file's name, for messages only. Raises PlanError with file, key and what is allowed.
    """
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # also raised for numbers with more digits than Python reads
        problem = str(error).replace("at end of document", f"at the end, line {len(text.splitlines()) or 1}")
        raise PlanError(
            f"{source}: not TOML: {problem}; correct it there, with all text in quotes, as in"
            " pipelines/gp2-vs-gp3.toml"
        ) from error
    except RecursionError as error:
        raise PlanError(
            f"{source}: lists or tables are nested too deeply; no key of a plan needs it"
        ) from error
    for key, value in (overrides or {}).items():
        _lay_over(table, key, value, source)
    unknown = unknown_key(table, keys_by_table())
    if unknown:
        raise PlanError(f"{source}: {unknown}")
    plan = _validated(table, source)
    refuse_odd_values(table, plan.record(), f"{source}: ")
    refuse_secrets(plan.node.params, f"{source}: node.params")
    plan._source = source
    for number, arm in enumerate(plan.arm):
        with plan.naming(f"arm.{number}"):
            check_arm(arm)
    for number, job in enumerate(plan.baseline):
        with plan.naming(f"baseline.{number}"):
            _check_room(job, plan.arm)
    with plan.naming("design.volumes"):
        made = plan.with_volumes()
    if made is not plan:
        _validated(made.record(), source)  # session.json keeps this expanded plan, which must be readable
    return made


def _validated(table: Mapping[str, Any], source: str) -> Plan:
    try:
        return Plan.model_validate(table)
    except ValidationError as error:
        raise PlanError(f"{source}: {first_problem(error)}") from error


def check_arm(arm: VolumeSpec) -> None:
    """Raise PlanError, with the key, for a volume that is not sold or that its backend cannot make.

    Does not check the machine: a missing mount, for example.
    """
    plug_ins = {point.name for point in entry_points(group=PLUG_INS)}
    types = sorted({*volume_types(), Backend.DIRECTORY, Backend.MOUNTED, *plug_ins})
    if arm.type not in (*types, *type_aliases()):
        use = f"use one of {', '.join(types)}"
        raise PlanError(f"no type {arm.type!r}; {use}{near(arm.type, types)}", key="type")
    if arm.backend is Backend.MOUNTED and arm.mount is None and not arm.mounts:
        raise PlanError("is required for type 'mounted'; give the path of the mount point", key="mount")
    for key, usual in (("read_latency", 1), ("spread", 0)):
        if getattr(arm, key) != usual and arm.backend is not Backend.EMULATED:
            raise PlanError("only an emulated volume can be made slower; remove it", key=key)
    if arm.backend is Backend.EMULATED and arm.type not in plug_ins:
        model_for(arm)
        if arm.stripes > 1 and arm.type == "efs":
            raise PlanError("EFS is not striped; remove it", key="stripes")
        if arm.stripes > 1 and arm.striped_by in ("md", "lvm"):
            raise PlanError(
                f"emulated volumes are not striped by {arm.striped_by}; use 'device' or 'btrfs', or make the"
                " array yourself and give its mount",
                key="striped_by",
            )


def _check_room(job: BaselineJob, arms: Sequence[VolumeSpec]) -> None:
    """Raise PlanError if a job's file exceeds an emulated volume; real volumes are checked elsewhere."""
    for arm in arms:
        room = arm.size_bytes * arm.stripes
        if arm.backend is Backend.EMULATED and job.size > room:
            raise PlanError(
                f"{format_bytes(job.size)} do not fit on arm {arm.name} of {format_bytes(room)}; lower it",
                key="size",
            )


def _lay_over(table: dict[str, Any], key: str, value: Any, source: str) -> None:  # noqa: ANN401
    *path, last = key.split(".")
    here: Any = table
    for part in path:
        here = here.setdefault(part, {}) if isinstance(here, dict) else None
    if not isinstance(here, dict):
        raise PlanError(f"{source}: --set {key}: only tables can be set; edit the plan for lists")
    here[last] = value


def load_plan(path: Path, overrides: Mapping[str, Any] | None = None) -> Plan:
    try:
        with path.open(encoding="utf-8-sig") as file:  # editors on Windows begin with a mark ("-sig")
            text = file.read(_MAX_CHARACTERS + 1)
    except OSError as error:
        raise PlanError(
            f"{path}: {error.strerror}; plans are TOML files such as pipelines/gp2-vs-gp3.toml"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: not UTF-8 at byte {error.start:,}; save it as UTF-8, as TOML is") from error
    if len(text) > _MAX_CHARACTERS:
        raise PlanError(
            f"{path}: over {_MAX_CHARACTERS:,} characters; name a plan, such as those in pipelines/"
        )
    return parse_plan(text, str(path), overrides)
