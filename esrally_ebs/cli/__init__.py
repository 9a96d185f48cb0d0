"""The ``esrally-ebs`` command: translates words into one typed call each, prints, and sets the exit code."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from esrally_ebs.cli import aws, corpus, machine, plans, sessions, volumes
from esrally_ebs.errors import EbsError, SetupError

app = typer.Typer(
    help="Compare the volumes under Elasticsearch: sessions, volumes and reports beside 'esrally race'.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for commands in (machine.app, plans.app, sessions.app, aws.app):
    app.add_typer(commands)
app.add_typer(volumes.app, name="volumes")
app.add_typer(corpus.app, name="corpus")

# What is raised for anything typed wrong: ClickException, which newer versions of typer keep to themselves.
_MISUSE = typer.BadParameter.__mro__[2]

_HUNG_UP = 141  # as a shell says of a process that ended because nobody reads its pipe any more


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and prints every error of ours as one line."""
    _take_any_text()
    try:
        code = _run(argv)
        sys.stdout.flush()  # here, where a full disk or a closed pipe can still be told
    except BrokenPipeError:
        return _hang_up()
    except SystemExit as end:  # how typer and rich answer a closed pipe; their 1 would be a failed gate
        if isinstance(end.__context__, BrokenPipeError):
            return _hang_up()
        raise
    except OSError as error:
        where = error.filename or "what was read or written"
        next_step = "see that it can be read and written, and has room"
        print(f"esrally-ebs: {where}: {error.strerror or error}; {next_step}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:  # that was it
            _hang_up()
        return SetupError.exit_code
    return code


def _take_any_text() -> None:
    """Let nothing that is printed fail: not for the terminal's encoding, not because nobody listens."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started us
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - to the end of the process
        else:
            stream.reconfigure(errors="replace")


def _hang_up() -> int:
    """Send what is still to be printed nowhere, so that Python does not complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return _HUNG_UP


def _run(argv: Sequence[str] | None) -> int:
    try:
        code = app(
            args=list(argv) if argv is not None else None, standalone_mode=False, prog_name="esrally-ebs"
        )
    except EbsError as error:
        print(f"esrally-ebs: {error}", file=sys.stderr)
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        print("esrally-ebs: cancelled", file=sys.stderr)
        return 130
    except Exception as error:
        if not isinstance(error, _MISUSE):
            raise
        what = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        if what:  # a command without words says nothing, it has shown its help
            print(f"esrally-ebs: {what}; see 'esrally-ebs --help'", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0
