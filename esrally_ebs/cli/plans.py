"""The commands that run a plan: ``run`` on devices, ``simulate`` and ``study`` in virtual time."""

from typing import Annotated

import typer

from esrally_ebs import runs, virtual
from esrally_ebs.cli.output import PlanName, Settings, overrides_of
from esrally_ebs.errors import PlanError

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
    simulate: Annotated[bool, typer.Option("--simulate", help="In virtual time.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the studies there are.")] = False,
) -> None:
    """Print every published figure of a study beside ours, with the error."""
    if listed:
        for study, title in virtual.studies():
            print(f"{study}  {title}")
    elif name is None:
        raise PlanError("study: which one? give a name; 'esrally-ebs study --list' shows them")
    elif not simulate:
        raise PlanError(
            f"study {name}: only in virtual time so far; add --simulate, or measure its jobs on devices with"
            f" 'esrally-ebs run {name}'"
        )
    else:
        print(virtual.simulate_study(name))
