"""The machine's commands: ``doctor`` checks it, ``clean`` removes what killed sessions left on it."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated

import typer
from rich.text import Text

from esrally_ebs.checks import requirements
from esrally_ebs.cli.output import Json, complain, console, new_table, put
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.caller import caller
from esrally_ebs.machine.resources import home, run_dir
from esrally_ebs.model import Check
from esrally_ebs.session import clean, host_client
from esrally_ebs.store import running
from esrally_ebs.units import one_line
from esrally_ebs.volumes import backends as volumes

app = typer.Typer()


@app.command("doctor")
def doctor_command(as_json: Json = False) -> int:
    """Check this machine and say how to fix what is missing; exit code 3 if anything is."""
    # imported here: the other commands, above all report, must work where Rally is not installed
    from esrally_ebs.rally.patches import check_signatures

    checks = requirements.check_machine(check_signatures)
    _print_checks(checks, as_json=as_json)
    return 3 if any(check.forbids for check in checks) else 0


@app.command("clean")
def clean_command(
    dead_instances: Annotated[
        bool, typer.Option("--dead-instances", help="Also what instances that no longer exist left on AWS.")
    ] = False,
) -> int:
    """Remove what killed sessions left behind, and nothing else; live sessions are left alone."""
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        _report(text)

    problems = _say_removed(clean.clean())
    try:
        problems += _say_removed(clean.clean_nodes())
    except SetupError as error:
        note(f"the Docker engine was not asked for nodes of killed sessions: {error}")
    for name in running.sessions()[1]:
        note(f"{run_dir() / name}: left alone, it does not carry our marks")
    problems += volumes.sweep_aws(note, dead_instances=dead_instances)
    for line in clean.name_elsewhere():
        note(line)
    for line, is_there in _left_on_hosts():
        (problems.append if is_there else note)(line)
    for problem in problems:
        complain(f"esrally-ebs: {problem}")
    if not problems:
        _report(f"nothing {'else ' if notes else ''}is left behind")
    return 3 if problems else 0


def _left_on_hosts() -> Iterator[tuple[str, bool]]:
    """What data hosts still have of this user's sessions; by sudo, of the caller's, too.

    These come last: SSH gets in there as the caller, which this process becomes for good.
    """
    user = caller()
    last = home(user.home) if user else home()
    if last != home():
        yield from host_client.leftovers(home())
    if user is not None:
        user.become()
    try:
        yield from host_client.leftovers(last)
    except PermissionError as error:
        yield f"data hosts of sessions in {last} were not asked: {error.filename} may not be read", False


def _report(text: str) -> None:
    """Print; if nobody reads any more, as after ``grep -q``, or into a full disk, all else shall still go.

    The end of the command reports it.
    """
    with suppress(OSError):
        put(one_line(text))


def _say_removed(taken_down: Iterable[tuple[str, list[str]]]) -> list[str]:
    """Print what was removed; returns what could not be."""
    problems: list[str] = []
    for session, left in taken_down:
        problems += left
        _report(f"{session}: {'not all could be removed' if left else 'removed'}")
    return problems


def _print_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    if as_json:
        records = [
            {"name": c.name, "ok": c.ok, "value": c.value, "text": c.text, "severity": c.severity}
            for c in checks
        ]
        put(json.dumps(records, indent=2))
        return
    rows = new_table("", "check", "found", "how to mend")
    for check in checks:
        style = "green" if check.ok else "bold red" if check.forbids else "yellow"
        mark = "ok" if check.ok else "mend" if check.forbids else check.mark
        rows.add_row(Text(mark, style=style), check.name, check.value, "" if check.ok else check.text)
    console().print(rows)
