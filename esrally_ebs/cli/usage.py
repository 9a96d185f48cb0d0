"""The commands that judge volumes by what one did: by the log of a volume, or by a recording of its I/Os."""

import gzip
import io
import os
import shlex
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from esrally_ebs.advice.advice import TYPES, priced_settings, usage_options
from esrally_ebs.advice.prediction import PERCENTILES, least_requests
from esrally_ebs.advice.recording import MAX_HALVES, measured_during_s
from esrally_ebs.advice.traces import lost_events, parse_trace
from esrally_ebs.advice.usage import intervals_of, parse_usage, usage_notes
from esrally_ebs.advice.usage_tables import build_usage
from esrally_ebs.catalog.cost import price_list
from esrally_ebs.catalog.volume_types import as_sold, model_for
from esrally_ebs.cli.output import Format, Output, complain
from esrally_ebs.cli.sessions import format_of, give
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import home
from esrally_ebs.model import VolumeSpec
from esrally_ebs.session import tracing
from esrally_ebs.store import SessionFolder, find_session, load_session
from esrally_ebs.units import GIB, MIB, parse_bytes, parse_rate, whole_units
from esrally_ebs.workload.queries import require_known_format, timed_requests

app = typer.Typer()
_MAX_CHARACTERS = 2**30
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
ALL_TYPES = ",".join(TYPES)
_OF_RACE = "A race: its volume is looked at from the first measured request to the last."
Credits = Annotated[
    float | None,
    typer.Option(
        "--credits", metavar="SHARE", help="How full its burst credits were at first, 0 to 1; default: 1."
    ),
]
Region = Annotated[str, typer.Option(help="The region whose prices are used.")]
Types = Annotated[str, typer.Option(help="Volume types to choose from, separated by commas.")]
Size = Annotated[str | None, typer.Option(help="Today's size, as 500GiB; default: the session's or disk's.")]
Type = Annotated[str | None, typer.Option("--type", help="Today's type; default: the session's, or gp3.")]
Iops = Annotated[int | None, typer.Option(min=1, help="Its provisioned IOPS.")]
Throughput = Annotated[str | None, typer.Option(help="Its provisioned throughput, for example 250MiB/s.")]
Device = Annotated[str | None, typer.Option(help="The device, if the log has several.")]


@app.command("usage")
def usage_command(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="CloudWatch's JSON, iostat -xt (text, JSON), sar -d, a trace, or a recorded session.",
        ),
    ],
    size: Size = None,
    type_: Type = None,
    iops: Iops = None,
    throughput: Throughput = None,
    credits_: Credits = None,
    device: Device = None,
    region: Region = "us-east-1",
    types: Types = ALL_TYPES,
    form: Format = None,
    output: Output = None,
) -> None:
    """Replay the log of a volume on every setting, and say how long limits would have been reached."""
    form = format_of(form, output)
    today = _today(size, type_, iops, throughput) if size is not None else None
    folder, during_s = _folder_of(log), list[float]()
    if folder is not None:
        if device is not None:
            raise PlanError("--device: a recording's folder is taken whole; leave it out")
        if today is None and (iops or throughput or type_):
            raise PlanError("--type, --iops, --throughput: the session has its own; give --size, too")
        text, (recorded, ios, during_s, notes) = "", _of_session(folder)
        today = today or recorded
    elif today is None:
        raise PlanError("--size: no log says how large its volume is; write for example --size 500GiB")
    else:
        text = _text(Path(log))
        ios = parse_trace(text, log, device)
        notes = tracing.foreign_notes(lost_events(text)) if ios.num_rows else usage_notes(text)
    today = with_credits(today, credits_)
    intervals = intervals_of(ios, during_s) if ios.num_rows else parse_usage(text, log, device)
    options, unpriced = usage_options(intervals, today, region=region, types=listed(types))
    traced = ios if ios.num_rows else None
    source = folder.name if folder is not None and log == "latest" else log
    report = build_usage(
        source, intervals, options, region=region, unpriced=unpriced, ios=traced, notes=notes
    )
    give(report, form, output)


def _folder_of(log: str) -> Path | None:
    """The folder of a recorded session, by its path or name; None for a file. Raises PlanError for others."""
    path = Path(log)
    if log == "latest" or not (os.path.lexists(log) or "/" in log):
        try:
            return find_session(home(), log)
        except PlanError as error:
            if not path.suffix:
                raise PlanError(f"{log}: no such file; {error}") from error
    if not path.is_dir():
        return None
    if not (path / "session.json").exists():
        raise PlanError(
            f"{log}: a folder without a session; name one log in it, or what 'esrally-ebs trace' made"
        )
    return path


def _of_session(folder: Path) -> tuple[VolumeSpec, pa.Table, list[float], tuple[str, ...]]:
    """A recording's volume, its I/Os, from when to when these count, and notes about them."""
    session = load_session(folder)
    ios, within_s = SessionFolder(folder).read_trace().sort_by("at_s"), measured_during_s(session)
    if within_s:
        first_s, last_s = within_s
        ios = ios.filter(pc.and_(pc.greater_equal(ios["at_s"], first_s), pc.less_equal(ios["at_s"], last_s)))
    arms = ios["arm"].unique().to_pylist()
    if len(arms) > 1:
        raise PlanError(f"{folder}: a session of several arms; 'esrally-ebs advise' takes it")
    spec = next((as_sold(volume.spec) for volume in session.arms if volume.spec.name in arms), None)
    if spec is None:
        raise PlanError(f"{folder}: a session without a trace; name a log, or what 'esrally-ebs trace' made")
    notes = (*session.warnings, *([_OF_RACE] if within_s else []))
    return replace(spec, time_scale=1.0), ios, within_s or tracing.recorded_during_s(session), notes


def listed(types: str) -> list[str]:
    return list(dict.fromkeys(one.strip() for one in types.split(",")))


def _today(size: str, type_: str | None, iops: int | None, throughput: str | None) -> VolumeSpec:
    """Today's volume, a gp3 unless its type is given. Raises PlanError for one that is not sold."""
    type_ = type_ or "gp3"
    rate = None if throughput is None else parse_rate(throughput, what="--throughput")
    size_bytes = parse_bytes(size, what="--size")
    if type_ not in _ANY_SIZE:
        whole_units(f"--size {size}", size_bytes, GIB)
        if rate is not None:
            whole_units(f"--throughput {throughput}", rate, MIB)
    today = VolumeSpec(
        name="today", type=type_, size_bytes=size_bytes, iops=iops, throughput_bytes_per_s=rate
    )
    model_for(today)
    return today


def with_credits(spec: VolumeSpec, share: float | None) -> VolumeSpec:
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
    size: Size = None,
    type_: Type = None,
    iops: Iops = None,
    throughput: Throughput = None,
    credits_: Credits = None,
    device: Device = None,
    region: Region = "us-east-1",
    types: Types = ALL_TYPES,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Make the session's folder there.")
    ] = None,
) -> None:
    """Record the I/Os of a mount on any Linux machine, read-only, and say which settings would serve them."""
    _require_one_source(
        mount, source, {"--seconds": seconds, "--pid": pid}, {"--began": began, "--device": device}
    )
    size = _size_given(size, mount)
    today = replace(with_credits(_today(size, type_, iops, throughput), credits_), name=tracing.ARM)
    # by sudo everything after it is the caller's
    recorder = (
        tracing.MountRecorder(Path(mount), today, seconds=seconds, pid=pid) if mount and seconds else None
    )
    require_known_format(log or [])  # before the minutes of recording, not after
    priced_settings(today, listed(types), region, price_list())
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
    options, unpriced = usage_options(intervals, session.arms[0].spec, region=region, types=listed(types))
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
