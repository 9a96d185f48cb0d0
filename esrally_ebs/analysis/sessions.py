"""Named checks of what must agree between two sessions before their times are compared. Pure.

Data, nodes, machine and the plan's use of caches must agree. Volumes, rounds and the release of the pack may
be what the comparison is about: a difference in them is reported, and forbids nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.comparable import NODE_SETTINGS, VOLUME_SETTINGS, all_checks, pick
from esrally_ebs.analysis.summary import is_of_rounds
from esrally_ebs.model import Check, State, Volume
from esrally_ebs.store.encoding import plain
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_bytes, number_of

_MACHINE = ("kernel", "os", "cpu", "cores")
_TOOLS = ("rally", "engine")
_RACE = ("track", "challenge", "warmup_iterations")
_CACHE = ("mode", "drop_every")
_SPEC = (
    *("type", "size_bytes", "iops", "throughput_bytes_per_s", "encrypted", "credits", "read_latency"),
    *("spread", "date", "instance", "stripes", "chunk_bytes", "striped_by", "time_scale", "mode", "one_zone"),
)
_ABSENT = "nothing"

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class _Hashed:
    """Something compared by its hash, which tells a reader nothing and is not shown."""

    hash: str

    def __str__(self) -> str:
        return "the same on all arms"


def check_sessions(first: Session, second: Session) -> tuple[Check, ...]:
    """Checks in the order of their weight; a failed one forbids the comparison and names what differs."""
    shared = shared_arms(first, second)
    return (
        _valid("first session", first),
        _valid("second session", second),
        Check(
            name="arms",
            ok=bool(shared),
            value=", ".join(shared),
            text=f"arms of both: {', '.join(shared)}" if shared else "no arm has the same name in both",
        ),
        _agree("dataset", _dataset(first), _dataset(second)),
        _hits(first, second) if first.samples.num_rows or second.samples.num_rows else _jobs(first, second),
        _agree("nodes", _nodes(first, shared), _nodes(second, shared)),
        _agree("volume settings", _volumes(first, shared), _volumes(second, shared)),
        _agree("race", _race(first, second), _race(second, first)),
        _agree(
            "machine",
            _machine(first, shared) | _instance(first, second),
            _machine(second, shared) | _instance(second, first),
        ),
        _agree("tools", pick(first.environment, _TOOLS), pick(second.environment, _TOOLS)),
    )


def allowed_differences(first: Session, second: Session) -> tuple[str, ...]:
    """Differences that are allowed: volumes, design of rounds and verdicts, host, releases of the pack."""
    facts = [_facts(session, shared_arms(first, second)) for session in (first, second)]
    return tuple(_differences(*facts))


def question_differences(first: Session, second: Session) -> tuple[str, ...]:
    """Differences of plan, caches and volumes except values drawn anew; any of them rules out one verdict."""
    shared = shared_arms(first, second)
    return tuple(_differences(_question(first, shared), _question(second, shared)))


def shared_arms(first: Session, second: Session) -> tuple[str, ...]:
    """Names of arms in both sessions, in the first's order."""
    names = {arm.spec.name for arm in second.arms}
    return tuple(arm.spec.name for arm in first.arms if arm.spec.name in names)


def _valid(name: str, session: Session) -> Check:
    broken = [check.text for check in all_checks(session) if check.forbids]
    if session.plan.race and session.kind != "simulate" and not session.samples.num_rows:
        broken.append("no request of its race was recorded")
    if session.state is not State.COMPLETE:
        broken.insert(0, f"it is {session.state}" + (f" ({session.reason})" if session.reason else ""))
    text = "; ".join(broken) or "complete, and none of its own checks forbids the comparison"
    return Check(name=name, ok=not broken, value=session.id, text=text)


def _agree(name: str, first: Facts, second: Facts) -> Check:
    different = list(_differences(first, second))
    if different:
        return Check(name=name, ok=False, value=str(len(different)), text="; ".join(different))
    if not first:
        return Check(name=name, ok=True, value="", text="nothing was recorded by either session")
    return Check(name=name, ok=True, value=", ".join(first), text="the same in both")


def _differences(first: Facts, second: Facts) -> Iterable[str]:
    for key in dict.fromkeys((*first, *second)):
        a, b = (_ABSENT if facts.get(key) is None else facts[key] for facts in (first, second))
        if a != b:
            are_hashed = isinstance(a, _Hashed) and isinstance(b, _Hashed)
            what = "not the same in both" if are_hashed else f"{a} in the first, {b} in the second"
            yield f"{key}: {what}"


def _dataset(session: Session) -> dict[str, Any]:
    facts = pick(session.dataset, ("documents",))
    if session.dataset.get("hash"):
        facts["segments"] = _Hashed(str(session.dataset["hash"]))
    if session.dataset.get("copied") is False:
        # Segments differ by chance even between such sessions; as between arms, that is reported.
        facts["segments"] = "made by each arm"
        facts["seed"] = session.plan.dataset.seed  # no hash shows that documents were different
    return facts


def _nodes(session: Session, arms: Iterable[str]) -> dict[str, Any]:
    """The nodes' facts and what was requested of them: nodes do not report limits and settings of cars."""
    facts: dict[str, Any] = {}
    if session.plan.race is not None:
        asked = session.plan.node
        facts = {"nodes of an arm": asked.count, "car": "+".join(asked.car)}
        facts |= {f"car-params {key}": value for key, value in asked.params.items()}
    nodes = session.environment.get("nodes", {})
    for node in (node for arm in arms for node in session.plan.node_names(arm)):
        facts |= pick(nodes.get(node, {}), NODE_SETTINGS, f"{node} ")
    return facts


def _volumes(session: Session, arms: Iterable[str]) -> dict[str, Any]:
    volumes = {arm.spec.name: arm for arm in session.arms}
    return {
        f"{arm} {key}": getattr(volumes[arm], key)
        for arm in arms
        for key in VOLUME_SETTINGS
        if getattr(volumes[arm], key) not in (None, "")
    }


def _race(session: Session, other: Session) -> dict[str, Any]:
    race, cache = plain(session.plan.race) or {}, plain(session.plan.cache)
    facts = {**pick(race, _RACE), **pick(cache, _CACHE, "cache "), "nodes": session.plan.design.nodes}
    if session.plan.trace == "perturb":
        facts["trace"] = "perturb"  # slower or faster reads from round to round
    if any(one.plan.cache.mode != "cold" or one.plan.cache.drop_every != 1 for one in (session, other)):
        # Then later requests find what earlier ones read, so the number of requests affects times.
        facts |= pick(race, ("iterations",))
    return facts | _loads(session, other)


def _machine(session: Session, arms: Iterable[str]) -> dict[str, Any]:
    """Facts of this machine and of the arms' hosts, and whether the load came from other machines."""
    environment = session.environment
    facts = machine_facts(environment)
    specs = {arm.spec.name: arm.spec for arm in session.arms}
    hosts = environment.get("hosts", {})
    for host in dict.fromkeys(host for arm in arms for host in specs[arm].all_hosts):
        facts |= machine_facts(hosts.get(host, {}), f"host {host} ")
    if any("load_host" in event.fields for event in session.events):
        facts["load from"] = "other machines"  # service times then include the network
    return facts


def machine_facts(facts: Facts, prefix: str = "") -> dict[str, Any]:
    """Facts of a machine that must agree; memory in tenths of a GiB, since boots differ by some KiB."""
    size = facts.get("memory_bytes")
    memory = {f"{prefix}memory": format_bytes(size)} if isinstance(size, int) else {}
    return pick(facts, _MACHINE, prefix) | memory


def _instance(session: Session, other: Session) -> dict[str, Any]:
    """Instance type, if both sessions have it: AWS is asked for real arms only."""
    return pick(session.instance, ("instance_type",)) if other.instance.get("instance_type") else {}


def _loads(session: Session, other: Session) -> dict[str, Any]:
    """How the tasks of both are loaded, and their queries by hash; empty if both have the usual.

    Earlier releases did not record it; then it is empty, too.
    """
    own, others = (one.environment.get("tasks", {}) for one in (session, other))
    return {
        f"{task} {key}": _Hashed(value) if key == "query" else value
        for task in own
        if task in others and (own[task] or others[task])
        for key, value in ({"clients": 1} | own[task]).items()
        if key != "query" or "query" in others[task]
    }


def _facts(session: Session, arms: Iterable[str]) -> dict[str, Any]:
    volumes = {arm.spec.name: arm for arm in session.arms}
    facts: dict[str, Any] = {"plan": session.plan.name, "arms": ", ".join(volumes)}
    for arm in arms:
        facts |= _prefixed(arm, _volume(session, volumes[arm]))
    facts |= pick(
        plain(session.plan.design),
        ("rounds", "starts", "volumes", "order", "reference", "margin", "confidence"),
    )
    facts |= pick(plain(session.plan.race) or {}, ("iterations",))
    return facts | pick(session.environment, ("host", "esrally_ebs", "python", "fio"))


def _question(session: Session, arms: Iterable[str]) -> dict[str, Any]:
    volumes, plan = {arm.spec.name: arm for arm in session.arms}, session.plan
    facts = {"plan": plan.name, "arms": ", ".join(sorted(volumes)), **_prefixed("cache", plain(plan.cache))}
    mounts = {arm.name: [str(mount) for mount in (arm.mount, *arm.mounts) if mount] for arm in plan.arm}
    for arm in arms:
        facts |= _prefixed(arm, {**_volume(session, volumes[arm]), "mounts": mounts.get(arm)})
        if volumes[arm].spec.spread:
            del facts[f"{arm} read_latency"]
    return facts


def _volume(session: Session, arm: Volume) -> dict[str, Any]:
    """Kind, type and limits of an arm's volumes; for real ones as AWS reports them."""
    facts = {"kind": arm.kind.value, **{key: getattr(arm.spec, key) for key in _SPEC}}
    known = session.aws.get("arms", {})
    own = [known[name] for name in session.plan.node_names(arm.spec.name) if name in known]
    if volumes := [volume for one in own for volume in one.get("volumes", ())]:
        facts["size_bytes"] = sum(volume["size_bytes"] for volume in volumes)
    for system in (one["file_system"] for one in own if one.get("file_system")):
        facts["mode"] = system["throughput_mode"]
        facts["provisioned_bytes_per_s"] = system["provisioned_bytes_per_s"]
    return facts


def _prefixed(what: str, facts: Facts) -> dict[str, Any]:
    return {f"{what} {key}": value for key, value in facts.items()}


def _jobs(first: Session, second: Session) -> Check:
    """fio jobs of the same name must do the same I/O; repeats may differ."""
    jobs = [
        {
            job.name: plain(job)
            for job in one.plan.baseline
            if job.name in set(one.baseline["job"].to_pylist())
        }
        for one in (first, second)
    ]
    shared = [name for name in jobs[0] if name in jobs[1]]
    if not shared:
        return Check(name="fio jobs", ok=False, value="", text="no fio job was measured in both sessions")
    return _agree(
        "fio jobs",
        *(
            {f"{name} {key}": value for name in shared for key, value in own[name].items() if key != "repeat"}
            for own in jobs
        ),
    )


def _hits(first: Session, second: Session) -> Check:
    hits = [_hits_by_task(session) for session in (first, second)]
    if not hits[0].keys() & hits[1].keys():
        return Check(name="hits", ok=False, value="", text="no task was measured in both sessions")
    tasks = [task for task in hits[0] if hits[0][task] and hits[1].get(task)]
    if _choice(first) != _choice(second):
        tasks = [task for task in tasks if len(hits[0][task]) == len(hits[1][task]) == 1]
    if not tasks:
        text = (
            "not recorded in both sessions, or of other queries; the dataset is what there is to tell that "
            "they searched the same"
        )
        return Check(name="hits", ok=True, value="not compared", text=text)
    different = [task for task in tasks if hits[0][task] != hits[1][task]]
    if different:
        own = (one[different[0]] - other[different[0]] for one, other in (hits, hits[::-1]))
        counts = [str(sorted(each)[:3]) for each in own]
        text = f"{different[0]}: {counts[0]} in the first, {counts[1]} in the second"
        more = f"; and {number_of(len(different) - 1, 'more task')}" if len(different) > 1 else ""
        return Check(name="hits", ok=False, value=str(len(different)), text=text + more)
    text = f"the same for {number_of(len(tasks), 'task')} of both"
    return Check(name="hits", ok=True, value=str(len(tasks)), text=text)


def _choice(session: Session) -> tuple[int | None, ...]:
    """Settings that decide which queries of a log, or of a track's random ones, each round sends."""
    design, race = session.plan.design, session.plan.race
    asked = race.iterations if race else None
    return design.seed, design.most_rounds, pc.max(session.samples["round"]).as_py(), asked


def _hits_by_task(session: Session) -> dict[str, set[int]]:
    """Hits of every measured task; an empty set if not recorded."""
    samples = session.samples
    own = samples.filter(pc.and_(is_of_rounds(samples), samples["success"]))
    table = pa.table({"task": own["task"].cast(pa.string()), "hits": own["hits"]})
    hits: dict[str, set[int]] = {}
    for row in table.group_by(["task", "hits"]).aggregate([]).to_pylist():
        known = hits.setdefault(row["task"], set())
        if row["hits"] is not None:
            known.add(row["hits"])
    return hits
