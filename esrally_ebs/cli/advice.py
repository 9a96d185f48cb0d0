"""The commands that choose a volume: for what a session recorded, and for what a log says that one did."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from esrally_ebs.advice.advice import TYPES, Advice, advise, parse_bound, usage_options
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.recording import recording_of
from esrally_ebs.advice.tables import build_advice, build_usage, plan_text, raced_settings
from esrally_ebs.advice.usage import parse_traced, parse_usage
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli.output import Format, Output, SessionName, complain, put
from esrally_ebs.cli.sessions import give, require_format
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import home
from esrally_ebs.model import VolumeSpec
from esrally_ebs.session.runs import run_sessions
from esrally_ebs.store import SessionFolder, find_session, load_session
from esrally_ebs.store.session import Session
from esrally_ebs.units import parse_bytes, parse_rate

app = typer.Typer()
_ALL_TYPES = ",".join(TYPES)
Region = Annotated[str, typer.Option(help="Whose prices count.")]
Types = Annotated[str, typer.Option(help="Volume types to choose from, with commas.")]


@app.command("advise")
def advise_command(
    session: SessionName,
    keep: Annotated[str, typer.Option("--keep", metavar="pNN=TIME", help="What all requests must keep.")],
    region: Region = "us-east-1",
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
        typer.Option(metavar="CHECK", help="With --race: race although this check forbids it."),
    ] = None,
    form: Format = "text",
    output: Output = None,
) -> int:
    """Name the cheapest volume on which recorded requests keep a bound; 1: none does, 5: race two first."""
    require_format(form)
    bound = parse_bound(keep)
    folder = SessionFolder(find_session(home(), session))
    recorded = load_session(folder.path)
    traced = [event.arm for event in recorded.events if event.kind == "trace" and event.arm]
    arms = [volume.spec.name for volume in recorded.arms if not traced or volume.spec.name in traced]
    recording = recording_of(recorded, folder.read_trace(), arm or next(iter(arms), ""))
    predictor = Predictor(recording, thread_of(recording))
    advice = advise(predictor, recording.spec, bound, region=region, types=_listed(types))
    if plan is not None:
        put(plan_text(advice, recorded), plan)
    proof, code = None, 0
    if race and _differs(advice, recorded):
        proof, code = _race(plan_text(advice, recorded), accept)
    give(build_advice(recorded, advice, predictor, region=region, proof=proof), form, output)
    return code or _exit_code(advice)


def _differs(advice: Advice, recorded: Session) -> bool:
    if len(raced_settings(advice, recorded)) > 1:
        return True
    complain("no race: nothing other than today's volume is advised")
    return False


def _race(text: str, accept: list[str] | None) -> tuple[Session | None, int]:
    """The session of a plan's race, and its exit code; none when the race is refused or broken off."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prove-advice.toml"
        path.write_text(text)
        sessions, code = run_sessions(str(path), {"accept": accept} if accept else {}, 1, complain=complain)
    return (load_session(find_session(home(), sessions[0])) if sessions else None), code


def _listed(types: str) -> list[str]:
    return [one.strip() for one in types.split(",") if one.strip()]


def _exit_code(advice: Advice) -> int:
    if advice.doubtful is not None:
        return 5
    return 0 if advice.best is not None else 1


@app.command("usage")
def usage_command(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="CloudWatch's JSON, iostat -xt or sar -d text, or a trace.")
    ],
    size: Annotated[str, typer.Option(help="Size of today's volume, for example 500GiB.")],
    type_: Annotated[str, typer.Option("--type", help="Its type.")] = "gp3",
    iops: Annotated[int | None, typer.Option(help="Its IOPS, if they are bought.")] = None,
    throughput: Annotated[str | None, typer.Option(help="Its throughput, if it is bought: 250MiB/s.")] = None,
    device: Annotated[str | None, typer.Option(help="The device, if the log is of several.")] = None,
    region: Region = "us-east-1",
    types: Types = _ALL_TYPES,
    form: Format = "text",
    output: Output = None,
) -> None:
    """Replay a log of what a volume did on every setting: for how long its limits would have been reached."""
    require_format(form)
    today = VolumeSpec(
        name="today",
        type=type_,
        size_bytes=parse_bytes(size, what="--size"),
        iops=iops,
        throughput_bytes_per_s=None if throughput is None else parse_rate(throughput, what="--throughput"),
    )
    model_for(today)  # refuses what is not sold
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        raise PlanError(f"{log}: {error.strerror}; name a file that can be read") from error
    intervals = parse_usage(text, str(log), device)
    options = usage_options(intervals, today, region=region, types=_listed(types))
    ios = [io for io in parse_traced(text) if device in (None, io.device)]
    give(build_usage(str(log), intervals, options, region=region, ios=ios), form, output)
