"""The ``esrally-ebs`` command: translates words into one typed call each, prints, and sets the exit code."""

import sys
from collections.abc import Sequence

import typer

from esrally_ebs.cli import aws, corpus, machine, plans, sessions, volumes
from esrally_ebs.errors import EbsError

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and prints every error of ours as one line."""
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
        print(f"esrally-ebs: {what}; see 'esrally-ebs --help'", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0
