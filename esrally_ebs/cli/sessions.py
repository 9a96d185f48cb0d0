"""The commands on recorded sessions: list, report, compare, gate, send elsewhere, fetch of CloudWatch."""

import json
import mimetypes
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from esrally_ebs import report
from esrally_ebs.analysis.gate import parse_limit
from esrally_ebs.aws import cloudwatch
from esrally_ebs.aws.cloudwatch import price_usd
from esrally_ebs.cli.output import Format, Json, Output, SessionName, console, file_in_folder, new_table, put
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.machine.resources import home
from esrally_ebs.model import State
from esrally_ebs.report import gate as gates
from esrally_ebs.report.sessions import comparable, compare_sessions
from esrally_ebs.store import SessionFolder, find_session, list_sessions, load_session
from esrally_ebs.store.encoding import plain
from esrally_ebs.store.session import Session
from esrally_ebs.units import number_of, one_line

app = typer.Typer()


@app.command("sessions")
def sessions_command(
    as_json: Json = False,
    plan: Annotated[str | None, typer.Option(metavar="NAME", help="Only sessions of this plan.")] = None,
    state: Annotated[
        State | None, typer.Option(help="Only sessions in this state.", case_sensitive=False)
    ] = None,
    last: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the newest N of them.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print ids alone, for other commands.")] = False,
) -> None:
    """List the recorded sessions; one whose process was killed is shown as failed."""
    summaries = [s for s in list_sessions(home()) if plan in (None, s.plan) and state in (None, s.state)]
    summaries = summaries[-last:] if last else summaries
    if as_json:
        put(json.dumps([summary.id for summary in summaries] if ids else plain(summaries), indent=2))
        return
    if ids:
        for summary in summaries:
            put(one_line(summary.id))
        return
    if not summaries:
        put(f"no session{' like that' if plan or state else ''} in {home() / 'sessions'}")
        return
    rows = new_table("session", "started", "state", "plan", "arms", "why")
    for summary in summaries:
        kind = " (simulated)" if summary.kind == "simulate" else " (emulated)" if summary.emulated else ""
        arms = ", ".join(summary.arms) + kind
        # where there is no room, the start of an id on one line, which can be copied, and names the session
        name = Text(one_line(summary.id), no_wrap=True, overflow="crop")
        rows.add_row(name, _when(summary.started_at), summary.state, summary.plan, arms, summary.reason)
    console().print(rows)


@app.command("report")
def report_command(
    session: SessionName,
    form: Format = None,
    output: Output = None,
    against: Annotated[
        str | None, typer.Option(metavar="ARM", help="Compare all arms with this one.")
    ] = None,
) -> None:
    """Report on a session from its folder alone, on any machine."""
    form = format_of(form, output)
    recorded = _load(session)
    built = report.build(recorded, against=against)
    if (recorded.path / "trace").is_dir():
        # imported here: most sessions have no trace, and commands on them begin sooner without
        from esrally_ebs.advice.tables import with_access

        built = with_access(built, recorded, SessionFolder(recorded.path).read_trace)
    if output is None or output.parent.resolve() != recorded.path.resolve():
        built = replace(built, raw=())  # a page elsewhere has no files of the session beside it
    give(built, form, output)


@app.command("compare")
def compare_command(
    names: Annotated[
        list[str],
        typer.Argument(metavar="SESSION SESSION...", help="Ids, starts of ids, paths, or 'latest'."),
    ],
    form: Format = None,
    output: Output = None,
) -> None:
    """Compare sessions from the oldest to the newest; exit code 4, and why, if they are not comparable."""
    form = format_of(form, output)
    built = compare_sessions([_load(name) for name in names])
    give(built, form, output)
    if not comparable(built.checks):
        raise MeasurementError(built.verdict)


@app.command("gate")
def gate_command(
    session: SessionName,
    limits: Annotated[
        list[str] | None,
        typer.Option("--max-slowdown", metavar="pNN=X%", help="Limit of p50, p90 or p99; may be repeated."),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the decisions as JUnit XML.", parser=file_in_folder),
    ] = None,
    base: Annotated[str | None, typer.Option(metavar="ARM", help="Compare with this arm.")] = None,
    other: Annotated[str | None, typer.Option(metavar="ARM", help="The arm that must not be slower.")] = None,
) -> int:
    """Decide whether an arm is slower than allowed: exit code 0 pass, 1 fail, 5 inconclusive, 4 invalid."""
    allowed = [parse_limit(text) for text in limits or []]
    recorded = None
    try:
        recorded = _load(session)
        judged = gates.judge_session(recorded, allowed, base=base, other=other)
    except MeasurementError as error:
        if junit is not None:
            put(gates.render_junit_refused(recorded, error), junit)
        raise
    put(gates.render_gate(recorded, judged))
    if junit is not None:
        put(gates.render_junit(recorded, judged), junit)
    return gates.EXIT_CODES[judged.outcome]


@app.command("push")
def push_command(
    session: SessionName,
    configuration: Annotated[
        str | None, typer.Option("--configuration-name", help="Read rally-NAME.ini instead of rally.ini.")
    ] = None,
) -> None:
    """Send a recorded session to Rally's Elasticsearch metrics store; replaces an earlier copy."""
    # imported here: the other commands, above all report, must work where Rally is not installed
    from esrally_ebs.rally.metrics_store import configured_store, send

    recorded = load_session(find_session(home(), session))
    sent = send(recorded, configured_store(configuration))
    put(f"{sent.documents} documents of session {recorded.id} are in {sent.index} at {sent.url}")


@app.command("dashboard")
def dashboard_command(output: Output = None) -> None:
    """Print a Kibana dashboard of the metrics store, to import as saved objects."""
    from esrally_ebs.report.documents import render_dashboard

    put(render_dashboard(), output)


def _load(name: str) -> Session:
    """A session by its name, with the columns that reports use."""
    return load_session(find_session(home(), name), sample_columns=list(report.SAMPLE_COLUMNS))


def format_of(form: str | None, output: Path | None, known: Iterable[str] = report.RENDERERS) -> str:
    """The format named, or implied by the file's name, or text. Raises PlanError for an unknown one."""
    if form is not None:
        if (named := _format_called(form, known)) is None:
            raise PlanError(f"--format {form}: choose one of {', '.join(known)}")
        return named
    if output is None:
        return "text"
    if (implied := _format_called(output.suffix[1:], known)) is not None:
        return implied
    kind, packed = mimetypes.guess_type(output.name)
    if (kind := packed or kind) not in (None, "text/plain"):
        raise PlanError(
            f"--output {output}: nothing is written as {kind}; give --format, one of {', '.join(known)}"
        )
    return "text"


def _format_called(word: str, known: Iterable[str]) -> str | None:
    """The format with this name or ending; None if there is none."""
    word = "html" if word.lower() == "htm" else word.lower()
    return next((name for name in known if word in (name, report.SUFFIX.get(name))), None)


def give(built: report.Report, form: str, output: Path | None) -> None:
    """Print a report, or write it to a file."""
    if form == "text" and output is None and sys.stdout.isatty():
        screen = Console()
        width = min(screen.width, report.WIDTH)
        colour = not screen.is_dumb_terminal  # such as an editor's terminal
        print(report.render_text(built, colour=colour, width=width), end="")  # has escapes of its own
    else:
        put(report.RENDERERS[form](built), output)


def _when(epoch_s: float | None) -> str:
    return "" if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


@app.command("cloudwatch")
def cloudwatch_command(session: SessionName) -> None:
    """Fetch the CloudWatch minutes that a session still lacks; AWS charges a little per metric."""
    folder = SessionFolder.own(find_session(home(), session))
    recorded = load_session(folder.path)
    queries = cloudwatch.queries_of(recorded)
    if not queries:
        put("nothing to ask: no arm of this session was on EBS or EFS")
        return
    new = cloudwatch.collect(folder)
    ended_s = recorded.ended_at or recorded.started_at
    is_late = not new and time.time() - ended_s > cloudwatch.KEPT_DAYS * 86_400
    why = f"; CloudWatch keeps minutes for {cloudwatch.KEPT_DAYS} days" if is_late else ""
    values, metrics = number_of(new, "new value"), number_of(len(queries), "metric")
    put(f"{values} of {metrics}, for {price_usd(queries):.5f} USD{why}")
