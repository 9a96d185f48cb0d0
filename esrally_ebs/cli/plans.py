"""The commands that run a plan: ``run`` on devices, ``simulate`` in virtual time, ``study`` in either."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from esrally_ebs import published, runs, studies, virtual
from esrally_ebs.cli.output import PlanName, Settings, overrides_of, put
from esrally_ebs.cost import price_list
from esrally_ebs.errors import PlanError
from esrally_ebs.resources import home
from esrally_ebs.store import find_session, load_session

app = typer.Typer()


@app.command("run")
def run_command(
    plan: PlanName,
    settings: Settings = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="Measure although this check forbids it.")
    ] = None,
) -> int:
    """Run a session: a plan with a race table calls Rally, one without needs no Elasticsearch."""
    overrides = overrides_of(settings) | ({"accept": accept} if accept else {})
    return runs.run_plan(plan, overrides, say=print)


@app.command("simulate")
def simulate_command(
    plan: PlanName,
    settings: Settings = None,
) -> None:
    """Run the fio jobs of a plan in virtual time, from the volume models alone; no root, no engine."""
    overrides = overrides_of(settings)
    print(virtual.simulate_plan(plan, overrides, say=print))


@app.command("study")
def study_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of 'study --list'.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="In virtual time: no root, no device.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the studies there are.")] = False,
    form: Annotated[str, typer.Option("--format", help="text, markdown, json or csv.")] = "text",
    output: Annotated[
        Path | None, typer.Option(help="Write to this file; .html is a page with plots, .svg the plots.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="nikkei-2021: a recorded race to show beside the published one.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Your price list; goes before ours.")] = None,
    repeats: Annotated[int, typer.Option("--runs", min=1, help="On devices: runs of every job.")] = 1,
) -> None:
    """Print every published figure of a study beside ours, with the error; tables and plots with it."""
    if listed:
        for study in studies.names():
            print(f"{study}  {studies.read_study(study).title}")
        return
    if name is None:
        raise PlanError("study: which one? give a name; 'esrally-ebs study --list' shows them")
    if form not in published.RENDERERS:
        raise PlanError(f"--format {form}: choose one of {', '.join(published.RENDERERS)}")
    _require_place(output)  # before hours of measuring
    studies.read_study(name)
    recorded = None if session is None else load_session(find_session(home(), session))
    runner = studies.VirtualRunner() if simulate else studies.DeviceRunner(repeats, say=_progress)
    listed_prices = price_list(None if prices is None else str(prices))
    result = studies.run_study(name, runner, listed_prices, session=recorded)
    pages = {".html": published.page, ".svg": published.drawing}
    render = pages.get("" if output is None else output.suffix, published.RENDERERS[form])
    put(render(result), output)


def _require_place(output: Path | None) -> None:
    if output is not None and not output.parent.is_dir():
        raise PlanError(f"--output {output}: there is no folder {output.parent}; make it first")
    if output is not None and output.is_dir():
        raise PlanError(f"--output {output}: is a folder; name a file")


def _progress(text: str) -> None:
    print(text, file=sys.stderr)
