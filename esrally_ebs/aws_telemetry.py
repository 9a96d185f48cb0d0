"""After a session: what CloudWatch recorded of its arms meanwhile, kept with the session's own telemetry.

Never part of the race, and never a reason for a session to fail: what CloudWatch does not give in time can be
fetched later ('esrally-ebs cloudwatch'). Its minutes come with some minutes' delay.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from esrally_ebs.aws.cloudwatch import Query, Subject, fetch, price_usd, queries
from esrally_ebs.aws.redaction import redacted
from esrally_ebs.aws.survey import MakeApi, connect
from esrally_ebs.errors import EbsError
from esrally_ebs.model import Event, TelemetryPoint
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.session import Session

_PATIENCE_S = 30.0
_LATER = "'esrally-ebs cloudwatch' fetches them later"


def collect_in_time(folder: SessionFolder, *, patience_s: float = _PATIENCE_S) -> None:
    """``collect`` for at most ``patience_s``; what goes wrong becomes a warning of the session."""
    problems: list[str] = []

    def work() -> None:
        try:
            collect(folder)
        except Exception as error:  # noqa: BLE001 - a thread has no caller: the session has the warning
            problems.append(_missing(error))

    try:
        if not asked_of(load_session(folder.path)):
            return
    except Exception as error:  # noqa: BLE001 - the session has been measured, whatever this is
        folder.add_warning(_missing(error))
        return
    thread = threading.Thread(target=work, name="ebs-cloudwatch", daemon=True)
    thread.start()
    thread.join(patience_s)
    if thread.is_alive():
        problems.append(f"CloudWatch's minutes are missing: no answer within {patience_s:.0f} s; {_LATER}")
    for problem in problems:
        folder.add_warning(problem)


def _missing(error: Exception) -> str:
    told = " ".join(str(error).split()) if isinstance(error, EbsError) else redacted(repr(error))
    return f"CloudWatch's minutes are missing: {told}; {_LATER}"


def collect(folder: SessionFolder, *, make_api: MakeApi = connect) -> int:
    """Fetch the minutes of the session's window that it has not yet; how many values were new.

    Raises AwsError or SetupError when AWS does not answer.
    """
    session = load_session(folder.path)
    asked = asked_of(session)
    if not asked:
        return 0
    instance = _aws(session).get("instance") or {}
    api = make_api(instance.get("region"), lambda action: None)
    points = fetch(api, asked, session.started_at, session.ended_at or time.time())
    held = _held(session)
    new = [point for point in points if (point.arm, point.device, point.metric, point.at_s) not in held]
    with folder.part_writer("telemetry") as writer:
        writer.add(new)
    folder.compact()
    folder.event(Event(at_s=time.time(), kind="cloudwatch", fields=_summary(asked, points)))
    return len(new)


def asked_of(session: Session) -> list[Query]:
    """What there is to ask CloudWatch about a session; nothing for one that was not on AWS."""
    found = _aws(session)
    subjects = [
        Subject(arm=name, volume_ids=tuple(arm["volume_ids"]), file_system_id=arm["file_system_id"])
        for name, arm in found.get("arms", {}).items()
    ]
    return queries(subjects, (found.get("instance") or {}).get("instance_id", ""))


def _aws(session: Session) -> Mapping[str, Any]:
    found: Mapping[str, Any] = session.environment.get("aws") or {}
    return found


def _held(session: Session) -> set[tuple[str, str, str, float]]:
    own = session.telemetry.filter(pc.starts_with(session.telemetry["metric"].cast("string"), "cloudwatch."))
    rows = own.select(["arm", "device", "metric", "at_s"]).to_pylist()
    return {(row["arm"], row["device"], row["metric"], row["at_s"]) for row in rows}


def _summary(asked: list[Query], points: list[TelemetryPoint]) -> dict[str, Any]:
    return {
        "metrics": len(asked),
        "values": len(points),
        "until_s": max((point.at_s for point in points), default=None),
        "usd": price_usd(asked),
    }
