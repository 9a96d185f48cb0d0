"""The ``esrally-ebs`` command: translates words into one typed call each, prints, and sets the exit code."""

import errno
import itertools
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

import esrally_ebs
from esrally_ebs.cli.output import complain, discard, put
from esrally_ebs.errors import EbsError, MeasurementError, PlanError, SetupError
from esrally_ebs.machine.processes import be_called, close_to_others, end_as_by_interrupt

# Each module's words, and their lines of the help, which thus needs none of the modules.
_COMMANDS = {
    "machine": {
        "doctor": "Check this machine and say how to fix what is missing; exit code 3 if anything is.",
        "clean": "Remove what killed sessions left behind, and nothing else; live sessions are left alone.",
    },
    "plans": {
        "run": "Run a session: a plan with a race table calls Rally, one without it runs fio alone.",
        "knee": "Find the highest rate of queries at which each arm keeps a bound on latency.",
        "race": "Race any Rally track on the arms of a plan; all other options are those of 'esrally race'.",
        "simulate": "Run the fio jobs of a plan in virtual time,"
        " from the volume models alone; no root, no engine.",
        "study": "Print every published figure of a study beside ours,"
        " with the error; also as tables and plots.",
    },
    "sessions": {
        "sessions": "List the recorded sessions; one whose process was killed is shown as failed.",
        "report": "Report on a session from its folder alone, on any machine.",
        "compare": "Compare sessions from the oldest to the newest;"
        " exit code 4, and why, if they are not comparable.",
        "gate": "Decide whether an arm is slower than allowed:"
        " exit code 0 pass, 1 fail, 5 inconclusive, 4 invalid.",
        "push": "Send a recorded session to Rally's Elasticsearch metrics store; replaces an earlier copy.",
        "dashboard": "Print a Kibana dashboard of the metrics store, to import as saved objects.",
        "cloudwatch": "Fetch the CloudWatch minutes that a session still lacks;"
        " AWS charges a little per metric.",
    },
    "advice": {
        "advise": "Name the cheapest volume where recorded requests keep a bound;"
        " exit code 1: none, 5: measure first.",
    },
    "usage": {
        "usage": "Replay the log of a volume on every setting,"
        " and say how long limits would have been reached.",
        "trace": "Record the I/Os of a mount on any Linux machine, read-only,"
        " and say which settings would serve them.",
    },
    "volumes": {"volumes": "Attach, show and detach the arms of a plan by hand."},
    "corpus": {"corpus": "Documents of the noaa-ebs track."},
    "workload": {"workload": "Your own queries as a Rally track."},
}
_NAMED = ("volumes", "corpus", "workload")  # modules with a word before their commands
_COMPLETION = "_ESRALLY_EBS_COMPLETE"  # set by a shell that asks for completions, including options


def app_of(words: Sequence[str] | None = None) -> typer.Typer:
    """The app with all commands, or with those of the first word's module: loading all takes seconds.

    If the first word is no command, none will run: names and help lines are enough for help and errors.
    """
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_group)
    first = next((word for word in words or () if word != "--"), "")
    modules = [name for name, lines in _COMMANDS.items() if words is None or first in lines]
    for name in modules:
        commands = import_module(f"esrally_ebs.cli.{name}").app
        app.add_typer(commands, name=name if name in _NAMED else None)
    for lines in () if modules else _COMMANDS.values():
        for word, text in lines.items():
            app.command(word, help=text)(lambda: None)
    return app


def _group(
    version: Annotated[bool, typer.Option("--version", help="Print the release and end.")] = False,
) -> None:
    """Compare the volumes under Elasticsearch: sessions, volumes and reports beside 'esrally race'."""
    if version:
        put(f"esrally-ebs {esrally_ebs.__version__}")
        raise typer.Exit


# The error for mistyped commands: ClickException, which newer versions of typer do not export.
_MISUSE = typer.BadParameter.__mro__[2]

# Under sudo: commands that stay root's, and those that never need root; all others may need it.
_AS_ROOT = {"volumes", "clean", "doctor", "trace"}
_WITHOUT_ROOT = {
    *("simulate", "sessions", "report", "compare", "gate", "push", "dashboard", "usage", "cloudwatch"),
    *("corpus", "workload", ""),
}

TRACEBACK = "ESRALLY_EBS_TRACEBACK"  # if set, unforeseen errors are printed with their traceback
# Caused by data that was read; any other unforeseen error counts as the machine's.
_OF_DATA = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, MemoryError)
_CANCELLED = 130
_HUNG_UP = 141  # as in shells, for a process whose pipe nobody reads any more


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Prints every EbsError as one line."""
    _take_any_text()
    if argv is None:
        close_to_others()
        _be_who_called(sys.argv[1:])
        _end_in_order(sys.argv[1:])
    # Rally takes a Python process with "esrally" in its command line for another Rally, and refuses to race.
    be_called(" ".join(["ebs", *(sys.argv[1:] if argv is None else argv)[:2]]))
    try:
        code = _run(argv)
        sys.stdout.flush()  # here, where a full disk or a closed pipe can still be reported
    except BrokenPipeError:
        return _hang_up()
    except SystemExit as end:  # typer's and rich's answer to a closed pipe; their 1 would be a failed gate
        if isinstance(end.__context__, BrokenPipeError):
            return _hang_up()
        raise
    except OSError as error:
        is_full = error.errno == errno.ENOSPC  # those who write files name them
        where = error.filename or ("stdout" if is_full else "what was read or written")
        next_step = "see that it can be read and written, and has room"
        if isinstance(error, PermissionError):
            next_step = "run it as its owner or as root"
        complain(f"esrally-ebs: {where}: {error.strerror or error}; {next_step}")
        try:
            sys.stdout.flush()
        except OSError:  # a closed pipe
            _hang_up()
        return SetupError.exit_code
    return code


def _cancelled() -> int:
    complain("esrally-ebs: cancelled")
    return _CANCELLED


def _command_of(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _named_by(words: Sequence[str]) -> str:
    """The command that the words name, as its own help writes it."""
    names = itertools.takewhile(lambda word: not word.startswith("-"), words)
    return " ".join(["esrally-ebs", *names][: 3 if words[0] in _NAMED else 2])


def _be_who_called(words: Sequence[str]) -> None:
    """Under sudo, continue as the calling user if only some steps, or none, need root."""
    if not os.environ.get("SUDO_UID"):
        return
    try:
        from esrally_ebs.session.keeper import go_on_as_caller  # imported here: it takes most of a second
    except KeyboardInterrupt:
        raise SystemExit(_cancelled()) from None
    command = _command_of(words)
    reads_alone = command == "trace" and any(word.partition("=")[0] == "--from" for word in words)
    if reads_alone or command not in _AS_ROOT:
        go_on_as_caller(sys.orig_argv[1:], needs_root=not reads_alone and command not in _WITHOUT_ROOT)


def _end_in_order(words: Sequence[str]) -> None:
    """Have a command without a reaper remove unfinished work, whichever signal ends it."""
    if _command_of(words) in _AS_ROOT | _WITHOUT_ROOT:
        end_as_by_interrupt()


def _take_any_text() -> None:
    """Prevent printing from failing, for the terminal's encoding, or for want of a reader or of columns."""
    if not os.environ.get("COLUMNS", "80").strip("0"):  # the width of a terminal that has no size: rich obeys
        del os.environ["COLUMNS"]
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - to the end of the process
        else:
            stream.reconfigure(errors="replace")


def _hang_up() -> int:
    discard(sys.stdout)
    return _HUNG_UP


def _run(argv: Sequence[str] | None) -> int:
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        _refuse_empty_values(words)
        app = app_of(None if os.environ.get(_COMPLETION) else words)
        code = app(args=words, standalone_mode=False, prog_name="esrally-ebs")
    except EbsError as error:
        complain(f"esrally-ebs: {error}")
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _cancelled()
    except OSError:
        raise  # main reports the file
    except Exception as error:  # noqa: BLE001 - the last resort
        if not isinstance(error, _MISUSE):
            return _unforeseen(error)
        what = error.format_message().rstrip(".").replace("Value error, ", "")  # type: ignore[attr-defined]
        context = error.ctx  # type: ignore[attr-defined]  # None for an option without its value
        command = context.command_path if context else _named_by(words)
        if what:  # a command without words prints its help only
            complain(f"esrally-ebs: {what}; see '{command} --help'")
        return 2
    if code == _CANCELLED:  # typer converts KeyboardInterrupt to this, without a message
        return _cancelled()
    return code if isinstance(code, int) else 0


def _refuse_empty_values(words: Sequence[str]) -> None:
    """Raise PlanError for an option with an empty value, unless it may be one of Rally's."""
    for before, word in itertools.pairwise(["", *words]):
        option = word[:-1] if word.endswith("=") else "" if word else before
        if re.fullmatch("--[a-z-]+", option) and _command_of(words) != "race":
            raise PlanError(f"{option} '': an empty value; is a variable of your shell not set?")


def _unforeseen(error: Exception) -> int:
    """One line for an unforeseen error. Its exit code is never 1, which means a failed gate."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:200]
    where = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"
    next_step = f"a fault of the pack or of what it read: report it with the output of {TRACEBACK}=1"
    complain(f"esrally-ebs: {where}: {text}; {next_step}")
    return MeasurementError.exit_code if isinstance(error, _OF_DATA) else SetupError.exit_code
