"""The commands that choose a volume: from a recorded session, or from a log of what a volume did."""

import gzip
import io
import json
import shlex
import tempfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from esrally_ebs.advice.advice import TYPES, Advice, advise, priced_settings, require_predicted, usage_options
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import PERCENTILES, Predictor, least_requests
from esrally_ebs.advice.proof import kept_in_race, plan_text, raced_settings
from esrally_ebs.advice.recording import MAX_HALVES, measured_during_s, recording_of
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.advice.traces import lost_events, parse_trace
from esrally_ebs.advice.usage import intervals_of, parse_usage, usage_notes
from esrally_ebs.advice.usage_tables import build_usage
from esrally_ebs.catalog.cost import Usage, price_list
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli.output import Format, Output, SessionName, complain, put
from esrally_ebs.cli.sessions import format_of, give
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import home, resource
from esrally_ebs.model import Bound, VolumeSpec, parse_bound
from esrally_ebs.rally import any_track
from esrally_ebs.report.costs import region_of
from esrally_ebs.session import tracing
from esrally_ebs.session.runs import run_sessions
from esrally_ebs.store import SessionFolder, find_session, load_session
from esrally_ebs.store.session import Session
from esrally_ebs.units import GIB, MIB, parse_bytes, parse_rate
from esrally_ebs.volumes.virtual.replay import Load
from esrally_ebs.workload.queries import require_known_format, timed_requests

app = typer.Typer()
_MAX_CHARACTERS = 2**30
_LEAST_PER_S, _MOST_PER_S = 0.001, 10_000
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# how files begin that are no text, and the command that prints their text
_PRINTED_BY = {
    b"\x96\xd5": "sadf -d {} -- -d",
    b"\x07tae": "blkparse -i {}",
    b"PERFILE2": "perf script -i {}",
    b"\x17\x08Dtracing": "trace-cmd report {}",
    b"\xfd7zXZ": "xz -dc {}",
    b"BZh": "bzip2 -dc {}",
    b"(\xb5/\xfd": "zstd -dc {}",
    b"PK\x03\x04": "unzip -p {}",
}
_ANY_SIZE = ("instance-store", "efs")  # AWS sells these without whole GiB
_ALL_TYPES = ",".join(TYPES)
_OF_RACE = "A race: its volume is looked at from the first measured request to the last."
Credits = Annotated[
    float | None,
    typer.Option(
        "--credits", metavar="SHARE", help="How full its burst credits were at first, 0 to 1; default: 1."
    ),
]
Region = Annotated[str, typer.Option(help="The region whose prices are used.")]
Types = Annotated[str, typer.Option(help="Volume types to choose from, separated by commas.")]


@app.command("advise")
def advise_command(
    session: SessionName,
    keep: Annotated[
        list[str], typer.Option("--keep", metavar="pNN=TIME", help="The bound that all requests must keep.")
    ],
    region: Annotated[
        str | None,
        typer.Option(help="The region whose prices are used; default: as in the session's report."),
    ] = None,
    types: Types = _ALL_TYPES,
    arm: Annotated[
        str | None, typer.Option(metavar="ARM", help="The recorded arm; default: the first.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Write the plan that races the advice to this file.")
    ] = None,
    race: Annotated[
        bool,
        typer.Option("--race", help="Race that plan, and report prediction and measurement side by side."),
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="With --race: race even if this check fails."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="N", help="Predict N queries a second that come at random; default: one after the other."
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="With --rate: cores to compute them; default: the node's processors, counting threads.",
        ),
    ] = None,
    credits_: Annotated[
        float | None,
        typer.Option(
            "--credits",
            metavar="SHARE",
            help="How full burst credits were as a 'trace' began, 0 to 1; default: what 'trace' was given.",
        ),
    ] = None,
    form: Format = None,
    output: Output = None,
) -> int:
    """Name the cheapest volume where recorded requests keep a bound; exit code 1: none, 5: measure first."""
    form = format_of(form, output)
    bound = _only_bound(keep)
    if accept and not race:
        raise PlanError("--accept: says something of a race alone; give --race, too, or leave it out")
    _require_rate(rate, cores, races=race or plan is not None)
    folder = SessionFolder(find_session(home(), session))
    recorded = load_session(folder.path)
    if race or plan is not None:
        _require_raceable(recorded, folder.path, here=race)
    if recorded.kind != tracing.KIND and credits_ is not None:
        raise PlanError(f"--credits: what session {recorded.id} raced had those of its plan; leave it out")
    names = [volume.spec.name for volume in recorded.arms]
    if arm not in (None, *names):
        raise PlanError(f"--arm {arm}: no arm of session {recorded.id}; write one of {', '.join(names)}")
    traced = [event.arm for event in recorded.events if event.kind == "trace" and event.arm]
    arms = [name for name in names if not traced or name in traced]
    recording = recording_of(recorded, folder.read_trace(), arm or next(iter(arms), ""))
    recording = replace(recording, spec=_with_credits(recording.spec, credits_))
    predictor = Predictor(recording, thread_of(recording), bound.percentile)
    if rate is not None:
        predictor.under(Load(rate, cores or _cores(recorded)))
    region, wanted = region_of(recorded)[0] if region is None else region, recorded.plan.cost
    advice = advise(
        predictor,
        recording.spec,
        bound,
        region=region,
        types=_listed(types),
        prices=price_list(str(wanted.prices) if wanted.prices else None),
        used=Usage(read_bytes=wanted.read, written_bytes=wanted.written),
    )
    if plan is not None:
        put(plan_text(advice, recorded), plan)
    proof, code = None, 0
    if race and _differs(advice):
        proof, code = _race(plan_text(advice, recorded), {*recorded.plan.accept, *(accept or ())})
    give(build_advice(recorded, advice, predictor, proof=proof), form, output)
    return code or _exit_code(advice, proof)


def _only_bound(keep: list[str]) -> Bound:
    """The bound to keep. Raises PlanError for several bounds, and for an invalid one."""
    if len(keep) > 1:
        raise PlanError(f"--keep: {' and '.join(keep)} are {len(keep)} bounds; ask for each by itself")
    bound = parse_bound(keep[0], "--keep")
    require_predicted(bound)
    return bound


def _require_rate(rate: float | None, cores: int | None, *, races: bool) -> None:
    """Raise PlanError for a rate that cannot be predicted, or for options that do not fit its presence."""
    if cores is not None and rate is None:
        raise PlanError("--cores: counts with --rate alone; give --rate, too, or leave it out")
    if rate is not None and races:
        raise PlanError(
            "--rate: a race of the advice asks one query after another; leave out --race and --plan"
        )
    if rate is not None and not _LEAST_PER_S <= rate <= _MOST_PER_S:
        raise PlanError(f"--rate {rate:g}: name queries a second, {_LEAST_PER_S:g} to {_MOST_PER_S:,}")


def _require_raceable(recorded: Session, folder: Path, *, here: bool) -> None:
    """Raise PlanError if the session was not raced, or cannot be raced ``here`` as it was.

    Here only our tracks are raced, without parameters of their own: a session may be somebody else's.
    """
    if recorded.kind == tracing.KIND:
        raise PlanError(
            f"session {recorded.id}: its requests were logged, not raced; 'esrally-ebs workload import' makes"
            " a track of the log, which 'esrally-ebs race' races on two settings"
        )
    track = recorded.plan.race.track if recorded.plan.race else ""
    if here and track not in {folder.name for folder in resource("tracks").iterdir()}:
        raise PlanError(
            f"--race: session {recorded.id} raced track {track!r}, which is none of ours; give --plan FILE"
            " instead, then 'esrally-ebs race --track-path=TRACK --plan FILE'"
        )
    own = _own_parameters(folder) if here else ()
    if own:
        raise PlanError(
            f"--race: session {recorded.id} raced {track} with track parameters of its own"
            f" ({', '.join(own)}), which a race from here would lack; give --plan FILE instead, then 'esrally"
            " race --track-path=TRACK' with them and plan:FILE in --track-params"
        )


def _own_parameters(folder: Path) -> list[str]:
    """Track parameters of a race, as Rally recorded it, that are not the pack's."""
    try:
        given = json.loads((folder / "race.json").read_text()).get("track-params")
    except (OSError, ValueError, AttributeError):
        return []
    return sorted(given.keys() - any_track.PARAMETERS) if isinstance(given, dict) else []


def _cores(recorded: Session) -> int:
    """Processors of the recorded node. Raises PlanError if the session does not say."""
    nodes = recorded.environment.get("nodes", {}).values()
    known = [int(node["processors"]) for node in nodes if node.get("processors")]
    if not known:
        raise PlanError(f"--rate: session {recorded.id} does not say how many cores; give --cores")
    return min(known)


def _differs(advice: Advice) -> bool:
    if len(raced_settings(advice)) > 1:
        return True
    complain("no race: nothing other than today's volume is advised")
    return False


def _race(text: str, accept: Collection[str]) -> tuple[Session | None, int]:
    """Session and exit code of a plan's race; no session if the race is refused or broken off."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prove-advice.toml"
        path.write_text(text)
        sessions, code = run_sessions(str(path), {"accept": sorted(accept)}, 1, complain=complain)
    return (load_session(find_session(home(), sessions[0])) if sessions else None), code


def _listed(types: str) -> list[str]:
    return list(dict.fromkeys(one.strip() for one in types.split(",")))


def _exit_code(advice: Advice, proof: Session | None) -> int:
    if proof is not None:
        return 0 if kept_in_race(advice, proof) else 1
    if advice.doubtful is not None:
        return 5
    return 0 if advice.suffices else 1


Size = Annotated[str, typer.Option(help="Size of today's volume, for example 500GiB.")]
Type = Annotated[str, typer.Option("--type", help="The type of today's volume.")]
Iops = Annotated[int | None, typer.Option(min=1, help="Its provisioned IOPS.")]
Throughput = Annotated[str | None, typer.Option(help="Its provisioned throughput, for example 250MiB/s.")]
Device = Annotated[str | None, typer.Option(help="The device, if the log has several.")]


@app.command("usage")
def usage_command(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="CloudWatch's JSON, iostat -xt (text, JSON), sar -d, a trace, or a recording's folder.",
        ),
    ],
    size: Size,
    type_: Type = "gp3",
    iops: Iops = None,
    throughput: Throughput = None,
    credits_: Credits = None,
    device: Device = None,
    region: Region = "us-east-1",
    types: Types = _ALL_TYPES,
    form: Format = None,
    output: Output = None,
) -> None:
    """Replay the log of a volume on every setting, and say how long limits would have been reached."""
    form = format_of(form, output)
    today = _with_credits(_today(size, type_, iops, throughput), credits_)
    during_s: list[float] = []
    if log.is_dir():
        if device is not None:
            raise PlanError("--device: a recording's folder is taken whole; leave it out")
        if not (log / "session.json").exists():
            raise PlanError(
                f"{log}: a folder without a session; name one log in it, or what 'esrally-ebs trace' made"
            )
        session = load_session(log)
        race_s = measured_during_s(session)
        text, ios = "", _recorded(log, race_s)
        notes = (*session.warnings, *([_OF_RACE] if race_s else []))
        during_s = race_s or tracing.recorded_during_s(session)
    else:
        text = _text(log)
        ios = parse_trace(text, str(log), device)
        notes = tracing.foreign_notes(lost_events(text)) if ios.num_rows else usage_notes(text)
    intervals = intervals_of(ios, during_s) if ios.num_rows else parse_usage(text, str(log), device)
    options, unpriced = usage_options(intervals, today, region=region, types=_listed(types))
    traced = ios if ios.num_rows else None
    report = build_usage(
        str(log), intervals, options, region=region, unpriced=unpriced, ios=traced, notes=notes
    )
    give(report, form, output)


def _recorded(folder: Path, within_s: Sequence[float]) -> pa.Table:
    """The I/Os of a recording's folder; ``within_s`` are the times between which they count, if any are."""
    ios = SessionFolder(folder).read_trace().sort_by("at_s")
    if within_s:
        first_s, last_s = within_s
        ios = ios.filter(pc.and_(pc.greater_equal(ios["at_s"], first_s), pc.less_equal(ios["at_s"], last_s)))
    if len(ios["arm"].unique()) > 1:
        raise PlanError(f"{folder}: a session of several arms; 'esrally-ebs advise' takes it")
    if not ios.num_rows:
        raise PlanError(f"{folder}: a session without a trace; name a log, or what 'esrally-ebs trace' made")
    return ios


def _today(size: str, type_: str, iops: int | None, throughput: str | None) -> VolumeSpec:
    """Today's volume. Raises PlanError for one that is not sold."""
    rate = None if throughput is None else parse_rate(throughput, what="--throughput")
    if rate == 0:
        raise PlanError(f"--throughput {throughput}: nobody buys none; write for example 250MiB/s")
    today = VolumeSpec(
        name="today",
        type=type_,
        size_bytes=parse_bytes(size, what="--size"),
        iops=iops,
        throughput_bytes_per_s=rate,
    )
    model_for(today)
    for text, value, unit, name in (
        (f"--size {size}", today.size_bytes, GIB, "GiB"),
        (f"--throughput {throughput}", rate or 0, MIB, "MiB/s"),
    ):
        if value % unit and type_ not in _ANY_SIZE:
            raise PlanError(f"{text}: AWS counts in whole {name}; write for example 500{name}")
    return today


def _with_credits(spec: VolumeSpec, share: float | None) -> VolumeSpec:
    """The volume with this initial share of burst credits (None: as it is). PlanError for a type without."""
    if share is None:
        return spec
    if not 0 <= share <= 1:
        raise PlanError(f"--credits {share:g}: is no share of full ones; write for example 0.25")
    if not model_for(spec).bursts:
        raise PlanError(f"--credits: {spec.type} of this size has no burst credits; leave it out")
    return replace(spec, credits=share)


def _text(log: Path) -> str:
    """A log's text, also if gzipped or written by PowerShell."""
    try:
        with log.open("rb") as raw:
            head = raw.peek(16)
            if command := next((_PRINTED_BY[one] for one in _PRINTED_BY if head.startswith(one)), None):
                shown = command.format(shlex.quote(str(log)))
                raise PlanError(f'{log}: is no text; give a file with what "{shown}" prints')
            encoding = "utf-16" if head.startswith(_UTF_16) else "utf-8-sig"
            file = gzip.GzipFile(fileobj=raw) if head.startswith(_GZIP) else raw
            with io.TextIOWrapper(file, encoding, errors="replace") as lines:
                text = lines.read(_MAX_CHARACTERS + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise PlanError(f"{log}: {reason}; name a file that can be read") from error
    if len(text) > _MAX_CHARACTERS:
        raise PlanError(f"{log}: over {_MAX_CHARACTERS:,} characters; give a part of it, by time")
    return text


@app.command("trace")
def trace_command(
    mount: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A directory on the file system whose I/Os are recorded."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="N", help="How long to record.", min=2, max=86400)
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The node's process; default: all that use the mount."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Instead of --mount: a trace of another tool."),
    ] = None,
    began: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When the clock of that trace was 0: 2026-11-22T10:00:00Z."),
    ] = None,
    log: Annotated[
        list[Path] | None, typer.Option(help="A query log of that time, to predict its requests.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Size of today's volume, for example 500GiB; default: the disk's.")
    ] = None,
    type_: Type = "gp3",
    iops: Iops = None,
    throughput: Throughput = None,
    credits_: Credits = None,
    device: Device = None,
    region: Region = "us-east-1",
    types: Types = _ALL_TYPES,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Make the session's folder there.")
    ] = None,
) -> None:
    """Record the I/Os of a mount on any Linux machine, read-only, and say which settings would serve them."""
    _require_one_source(
        mount, source, {"--seconds": seconds, "--pid": pid}, {"--began": began, "--device": device}
    )
    size = _size_given(size, mount)
    today = replace(_with_credits(_today(size, type_, iops, throughput), credits_), name=tracing.ARM)
    # by sudo everything after it is the caller's
    recorder = (
        tracing.MountRecorder(Path(mount), today, seconds=seconds, pid=pid) if mount and seconds else None
    )
    require_known_format(log or [])  # before the minutes of recording, not after
    priced_settings(today, _listed(types), region, price_list())
    logs = partial(timed_requests, log) if log else None
    if source is not None:
        text = _text(source)
        ios = parse_trace(text, str(source), device, began_s=_seconds_of(began))
        if not ios.num_rows:
            raise PlanError(
                f"--from {source}: no I/O of blkparse, perf script, biosnoop -Q or fio's iolog in it; name a"
                " trace of these ('esrally-ebs usage' takes iostat, sar and CloudWatch)"
            )
        intervals_of(ios)  # too short or too long a trace must leave no session
        lost = lost_events(text)
        folder = tracing.record_trace(ios, source, today, lost=lost, logs=logs, output=output)
    elif recorder is not None:
        folder = recorder.record(logs=logs, output=output, say=complain)
    session = load_session(folder)
    ios = SessionFolder(folder).read_trace().sort_by("at_s")
    intervals = intervals_of(ios, tracing.recorded_during_s(session))
    options, unpriced = usage_options(intervals, session.arms[0].spec, region=region, types=_listed(types))
    name = str(output) if output is not None else session.id
    report = build_usage(
        name, intervals, options, region=region, unpriced=unpriced, ios=ios, notes=session.warnings
    )
    is_whole = ios["done_s"].null_count <= MAX_HALVES * ios.num_rows
    is_whole &= not any(event.number("missed") for event in session.events)
    bounded = [one for one in PERCENTILES if session.samples.num_rows >= least_requests(one)]
    step = f"esrally-ebs advise {name} --keep p{bounded[-1]}=100ms" if bounded and is_whole else ""
    give(replace(report, next_step=step), "text", None)


def _size_given(size: str | None, mount: str | None) -> str:
    """The size, by default that of the mount's disk. Raises PlanError for another tool's trace without."""
    if size is not None:
        return size
    if mount is None:
        raise PlanError("--from: no trace says how large its volume is; give --size, for example 500GiB")
    return tracing.size_of(Path(mount))


def _require_one_source(
    mount: str | None, source: Path | None, of_mount: Mapping[str, object], of_trace: Mapping[str, object]
) -> None:
    """Raise PlanError without a source, with two, or with an option of the other one."""
    if (mount is None) == (source is None):
        raise PlanError("trace: name a --mount to record, or a trace of another tool with --from")
    if mount == "":  # it would mean the current directory
        raise PlanError("--mount '': an empty path; is a variable of your shell not set?")
    if mount is not None and of_mount["--seconds"] is None:
        raise PlanError("trace: for how long? give --seconds, for example --seconds 300")
    idle, kind = (of_trace, "another tool's trace") if source is None else (of_mount, "a mount")
    for name, value in idle.items():
        if value is not None:
            raise PlanError(f"{name}: says something of {kind} alone; leave it out")


def _seconds_of(began: str | None) -> float:
    """Epoch seconds from a time of day with its zone; 0 for none."""
    if began is None:
        return 0.0
    try:
        moment = datetime.fromisoformat(began)
    except ValueError as error:
        raise PlanError(f"--began {began}: is no time; write for example 2026-11-22T10:00:00Z") from error
    if moment.tzinfo is None:
        raise PlanError(f"--began {began}: names no time zone; write for example {moment.isoformat()}Z")
    if not 1970 < moment.year < 9999:
        raise PlanError(f"--began {began}: choose a time of the years 1971 to 9998")
    return moment.timestamp()
