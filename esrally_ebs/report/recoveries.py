"""How long recoveries took, compared with their bytes over the slowest limit, and what held them back."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from statistics import mean, median

from esrally_ebs.analysis.profile import CREDITS as LEVEL
from esrally_ebs.analysis.profile import Profile, Profiles, pooled, read_windows
from esrally_ebs.catalog.limits import CREDITS
from esrally_ebs.catalog.volume_types import known_model
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Event, VolumeSpec
from esrally_ebs.report.bottleneck import NAMES, limit_name
from esrally_ebs.report.model import Cell, Row, Table, Value, quantity, titled, word
from esrally_ebs.store.session import Session
from esrally_ebs.units import KIB, MIB, format_bytes, format_seconds, parse_bytes

SETTING = "indices.recovery.max_bytes_per_sec"
_DEFAULT_BYTES_PER_S = 40.0 * MIB  # Elasticsearch's default
Limits = Mapping[str, tuple[float, float]]  # by name: bytes per second, and bytes that may pass at once
# A node receives two chunks beyond what its volume has (source of Elasticsearch 8.8: RecoverySettings and
# MultiChunkTransfer).
_CHUNK_BYTES = 512.0 * KIB
_OF_NO_VOLUME = ("restore",)  # reads from a directory that is on no arm's volume
_KERNEL_WRITES_AFTER_S = 30.0  # after this the kernel writes dirty pages back (vm.dirty_expire_centisecs)
_NOTES = (
    "Expected: bytes over the slowest limit, less what its bucket lets through at once; of a copy between "
    "nodes, that file by file, and the time in which each is forced to the volume, but for what comes "
    "meanwhile. Read latency: of one piece of readahead after the other.",
    "Held back by: the share of the time that the setting, and of the I/Os' time that a limiter made them "
    "wait; processors of all nodes, and I/Os in flight, in the mean.",
)


def recovery_table(session: Session, profiles: Profiles) -> Table:
    """A row for each task and arm; no rows for sessions without such work."""
    works: dict[tuple[str, str], list[Event]] = {}
    for event in session.events:
        if event.kind == "recovery" and (event.number("round") or 0) > 0:
            works.setdefault((str(event.fields.get("task")), str(event.arm)), []).append(event)
    credits_ = _credits(session)
    rows = tuple(
        Row(
            item=f"{task} on {arm.spec.name}",
            cells=(
                *_times(session, events, arm.spec, credits_.get((task, arm.spec.name))),
                _held_back(events, profiles.get((task, arm.spec.name), {})),
            ),
        )
        for task in dict.fromkeys(task for task, _ in works)
        for arm in session.arms
        if (events := works.get((task, arm.spec.name)))
    )
    columns = (
        *titled("data", "largest file", "took, median", "expected", "took, of that"),
        *titled("slowest limit", "held back by", left=True),
    )
    return Table(
        key="recovery", title="Minutes to green", item_title="work", columns=columns, rows=rows, notes=_NOTES
    )


def _credits(session: Session) -> dict[tuple[str, str], float]:
    """Burst credits before the work, by task and arm; the mean over nodes and rounds."""
    levels: dict[tuple[str, str], list[float]] = {}
    for window in read_windows(session.events)[0]:
        if LEVEL in window.begin:
            each = window.begin[LEVEL] / session.plan.node.count
            levels.setdefault((window.task, window.arm), []).append(each)
    return {key: mean(each) for key, each in levels.items()}


def _times(
    session: Session, events: Sequence[Event], spec: VolumeSpec, credits_left: float | None
) -> tuple[Cell, ...]:
    took_s, size = (median(event.number(name) or 0.0 for event in events) for name in ("seconds", "bytes"))
    files = events[-1].numbers("files_bytes") or [size]
    setting = setting_of(session.plan.node.params)
    work = str(events[0].fields.get("work"))
    if work not in _OF_NO_VOLUME:
        setting = {**setting, **reading_of(spec)}
    expected_s, limit = expected(work, files, setting=setting, of_volume=limits_of(spec, credits_left))
    share = took_s / expected_s if expected_s else None
    return (
        quantity("bytes", size, format_bytes(size)),
        quantity("largest_file_bytes", max(files), format_bytes(max(files))),
        quantity("took_s", took_s, format_seconds(took_s)),
        quantity("expected_s", expected_s, format_seconds(expected_s)),
        quantity("took_of_expected", share, f"{share or 0.0:.0%}"),
        word("slowest_limit", NAMES.get(limit, limit)),
    )


def expected(work: str, files: Sequence[float], *, setting: Limits, of_volume: Limits) -> tuple[float, str]:
    """Seconds that limits impose on work with ``files`` (bytes each), and the slowest limit.

    A node receives a file into memory and syncs it to its volume when it is complete. Meanwhile it receives
    one more chunk from another node (smallest file first), or all other files of a snapshot. ``setting``
    limits how fast files arrive, besides the volume that they are read from.
    """
    size = sum(files)
    if not size:
        return 0.0, ""
    forcing_s, limit_of_forcing = _slowest(of_volume, size)
    if work == "merge":  # reads and writes its bytes on one volume
        return _slowest(of_volume, 2 * size)
    getting_s, limit = _slowest(setting if work in _OF_NO_VOLUME else {**setting, **of_volume}, size)
    if work in _OF_NO_VOLUME:
        took_s = getting_s + forcing_s / size * min(max(files), _in_memory(size, getting_s))
    else:
        took_s = _copied_s(files, _Buckets({**setting, **of_volume}), _Buckets(of_volume))
    return max((took_s, limit), (forcing_s, limit_of_forcing))


def _copied_s(files: Sequence[float], source: "_Buckets", target: "_Buckets") -> float:
    """Seconds until all files are received and synced; one end's buckets fill while the other works."""
    at_s = ahead = 0.0
    for size, following in pairwise((*sorted(files), 0.0)):
        getting_s = source.wait_s(size - ahead, at_s)
        at_s += getting_s
        forced_s = target.wait_s(min(size, _in_memory(size, getting_s)), at_s)
        ahead = min(_CHUNK_BYTES, following)
        at_s += max(forced_s, source.wait_s(ahead, at_s))
    return at_s


def _in_memory(size: float, getting_s: float) -> float:
    """Bytes of a file that are not yet on the volume once it has been received within this time."""
    return _KERNEL_WRITES_AFTER_S * size / getting_s if getting_s else inf


class _Buckets:
    """Token buckets of limits: what they let through at once, used up and refilled."""

    def __init__(self, limits: Limits) -> None:
        self._limits = {name: limit for name, limit in limits.items() if limit[0] < inf}
        self._left = {name: saved for name, (_, saved) in self._limits.items()}
        self._at_s = 0.0

    def wait_s(self, size: float, at_s: float) -> float:
        """Seconds that the slowest limit delays bytes that arrive at ``at_s``, which must not decrease."""
        idle_s, self._at_s = at_s - self._at_s, at_s
        for name, (rate, saved) in self._limits.items():
            self._left[name] = min(saved, self._left[name] + rate * idle_s)
        waits = [(size - self._left[name]) / rate for name, (rate, _) in self._limits.items()]
        wait_s = max((0.0, *waits))
        for name, (rate, _) in self._limits.items():
            self._left[name] += rate * wait_s - size
        self._at_s += wait_s
        return wait_s


def _slowest(limits: Limits, size: float) -> tuple[float, str]:
    times = ((max(0.0, size - saved) / rate, name) for name, (rate, saved) in limits.items())
    return max((time for time in times if time[0]), default=(0.0, ""))


def limits_of(spec: VolumeSpec, credits_left: float | None = None) -> Limits:
    """Limits of a volume's catalog type and of its instance.

    The volume's own credits count with ``credits_left``; where that is unknown, credits count only if there
    are none (``spec.credits`` is 0).
    """
    model = known_model(spec)
    if model is None:
        return {}
    limits = {}
    of_volume = [(limit, spec.stripes) for limit in model.limits]
    for limit, volumes in (*of_volume, *((limit, 1) for limit in model.instance_limits)):
        size = model.accounting.max_io_bytes if limit.counts == "operations" else 1
        saved = limit.capacity * volumes
        if limit.of_credits:
            if limit.name == CREDITS and credits_left is not None:
                saved = max(0.0, credits_left)
            elif spec.credits == 0:
                saved = 0.0
            else:
                continue
        limits[limit.name] = limit.rate * volumes * size, saved * size
    return limits


def reading_of(spec: VolumeSpec) -> Limits:
    """Limit on reading a file from a volume of its catalog type: one piece of readahead after another."""
    model = known_model(spec)
    size = spec.readahead_bytes
    return {"read latency": (size / model.read.median_s(size), 0.0)} if model and size else {}


def setting_of(params: Mapping[str, object]) -> Limits:
    """Limit on copying, from the nodes' variables."""
    text = str(params.get(SETTING, _DEFAULT_BYTES_PER_S)).lower().removesuffix(".0")
    try:  # Elasticsearch's "mb" are binary; 0 and -1 mean no limit
        return {SETTING: (parse_bytes(text.removesuffix("b")) or inf, 0.0)}
    except PlanError:
        return {SETTING: (inf, 0.0)}


def _held_back(events: Sequence[Event], rounds: Mapping[int, Profile]) -> Cell:
    total_s = sum(event.number("seconds") or 0.0 for event in events)
    throttled_s = sum(event.number("throttled_s") or 0.0 for event in events)
    shares = {SETTING: min(1.0, throttled_s / total_s)}  # source and target wait simultaneously
    facts: dict[str, Value] = {}
    parts: list[str] = []
    if rounds:
        profile = pooled(rounds.values())
        shares |= {NAMES.get(limit_name(key), key): share for key, share in profile.held_back.items()}
        for what, counter in (
            ("processors", "node.processor_s"),
            ("reads", "device.read_s"),
            ("writes", "device.write_s"),
        ):
            used = profile.grown.get(counter)
            if used is not None:
                facts[what] = used / profile.seconds
                parts.append(f"{used / profile.seconds:.1f} {what}")
    shown = {name: share for name, share in shares.items() if share >= 0.01}
    facts |= {f"{name.replace(' ', '_')}_share": share for name, share in shown.items()}
    held_back = [f"{name} {share:.0%}" for name, share in sorted(shown.items(), key=lambda item: -item[1])]
    return Cell(text=", ".join((*held_back, *parts)) or "-", facts=facts)
