"""Printing for all commands: a console that keeps rows whole in a pipe, tables that fold, files."""

import errno
import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.units import one_line, printable

_PIPE_WIDTH = 10_000  # columns of a table that no terminal shows
_STANDARD = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})")  # of this process


def file_named(text: str) -> Path:
    """The path of a file to write. Raises PlanError for a folder's, also by the slash that a Path lacks."""
    path = Path(text)
    if text.endswith("/") or path.is_dir():
        raise PlanError(f"{text}: is the path of a folder; name a file in it")
    return path


def file_in_folder(text: str) -> Path:
    """Like ``file_named``; PlanError also for a folder that is not there, before anything is worked out."""
    path = file_named(text)
    if not path.parent.is_dir():
        raise PlanError(f"{text}: there is no folder {path.parent}; make it first")
    return path


def file_or_stdout(path: Path | None) -> Path | None:
    """The file; None (stdout) for ``-``."""
    return None if path == Path("-") else path


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PlanName = Annotated[str, typer.Argument(metavar="PLAN", help="A plan's path, or its name in pipelines/.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the plan.")
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="text, markdown, csv, json or html.", show_default="by --output, or text"),
]
Output = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write to this file instead of stdout.",
        parser=file_in_folder,
        callback=file_or_stdout,
    ),
]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="An id, the start of one, a path, or 'latest'.")
]


def new_table(*titles: str) -> Table:
    """A table that folds ids and paths instead of cutting them."""
    table = Table()
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


class _Printable(Console):
    """A console that shows escapes in recorded names instead of obeying them."""

    def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401 - rich's
        return super().render_str(one_line(text), **how)


def console() -> Console:
    # In a pipe every row stays on one line, so that grep and cut find whole ids and paths. Texts are printed
    # as they are: "[[baseline]]" in a session's reason is no markup, and ":key:" in a path no emoji.
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return _Printable(width=width, markup=False, emoji=False)


def complain(text: str) -> None:
    """Print an error, or a command's progress: one line on stderr. Where nobody can read it, go on."""
    try:
        print(one_line(text), file=sys.stderr, flush=True)
    except OSError:  # no reader, or no room
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Print what a stream still holds, and all that follows, nowhere: Python would fail for it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def put(text: str, output: Path | None = None) -> None:
    """Print (also where ``output`` is ``-``), or write a whole file.

    Raises PlanError for a name that no file can have, BrokenPipeError for a pipe without a reader, SetupError
    if anything else fails.
    """
    if output in (None, Path("-")):
        # at once: into a pipe, too, a long command says how far it is
        print(printable(text), end="" if text.endswith("\n") else "\n", flush=True)
        return
    content = text.encode("utf-8", "replace")
    try:
        if match := _DESCRIPTOR.fullmatch(_STANDARD.get(str(output), str(output))):
            # what it leads to may be a file that others write to as well: the log of a job in CI
            with os.fdopen(os.dup(int(match[1])), "wb") as file:
                file.write(content)
        elif (place := _replaced_by(output)) is None:
            output.write_bytes(content)
        else:
            _write_whole(place, content)
    except BrokenPipeError:  # as of stdout without a name: the reader has seen enough
        raise
    except OSError as error:
        is_misnamed = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError)
        kind = PlanError if is_misnamed else SetupError
        where = "in a directory that is there" if is_misnamed else "elsewhere"
        raise kind(f"{output}: {error.strerror}; name a file {where}") from error


def _write_whole(path: Path, content: bytes) -> None:
    """In the place of the file, with its mode; into it where that cannot be, as where it is mounted."""
    # imported here: with its package come plans and tables of sessions, which most commands print without
    from esrally_ebs.store.files import aside

    try:
        with aside(path) as file:
            file.write(content)
            if (mode := _own_mode(path)) is not None:
                os.fchmod(file.fileno(), mode)
    except OSError as error:
        is_mounted = error.errno in (errno.EBUSY, errno.EROFS) and path.is_file()
        is_own = isinstance(error, PermissionError) and _own_mode(path) is not None
        if not (is_mounted or is_own):
            raise
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "wb") as file:
            file.write(content)


def _own_mode(path: Path) -> int | None:
    """Who may read and write a file of this user's; None for what is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    return stat.S_IMODE(status.st_mode) if is_own else None


def _replaced_by(output: Path) -> Path | None:
    """The file to be replaced; None for a pipe, device or directory, which is opened as it is.

    Checked only once. A link or pipe that another user has put into somebody else's directory, such as /tmp,
    is not followed, nor is anything that appears after the check.
    """
    try:
        status = output.lstat()
    except FileNotFoundError:
        return output
    is_link = stat.S_ISLNK(status.st_mode)
    is_trusted = status.st_uid in (os.geteuid(), output.parent.stat().st_uid)
    if stat.S_ISREG(status.st_mode) or ((is_link or stat.S_ISFIFO(status.st_mode)) and not is_trusted):
        return output
    if is_link and (output.is_file() or not output.exists()):
        return Path(os.path.realpath(output))  # resolves links, even circular ones
    return None


def overrides_of(settings: list[str] | None) -> dict[str, Any]:
    """Values of ``--set``: JSON if valid, else text. Raises PlanError for one without ``=``."""
    return dict(_setting(text) for text in settings or ())


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise PlanError(f"--set {text}: write KEY=VALUE, for example --set design.rounds=2")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):  # RecursionError: thousands of brackets
        return key, value
