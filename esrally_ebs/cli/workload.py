"""``esrally-ebs workload``: your own queries."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from esrally_ebs.cli.output import put
from esrally_ebs.workload import queries

app = typer.Typer(help="Your own queries as a Rally track.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Your own queries as a Rally track."""


@app.command("import")
def workload_import(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Query logs of one format; gzip too.")],
    output: Annotated[Path, typer.Option(help="Directory to make; must not exist, or be empty.")],
    format_: Annotated[
        str, typer.Option("--format", help=f"auto, or one of {', '.join(queries.FORMATS)}.")
    ] = "auto",
    index: Annotated[
        str | None,
        typer.Option(
            help="Take only requests to these indices (a,b), and send them only there; '*' is any text."
        ),
    ] = None,
    hash_literals: Annotated[
        bool, typer.Option("--hash-literals", help="Hash strings; equal ones get equal hashes.")
    ] = False,
    without_modules: Annotated[
        bool,
        typer.Option(
            "--without-modules",
            help="Leave out scripts and all else that needs modules, which the image built here lacks.",
        ),
    ] = False,
) -> None:
    """Make a Rally track from query logs: the same requests, grouped into templates."""
    options = queries.Options(
        format=format_, index=index, hash_literals=hash_literals, modules=not without_modules
    )
    put(queries.import_logs(logs, output, options).text())
    put(
        "race it on a stopped node's data directory: "
        f"esrally race --track-path={shlex.quote(str(output))} --track-params=data:/var/lib/elasticsearch"
    )
