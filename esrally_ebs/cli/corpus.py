"""``esrally-ebs corpus``: the documents of the noaa-ebs track."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from esrally_ebs.cli.output import file_named, put
from esrally_ebs.errors import PlanError
from esrally_ebs.units import format_bytes, number_of
from esrally_ebs.workload import corpus

app = typer.Typer(help="Documents of the noaa-ebs track.", no_args_is_help=True)

_TRACK = "noaa-ebs"


@app.command("generate")
def corpus_generate(
    output: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="File to write; Rally's offset table goes beside it.", parser=file_named
        ),
    ],
    documents: Annotated[int, typer.Option(min=1, help="Number of documents.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 42,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default one per core.")] = None,
) -> None:
    """Make a synthetic NOAA corpus, the same bytes for the same seed."""
    columns = (TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # disappears when done: later output, especially an error, stands alone
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("documents", total=documents)
        made = corpus.generate(
            output,
            documents=documents,
            seed=seed,
            workers=workers,
            progress=lambda done: bar.update(task, completed=done),
        )
    put(f"{made.path}: {number_of(made.documents, 'document')}, {format_bytes(made.bytes)}")


@app.command("convert")
def corpus_convert(
    by_year: Annotated[list[Path], typer.Argument(metavar="YEAR.csv[.gz]...", help="Files of by_year/.")],
    stations: Annotated[Path, typer.Option(help="ghcnd-stations.txt")] = Path("ghcnd-stations.txt"),
    countries: Annotated[Path, typer.Option(help="ghcnd-countries.txt")] = Path("ghcnd-countries.txt"),
    states: Annotated[Path, typer.Option(help="ghcnd-states.txt")] = Path("ghcnd-states.txt"),
    output: Annotated[Path | None, typer.Option(help="Directory; default: where Rally looks for it.")] = None,
) -> None:
    """Make a corpus of NOAA's own GHCN-Daily files."""
    # imported here: to generate needs no Rally
    from esrally_ebs.rally.settings import documents_of

    try:
        folder = documents_of(_TRACK) if output is None else output.expanduser()
    except RuntimeError as error:
        raise PlanError(f"--output {output}: {error}; write the whole path") from error
    made = corpus.convert(by_year, folder, stations=stations, countries=countries, states=states)
    put(f"{made.path}: {number_of(made.documents, 'document')}, {format_bytes(made.bytes)}")
    put(f"race with --track-params=documents:{made.documents}")
