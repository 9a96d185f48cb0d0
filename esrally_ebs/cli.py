"""The ``esrally-ebs`` command: translates words into one typed call each, prints, and sets the exit code."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from esrally_ebs import by_hand, clean, corpus, doctor, report, runs, virtual
from esrally_ebs.errors import EbsError, MeasurementError, PlanError
from esrally_ebs.model import Check, Volume
from esrally_ebs.report import gate as gates
from esrally_ebs.report.sessions import comparable, compare_sessions
from esrally_ebs.resources import home
from esrally_ebs.stats.gate import parse_limit
from esrally_ebs.store import find_session, list_sessions, load_session
from esrally_ebs.units import format_bytes

app = typer.Typer(
    help="Compare the volumes under Elasticsearch: sessions, volumes and reports beside 'esrally race'.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
volumes_app = typer.Typer(help="Attach, show and detach the arms of a plan by hand.", no_args_is_help=True)
corpus_app = typer.Typer(help="Documents of the noaa-ebs track.", no_args_is_help=True)
app.add_typer(volumes_app, name="volumes")
app.add_typer(corpus_app, name="corpus")

_COMPARE_FORMATS = ("text", "markdown", "json")
_PIPE_WIDTH = 300  # columns of a table that no terminal shows

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PlanName = Annotated[str, typer.Argument(metavar="PLAN", help="A plan's path, or its name in pipelines/.")]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="An id, the start of one, a path, or 'latest'.")
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and prints every error of ours as one line."""
    try:
        code = app(
            args=list(argv) if argv is not None else None, standalone_mode=False, prog_name="esrally-ebs"
        )
    except EbsError as error:
        print(f"esrally-ebs: {error}", file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (click.exceptions.Abort, KeyboardInterrupt):
        print("esrally-ebs: cancelled", file=sys.stderr)
        return 130
    return code if isinstance(code, int) else 0


@app.command("doctor")
def doctor_command(as_json: Json = False) -> int:
    """Check this machine and say how to mend what is missing; exit code 3 if anything is."""
    # imported here: the other commands, above all report, must work where Rally is not installed
    from esrally_ebs.rally.signatures import check_signatures

    checks = doctor.check_machine(check_signatures)
    _print_checks(checks, as_json=as_json)
    return 0 if all(check.ok for check in checks) else 3


@volumes_app.command("up")
def volumes_up(plan: PlanName) -> None:
    """Attach and mount every arm of a plan; they stay until 'volumes down'."""
    _print_volumes(by_hand.up(plan), as_json=False)


@volumes_app.command("list")
def volumes_list(as_json: Json = False) -> None:
    """Show the attached arms, by hand or by a running session."""
    _print_volumes(by_hand.attached(), as_json=as_json)


@volumes_app.command("down")
def volumes_down() -> None:
    """Detach every arm that 'volumes up' attached; the data on emulated ones are gone then."""
    for name in by_hand.down():
        print(f"detached {name}")


@app.command("run")
def run_command(
    plan: PlanName,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the plan.")
    ] = None,
) -> int:
    """Run a session: a plan with a [race] calls Rally, one without needs no Elasticsearch."""
    overrides = dict(_setting(text) for text in settings or [])
    return runs.run_plan(plan, overrides, say=print)


@app.command("simulate")
def simulate_command(
    plan: PlanName,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the plan.")
    ] = None,
) -> None:
    """Run the fio jobs of a plan in virtual time, from the volume models alone; no root, no engine."""
    overrides = dict(_setting(text) for text in settings or [])
    print(virtual.simulate_plan(plan, overrides, say=print))


@app.command("study")
def study_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of 'study --list'.")] = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="In virtual time.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the studies there are.")] = False,
) -> None:
    """Print every published figure of a study beside ours, with the error."""
    if listed:
        for study, title in virtual.studies():
            print(f"{study}  {title}")
    elif name is None:
        raise PlanError("study: which one? give a name; 'esrally-ebs study --list' shows them")
    elif not simulate:
        raise PlanError(
            f"study {name}: only in virtual time so far; add --simulate, or measure its jobs on devices with"
            f" 'esrally-ebs run {name}'"
        )
    else:
        print(virtual.simulate_study(name))


@app.command("sessions")
def sessions_command(as_json: Json = False) -> None:
    """List what has been recorded; a session whose process was killed is shown as failed."""
    found = list_sessions(home())
    if as_json:
        print(json.dumps([_session_record(summary) for summary in found], indent=2))
        return
    table = _table("session", "started", "state", "plan", "arms", "why")
    for summary in found:
        kind = " (emulated)" if summary.emulated else ""
        arms = ", ".join(summary.arms) + kind
        table.add_row(
            summary.id, _when(summary.started_at), summary.state, summary.plan, arms, summary.reason
        )
    _console().print(table)


@app.command("report")
def report_command(
    session: SessionName,
    form: Annotated[str, typer.Option("--format", help="text, markdown, csv, json or html.")] = "text",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
) -> None:
    """Report on a session from its folder alone, on any machine."""
    if form not in report.RENDERERS:
        raise PlanError(f"--format {form}: choose one of {', '.join(report.RENDERERS)}")
    built = report.build(load_session(find_session(home(), session)))
    if form == "text" and output is None:
        _show(built)
        return
    _put(report.RENDERERS[form](built), output)


@app.command("compare")
def compare_command(
    first: SessionName,
    second: SessionName,
    form: Annotated[str, typer.Option("--format", help="text, markdown or json.")] = "text",
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
) -> None:
    """Compare two sessions, with the checks of what must agree; exit code 4 when they are not comparable."""
    if form not in _COMPARE_FORMATS:
        raise PlanError(f"--format {form}: choose one of {', '.join(_COMPARE_FORMATS)}")
    sessions = [load_session(find_session(home(), name)) for name in (first, second)]
    if sessions[0].id == sessions[1].id:
        raise PlanError(f"compare: {first} and {second} are the same session; name two")
    built = compare_sessions(*sessions)
    if form == "text" and output is None:
        _show(built)
    else:
        _put(report.RENDERERS[form](built), output)
    if not comparable(built.checks):
        raise MeasurementError(built.verdict)


@app.command("gate")
def gate_command(
    session: SessionName,
    limits: Annotated[
        list[str] | None,
        typer.Option("--max-slowdown", metavar="pNN=X%", help="Limit of p50, p90 or p99; may be repeated."),
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the decisions to this file as JUnit XML.")] = None,
    base: Annotated[str | None, typer.Option(metavar="ARM", help="Compare with this arm.")] = None,
    other: Annotated[str | None, typer.Option(metavar="ARM", help="The arm that must not be slower.")] = None,
) -> int:
    """Decide whether an arm is slower than allowed: exit code 0 pass, 1 fail, 5 inconclusive, 4 invalid."""
    recorded = load_session(find_session(home(), session))
    allowed = [parse_limit(text) for text in limits or []]
    try:
        judged = gates.judge_session(recorded, allowed, base=base, other=other)
    except MeasurementError as error:
        if junit is not None:
            junit.write_text(gates.render_junit_refused(recorded, error))
        raise
    print(gates.render_gate(recorded, judged), end="")
    if junit is not None:
        junit.write_text(gates.render_junit(recorded, judged))
    return gates.EXIT_CODES[judged.outcome]


@corpus_app.command("generate")
def corpus_generate(
    output: Annotated[Path, typer.Option(help="File to write; Rally's offset table goes beside it.")],
    documents: Annotated[int, typer.Option(min=1, help="Number of documents.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 42,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default one per core.")] = None,
) -> None:
    """Make a synthetic NOAA corpus, the same bytes for the same seed."""
    columns = (TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("documents", total=documents)
        made = corpus.generate(
            output,
            documents=documents,
            seed=seed,
            workers=workers,
            progress=lambda done: bar.update(task, completed=done),
        )
    print(f"{made.path}: {made.documents} documents, {format_bytes(made.bytes)}")


@app.command("clean")
def clean_command() -> int:
    """Remove what killed sessions left behind, and only what is ours; live sessions are left alone."""
    problems: list[str] = []
    for session in clean.abandoned():
        left = clean.take_down(session)
        problems += left
        print(f"{session}: {'not all could be removed' if left else 'removed'}")
    for problem in problems:
        print(f"esrally-ebs: {problem}", file=sys.stderr)
    if not problems:
        print("nothing is left behind")
    return 3 if problems else 0


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise PlanError(f"--set {text}: write KEY=VALUE, for example --set design.rounds=2")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _print_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    if as_json:
        rows = [{"name": c.name, "ok": c.ok, "value": c.value, "text": c.text} for c in checks]
        print(json.dumps(rows, indent=2))
        return
    table = _table("", "check", "found", "how to mend")
    for check in checks:
        mark = "[green]ok[/]" if check.ok else "[bold red]mend[/]"
        table.add_row(mark, check.name, check.value, "" if check.ok else check.text)
    _console().print(table)


def _print_volumes(volumes: Sequence[Volume], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": v.spec.name,
                "type": v.spec.type,
                "kind": v.kind,
                "mount": str(v.mount),
                "device": v.device,
            }
            for v in volumes
        ]
        print(json.dumps(rows, indent=2))
        return
    table = _table("arm", "type", "kind", "size", "device", "mount")
    for volume in volumes:
        size = format_bytes(volume.spec.size_bytes)
        table.add_row(
            volume.spec.name, volume.spec.type, volume.kind, size, volume.device or "", str(volume.mount)
        )
    _console().print(table)


def _table(*titles: str) -> Table:
    """A table whose ids and paths are folded rather than cut."""
    table = Table()
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def _console() -> Console:
    # Into a pipe every row stays on one line, so that grep and cut find ids and paths whole.
    return Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)


def _show(built: report.Report) -> None:
    if sys.stdout.isatty():
        print(report.render_text(built, colour=True, width=min(Console().width, report.WIDTH)), end="")
    else:
        print(report.render_text(built), end="")


def _put(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        output.write_text(text)


def _session_record(summary: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "id": summary.id,
        "kind": summary.kind,
        "state": summary.state,
        "reason": summary.reason,
        "started_at": summary.started_at,
        "ended_at": summary.ended_at,
        "plan": summary.plan,
        "arms": list(summary.arms),
        "emulated": summary.emulated,
        "path": str(summary.path),
    }


def _when(epoch_s: float | None) -> str:
    return "" if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
