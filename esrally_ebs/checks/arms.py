"""Looks at real mounts before a session: what volumes they are, and what the guards find.

Returns the attached arms with their real type, limits and id, the checks, and a record for ``session.json``.
Emulated arms and plain directories are returned unchanged. The check of processors is made for every session.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from esrally_ebs.aws import cloudwatch
from esrally_ebs.aws.clients import Api, Aws
from esrally_ebs.aws.describe import EbsVolume, FileSystem
from esrally_ebs.aws.survey import MakeApi, Survey, connect, survey
from esrally_ebs.checks.facts import ArmFacts, ClockFacts, Facts, InstanceFacts, is_real, settings_of
from esrally_ebs.checks.guards import guard
from esrally_ebs.checks.idle import check_processors, clock_is_synchronised, watch
from esrally_ebs.errors import MeasurementError, SetupError
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock
from esrally_ebs.model import Check, Volume, VolumeSpec
from esrally_ebs.plan import Plan
from esrally_ebs.store.context import Arm

_WATCH_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    arms: tuple[Arm, ...]
    checks: tuple[Check, ...] = ()
    record: Mapping[str, Any] | None = None  # for the session's environment; without account and credentials

    def require(self) -> None:
        """Raise MeasurementError for the first check that forbids the session, and say how to accept it."""
        for check in self.checks:
            if check.forbids:
                name = check.name
                raise MeasurementError(
                    f"{name}: {check.text} (or measure all the same: esrally-ebs run --accept {name}; esrally"
                    f" race --track-params=accept:{name}; knee and esrally-ebs race --set"
                    f" 'accept=[\"{name}\"]')"
                )


def look_at(
    plan: Plan,
    arms: Sequence[Arm],
    *,
    roots: Roots | None = None,
    make_api: MakeApi = connect,
    clock: Clock = SYSTEM_CLOCK,
    processors: Callable[[], Check] = check_processors,
) -> Guarded:
    """Survey and check the arms on real mounts; meanwhile, check the processors."""
    with ThreadPoolExecutor(1) as pool:
        free = pool.submit(processors)
        guarded = _look_at_arms(plan, arms, roots, make_api, clock)
    return replace(guarded, checks=(*guarded.checks, free.result()))


def _look_at_arms(
    plan: Plan, arms: Sequence[Arm], roots: Roots | None, make_api: MakeApi, clock: Clock
) -> Guarded:
    real = {each.spec.name: each for arm in arms for each in arm.volumes if is_real(each)}
    if not real:
        return Guarded(arms=tuple(arms))
    roots = roots or Roots()
    apis: list[Api] = []

    def make(region: str | None, on_call: Callable[[str], None]) -> Api:
        apis.append(make_api(region, on_call))
        return apis[0]

    surveyed = survey(
        {name: volume.mount for name, volume in real.items()},
        known={name: volume.identity.split() for name, volume in real.items() if volume.spec.aws},
        roots=roots,
        make_api=make,
    )
    actual = {name: _as_it_is(volume, surveyed) for name, volume in real.items()}
    facts = _facts(plan, actual, surveyed, apis[0] if apis else None, roots, clock)
    return Guarded(
        arms=tuple(_with(arm, actual) for arm in arms), checks=tuple(guard(facts)), record=_record(surveyed)
    )


def _with(arm: Arm, actual: Mapping[str, Volume]) -> Arm:
    members = (replace(one, volume=actual.get(one.volume.spec.name, one.volume)) for one in arm.members)
    return replace(arm, members=tuple(members))


def _as_it_is(volume: Volume, surveyed: Survey) -> Volume:
    name = volume.spec.name
    identity, members = surveyed.identities[name], surveyed.volumes_of(name)
    volume = replace(
        volume,
        kind=volume.kind if volume.spec.aws else identity.kind,
        identity=volume.identity if volume.spec.aws else identity.name,
        readahead_bytes=identity.stack.readahead_bytes,
        scheduler=identity.stack.scheduler,
        lowest=volume.lowest if identity.stack.lowest else (),
    )
    system = surveyed.file_systems.get(identity.file_system_id)
    if system is not None and volume.spec.type == "efs" and volume.spec.aws is None:
        return replace(volume, spec=_of_efs(volume.spec, system))
    if not members or len(members) < len(identity.volume_ids):
        return volume
    return replace(volume, spec=_spec(volume.spec, members))


def _of_efs(planned: VolumeSpec, system: FileSystem) -> VolumeSpec:
    """A file system as billed, except its size: how much it will hold is the plan's to say."""
    return replace(
        planned,
        mode="bursting" if system.throughput_mode == "bursting" else None,  # else by what is bought
        throughput_bytes_per_s=system.provisioned_bytes_per_s,
        one_zone=bool(system.zone),
        encrypted=system.encrypted,
    )


def _spec(planned: VolumeSpec, members: Sequence[EbsVolume]) -> VolumeSpec:
    """An arm's volumes as one spec: equal ones as stripes, others added up, though nobody sells the sum."""
    kinds = {replace(planned, **settings_of(each), stripes=len(members)) for each in members}
    if len(kinds) == 1:
        return kinds.pop()
    return replace(
        planned,
        type="+".join(sorted(each.type for each in members)),
        size_bytes=sum(each.size_bytes for each in members),
        iops=_sum(each.iops for each in members),
        throughput_bytes_per_s=_sum(each.throughput_bytes_per_s for each in members),
        encrypted=all(each.encrypted for each in members),
        stripes=1,
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(filter(None, known))


def _facts(
    plan: Plan, volumes: Mapping[str, Volume], surveyed: Survey, api: Api | None, roots: Roots, clock: Clock
) -> Facts:
    unknown = list(surveyed.unknown)
    activities = watch(
        {name: surveyed.identities[name].stack.names for name in volumes},
        roots,
        seconds=_WATCH_S,
        clock=clock,
    )
    balances = _balances(surveyed, api, clock, unknown)
    arms = tuple(
        ArmFacts(
            volume=volume,
            root=identity.root,
            volume_ids=identity.volume_ids,
            members=_initialised(volume, surveyed.volumes_of(name)),
            file_system=surveyed.file_systems.get(identity.file_system_id),
            balances=balances.volumes,
            credit_bytes=balances.file_systems.get(identity.file_system_id),
            activity=activities.get(name),
            caches=identity.stack.caches,
        )
        for name, volume in volumes.items()
        for identity in [surveyed.identities[name]]
    )
    limits, io, byte = surveyed.limits, balances.instance.get("io"), balances.instance.get("byte")
    instance = InstanceFacts(limits=limits, io_balance=io, byte_balance=byte) if limits else None
    own_clock = _clock(api) if surveyed.on_aws else ClockFacts()
    return Facts(plan=plan, arms=arms, instance=instance, clock=own_clock, unknown=tuple(unknown))


def _initialised(volume: Volume, members: tuple[EbsVolume, ...]) -> tuple[EbsVolume, ...]:
    """Volumes, those read completely when attached just now marked so; AWS reports it only minutes later."""
    if volume.spec.aws is None or not volume.spec.aws.initialise:
        return members
    return tuple(replace(member, initialised=1.0) for member in members)


def _clock(api: Api | None) -> ClockFacts:
    off = api.clock_off_s if isinstance(api, Aws) else None
    return ClockFacts(synchronised=clock_is_synchronised(), off_s=off)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Balances:
    """CloudWatch's burst balances before anything is spent; empty if unknown."""

    volumes: Mapping[str, float] = field(default_factory=dict)  # fractions by id
    file_systems: Mapping[str, float] = field(default_factory=dict)  # bytes by id
    instance: Mapping[str, float] = field(default_factory=dict)  # fractions: io, byte


def _balances(surveyed: Survey, api: Api | None, clock: Clock, unknown: list[str]) -> _Balances:
    """Balances of volumes with credits; refusals by CloudWatch are added to ``unknown``."""
    bursting = [name for name, each in surveyed.volumes.items() if each.type in ("gp2", "st1", "sc1")]
    systems = [name for name, each in surveyed.file_systems.items() if each.throughput_mode == "bursting"]
    if api is None or not (surveyed.volumes or systems):
        return _Balances()
    instance_id = surveyed.instance.instance_id if surveyed.instance and surveyed.volumes else ""
    now_s = clock.epoch()
    try:
        return _Balances(
            volumes=cloudwatch.burst_balances(api, bursting, now_s),
            file_systems=cloudwatch.burst_credits(api, systems, now_s),
            instance=cloudwatch.instance_balances(api, instance_id, now_s) if instance_id else {},
        )
    except SetupError as error:
        unknown.append(f"could not tell burst balances: {error}")
        return _Balances()


def _record(surveyed: Survey) -> dict[str, Any] | None:
    """Record for ``session.json`` of a session on AWS."""
    if not surveyed.on_aws and not surveyed.unknown:
        return None
    return {
        "instance": asdict(surveyed.instance) if surveyed.instance else None,
        "limits": asdict(surveyed.limits) if surveyed.limits else None,
        "arms": {name: _of_arm(surveyed, name) for name in surveyed.identities},
        "unknown": list(surveyed.unknown),
        "calls": dict(surveyed.calls),
    }


def _of_arm(surveyed: Survey, name: str) -> dict[str, Any]:
    identity = surveyed.identities[name]
    system = surveyed.file_systems.get(identity.file_system_id)
    return {
        "volume_ids": list(identity.volume_ids),
        "file_system_id": identity.file_system_id,
        "layers": list(identity.stack.layers),
        "disks": [asdict(disk) for disk in identity.stack.disks],
        "volumes": [asdict(volume) for volume in surveyed.volumes_of(name)],
        "file_system": asdict(system) if system else None,
    }
