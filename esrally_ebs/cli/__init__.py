"""The ``esrally-ebs`` command: translates words into one typed call each, prints, and sets the exit code."""

import sys
from collections.abc import Sequence

import click
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
