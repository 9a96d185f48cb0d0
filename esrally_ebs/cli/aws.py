"""The commands that only ask AWS: ``cloudwatch`` fetches what it recorded of a session's arms."""

import typer

from esrally_ebs.aws import session_telemetry as aws_telemetry
from esrally_ebs.aws.cloudwatch import price_usd
from esrally_ebs.cli.output import SessionName, put
from esrally_ebs.machine.resources import home
from esrally_ebs.store import SessionFolder, find_session, load_session

app = typer.Typer()


@app.command("cloudwatch")
def cloudwatch_command(session: SessionName) -> None:
    """Fetch CloudWatch's minutes of a session that it has not yet; each metric asked for costs a little."""
    folder = SessionFolder.own(find_session(home(), session))
    queries = aws_telemetry.queries_of(load_session(folder.path))
    if not queries:
        put("nothing to ask: no arm of this session was on EBS or EFS")
        return
    new = aws_telemetry.collect(folder)
    put(f"{new} new values of {len(queries)} metrics, for {price_usd(queries):.5f} USD")
