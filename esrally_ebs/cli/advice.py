"""The command that chooses a volume for the requests of a recorded session."""

import json
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from esrally_ebs.advice.advice import Advice, advise, require_predicted
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.proof import kept_in_race, plan_text, raced_settings
from esrally_ebs.advice.recording import recording_of
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.catalog.cost import Usage, price_list
from esrally_ebs.cli.output import Format, Output, SessionName, complain, file_in_folder, put
from esrally_ebs.cli.sessions import format_of, give
from esrally_ebs.cli.usage import ALL_TYPES, Types, listed, with_credits
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import home, resource
from esrally_ebs.model import Bound, parse_bound
from esrally_ebs.rally import any_track
from esrally_ebs.report.costs import own_prices, region_of
from esrally_ebs.session import tracing
from esrally_ebs.session.runs import run_sessions
from esrally_ebs.store import SessionFolder, find_session, load_session
from esrally_ebs.store.session import Session
from esrally_ebs.volumes.virtual.replay import Load

app = typer.Typer()
_LEAST_PER_S, _MOST_PER_S = 0.001, 10_000


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
    types: Types = ALL_TYPES,
    arm: Annotated[
        str | None, typer.Option(metavar="ARM", help="The recorded arm; default: the first.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the plan that races the advice to this file.", parser=file_in_folder
        ),
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
    recording = replace(recording, spec=with_credits(recording.spec, credits_))
    predictor = Predictor(recording, thread_of(recording), bound.percentile)
    if rate is not None:
        predictor.under(Load(rate, cores or _cores(recorded)))
    region, wanted = region_of(recorded)[0] if region is None else region, recorded.plan.cost
    advice = advise(
        predictor,
        recording.spec,
        bound,
        region=region,
        types=listed(types),
        prices=price_list(own_prices(recorded)),
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


def _exit_code(advice: Advice, proof: Session | None) -> int:
    if proof is not None:
        return 0 if kept_in_race(advice, proof) else 1
    if advice.doubtful is not None:
        return 5
    return 0 if advice.suffices else 1
