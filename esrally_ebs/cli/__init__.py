"""The ``esrally-ebs`` command: translates words into one typed call each, prints, and sets the exit code."""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

import esrally_ebs
from esrally_ebs.cli.output import complain, put
from esrally_ebs.errors import EbsError, MeasurementError, SetupError
from esrally_ebs.machine.processes import be_called, close_to_others, end_as_by_interrupt

# The words of each module, and their lines of the help, which so needs none of the modules.
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
        "usage": "Replay the log of a volume on every setting,"
        " and say how long limits would have been reached.",
        "trace": "Record the I/Os of a mount on any Linux machine, read-only,"
        " and say which settings would serve them.",
    },
    "volumes": {"volumes": "Attach, show and detach the arms of a plan by hand."},
    "corpus": {"corpus": "Documents of the noaa-ebs track."},
    "workload": {"workload": "Your own queries as a Rally track."},
}
_NAMED = ("volumes", "corpus", "workload")  # modules whose name is a word before their commands
_COMPLETION = "_ESRALLY_EBS_COMPLETE"  # set by a shell that asks what may come next, options too


def app_of(words: Sequence[str] | None = None) -> typer.Typer:
    """The commands: all without ``words``, else of the first word's module, since to load all takes seconds.

    Where the first word is no command, none can run: their names and lines are enough for help and errors.
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


# What is raised for anything typed wrong: ClickException, which newer versions of typer keep to themselves.
_MISUSE = typer.BadParameter.__mro__[2]

# Under sudo: commands that stay root's, and those of which no step needs root; of all others some may.
_AS_ROOT = {"volumes", "clean", "doctor", "trace"}
_WITHOUT_ROOT = {
    *("simulate", "sessions", "report", "compare", "gate", "push", "dashboard", "usage", "cloudwatch"),
    *("corpus", "workload", ""),
}

TRACEBACK = "ESRALLY_EBS_TRACEBACK"  # when set, an error that nobody foresaw is printed with its traceback
# Raised by what was read; any other unforeseen error is laid to the machine.
_OF_DATA = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError, MemoryError)
_CANCELLED = 130
_HUNG_UP = 141  # as a shell says of a process that ended because nobody reads its pipe any more


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and prints every EbsError as one line."""
    _take_any_text()
    if argv is None:
        close_to_others()
        _be_who_called(sys.argv[1:])
        _end_in_order(sys.argv[1:])
    # To Rally, a Python process with "esrally" in its command line is another Rally; it refuses to race then.
    be_called(" ".join(["ebs", *(sys.argv[1:] if argv is None else argv)[:2]]))
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
        if isinstance(error, PermissionError):
            next_step = "run it as its owner or as root"
        complain(f"esrally-ebs: {where}: {error.strerror or error}; {next_step}")
        try:
            sys.stdout.flush()
        except OSError:  # that was it
            _hang_up()
        return SetupError.exit_code
    return code


def _cancelled() -> int:
    complain("esrally-ebs: cancelled")
    return _CANCELLED


def _command_of(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _be_who_called(words: Sequence[str]) -> None:
    """Under sudo, go on as the calling user where root is needed for some steps only, or for nothing."""
    if not os.environ.get("SUDO_UID"):
        return
    try:
        from esrally_ebs.session.keeper import go_on_as_caller  # its imports take most of a second
    except KeyboardInterrupt:
        raise SystemExit(_cancelled()) from None
    command = _command_of(words)
    reads_alone = command == "trace" and any(word.partition("=")[0] == "--from" for word in words)
    if reads_alone or command not in _AS_ROOT:
        go_on_as_caller(sys.orig_argv[1:], needs_root=not reads_alone and command not in _WITHOUT_ROOT)


def _end_in_order(words: Sequence[str]) -> None:
    """Have a command without a reaper remove what it has not finished, whichever signal ends it."""
    if _command_of(words) in _AS_ROOT | _WITHOUT_ROOT:
        end_as_by_interrupt()


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
        words = list(sys.argv[1:] if argv is None else argv)
        app = app_of(None if os.environ.get(_COMPLETION) else words)
        code = app(args=words, standalone_mode=False, prog_name="esrally-ebs")
    except EbsError as error:
        complain(f"esrally-ebs: {error}")
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _cancelled()
    except OSError:
        raise  # main names the file
    except Exception as error:  # noqa: BLE001 - the last resort
        if not isinstance(error, _MISUSE):
            return _unforeseen(error)
        what = error.format_message().rstrip(".").replace("Value error, ", "")  # type: ignore[attr-defined]
        command = error.ctx.command_path if error.ctx else "esrally-ebs"  # type: ignore[attr-defined]
        if what:  # a command without words says nothing, it has shown its help
            complain(f"esrally-ebs: {what}; see '{command} --help'")
        return 2
    if code == _CANCELLED:  # typer makes it of KeyboardInterrupt, and says nothing
        return _cancelled()
    return code if isinstance(code, int) else 0


def _unforeseen(error: Exception) -> int:
    """One line for an error that is no EbsError. Its exit code is never 1, which means that a gate failed."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:200]
    where = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"
    next_step = f"a fault of the pack or of what it read: report it with the output of {TRACEBACK}=1"
    complain(f"esrally-ebs: {where}: {text}; {next_step}")
    return MeasurementError.exit_code if isinstance(error, _OF_DATA) else SetupError.exit_code
