"""The commands that run a plan: ``run`` on devices, ``simulate`` in virtual time, ``study`` in either."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from esrally_ebs import studies
from esrally_ebs.analysis.pooling import MIN_SESSIONS
from esrally_ebs.catalog.cost import price_list
from esrally_ebs.cli.output import Output, PlanName, Settings, complain, overrides_of, put
from esrally_ebs.cli.sessions import compare_command, format_of
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import home, plan_path, sockets_wanted
from esrally_ebs.rally import any_track
from esrally_ebs.session import runs
from esrally_ebs.store import find_session, load_session
from esrally_ebs.studies.published import RENDERERS

app = typer.Typer()


@app.command("run")
def run_command(
    plan: PlanName,
    settings: Settings = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="Measure even if this check fails.")
    ] = None,
    sessions: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=MIN_SESSIONS,
            max=1000,
            help="Race it N times, and give one verdict of all sessions.",
        ),
    ] = None,
) -> int:
    """Run a session: a plan with a race table calls Rally, one without it runs fio alone."""
    overrides = overrides_of(settings) | ({"accept": accept} if accept else {})
    if sessions is None:
        return runs.run_plan(plan, overrides, say=put)
    complete, code = runs.run_sessions(plan, overrides, sessions, complain=complain)
    if len(complete) >= MIN_SESSIONS:
        compare_command(complete)
    elif complete:
        ids = " ".join(complete)
        complain(f"one verdict needs {MIN_SESSIONS} sessions; add others: esrally-ebs compare {ids} ...")
    return code


@app.command("knee")
def knee_command(
    plan: PlanName,
    latency: Annotated[
        str, typer.Option(metavar="pNN=TIME", help="The bound on latency, for example p99=100ms.")
    ],
    task: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this task of the track; may be repeated.")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long each rate is kept; default: the plan's, or 30s."),
    ] = None,
    settings: Settings = None,
) -> int:
    """Find the highest rate of queries at which each arm keeps a bound on latency."""
    given = overrides_of(settings) | ({} if step is None else {"design.step": step})
    return runs.run_knee(plan, latency, given, task or (), complain=complain)


@app.command("race", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def race_command(
    context: typer.Context,
    track_path: Annotated[Path, typer.Option(help="The directory of any Rally track, or its file.")],
    plan: Annotated[
        str | None,
        typer.Option(
            help="A plan's path, or its name in pipelines/; its arms are compared. Default: the track's own, "
            f"or {any_track.DEFAULT_PLAN}."
        ),
    ] = None,
    settings: Settings = None,
) -> int:
    """Race any Rally track on the arms of a plan; all other options are those of 'esrally race'."""
    if sockets_wanted():
        raise PlanError("race: works without esrallyd alone; unset ESRALLY_EBS_ACTORS")
    with suppress(RuntimeError):  # no such user
        track_path = track_path.expanduser()
    file = track_path / "track.json" if track_path.is_dir() else track_path
    if not file.is_file() or file.suffix != ".json":
        raise PlanError(f"--track-path {track_path}: there is no such track; name its directory")
    named = {} if plan is None else {"plan": str(plan_path(plan).resolve())}
    given = {**named, "set": overrides_of(settings)}
    flags = [f"--track-path={track_path.absolute()}", *context.args]
    return runs.call_rally(flags, plan or "race", any_track.environment(given))


@app.command("simulate")
def simulate_command(plan: PlanName, settings: Settings = None) -> None:
    """Run the fio jobs of a plan in virtual time, from the volume models alone; no root, no engine."""
    overrides = overrides_of(settings)
    put(runs.simulate_plan(plan, overrides, say=put))


@app.command("study")
def study_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of 'study --list'.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="In virtual time: no root, no device.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the studies there are.")] = False,
    form: Annotated[
        str | None,
        typer.Option("--format", help=f"{', '.join(RENDERERS)}.", show_default="by --output, or text"),
    ] = None,
    output: Output = None,
    session: Annotated[
        str | None, typer.Option(help="nikkei-2021: a recorded race to show beside the published one.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Your price list; its prices go before ours.")] = None,
    repeats: Annotated[
        int, typer.Option("--runs", min=1, max=1000, help="On devices: runs of every job.")
    ] = 1,
) -> None:
    """Print every published figure of a study beside ours, with the error; also as tables and plots."""
    if listed:
        for study in studies.names():
            put(f"{study}  {studies.read_study(study).title}")
        return
    if name is None:
        raise PlanError("study: which one? give a name; 'esrally-ebs study --list' shows them")
    form = format_of(form, output, RENDERERS)
    studies.read_study(name)
    if session is not None and name != "nikkei-2021":
        raise PlanError("--session: nikkei-2021 alone has a race to show it beside; leave it out")
    if simulate and repeats > 1:
        raise PlanError("--runs: says something of devices alone; leave it out")
    recorded = None if session is None else load_session(find_session(home(), session))
    runner = studies.VirtualRunner() if simulate else studies.DeviceRunner(repeats, say=complain)
    listed_prices = price_list(None if prices is None else str(prices))
    result = studies.run_study(name, runner, listed_prices, session=recorded)
    put(RENDERERS[form](result), output)
