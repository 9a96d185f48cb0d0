"""After a session: what CloudWatch recorded of its arms meanwhile, kept with the session's own telemetry.

Never part of the race, and never a reason for a session to fail: what CloudWatch does not give in time can be
fetched later ('esrally-ebs cloudwatch'). Its minutes come with some minutes' delay.
"""

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from esrally_ebs.aws.cloudwatch import Query, Subject, fetch, price_usd, queries
from esrally_ebs.aws.redaction import redacted
from esrally_ebs.aws.survey import MakeApi, connect
from esrally_ebs.errors import EbsError
from esrally_ebs.model import Event, TelemetryPoint
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.reading import read_record
from esrally_ebs.store.session import Session

PATIENCE_S = 30.0
_MISSING = "CloudWatch's minutes are missing: "
_LATER = "'esrally-ebs cloudwatch' fetches them later"


def collect_in_time(folder: SessionFolder, *, patience_s: float = PATIENCE_S) -> None:
    """``collect`` for at most ``patience_s``; what goes wrong becomes a warning of the session."""
    try:
        session = load_session(folder.path)
        wanted = queries_of(session)
        if wanted:
            _keep(folder, session, wanted, _ask_in_time(session, wanted, patience_s))
    except queue.Empty:
        folder.add_warning(_missing(f"no answer within {patience_s:g} s"))
    except Exception as error:  # noqa: BLE001 - the session has been measured, whatever this is
        why = " ".join(str(error).split()) if isinstance(error, EbsError) else redacted(repr(error))
        folder.add_warning(_missing(why))


def _missing(why: str) -> str:
    return f"{_MISSING}{why}; {_LATER}"


def _ask_in_time(session: Session, wanted: Sequence[Query], patience_s: float) -> list[TelemetryPoint]:
    """What CloudWatch answers; whatever asking raises, or queue.Empty when it takes longer than that.

    A thread asks, since no time limit of the SDK's bounds a whole call: an answer may come byte by byte. It
    only asks. What comes too late is dropped with it, so nobody writes to a session that has been concluded,
    and the process need not wait for it.
    """
    answers: queue.SimpleQueue[list[TelemetryPoint] | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(_ask(session, wanted, connect))
        except Exception as error:  # noqa: BLE001 - a thread has no caller: whoever waits has it
            answers.put(error)

    threading.Thread(target=work, name="ebs-cloudwatch", daemon=True).start()
    answer = answers.get(timeout=patience_s)
    if isinstance(answer, Exception):
        raise answer
    return answer


def collect(folder: SessionFolder, *, make_api: MakeApi = connect) -> int:
    """Fetch the minutes of the session's window that it has not yet; how many values were new.

    Raises AwsError or SetupError when AWS does not answer.
    """
    session = load_session(folder.path)
    wanted = queries_of(session)
    return _keep(folder, session, wanted, _ask(session, wanted, make_api)) if wanted else 0


def _ask(session: Session, wanted: Sequence[Query], make_api: MakeApi) -> list[TelemetryPoint]:
    instance = _aws(session).get("instance") or {}
    api = make_api(instance.get("region"), lambda action: None)
    return fetch(api, wanted, session.started_at, session.ended_at or time.time())


def _keep(
    folder: SessionFolder, session: Session, wanted: Sequence[Query], points: Sequence[TelemetryPoint]
) -> int:
    kept = _kept(session)
    new = [point for point in points if (point.arm, point.device, point.metric, point.at_s) not in kept]
    with folder.part_writer("telemetry") as writer:
        writer.add(new)
    folder.compact()
    folder.event(Event(at_s=time.time(), kind="cloudwatch", fields=_summary(wanted, points)))
    warnings = read_record(folder.path).warnings
    if points and any(text.startswith(_MISSING) for text in warnings):
        folder.update(warnings=[text for text in warnings if not text.startswith(_MISSING)])
    return len(new)


def queries_of(session: Session) -> list[Query]:
    """What there is to ask CloudWatch about a session; nothing for one that was not on AWS."""
    aws = _aws(session)
    subjects = [
        Subject(arm=name, volume_ids=tuple(arm["volume_ids"]), file_system_id=arm["file_system_id"])
        for name, arm in aws.get("arms", {}).items()
    ]
    return queries(subjects, (aws.get("instance") or {}).get("instance_id", ""))


def _aws(session: Session) -> Mapping[str, Any]:
    aws: Mapping[str, Any] = session.environment.get("aws") or {}
    return aws


def _kept(session: Session) -> set[tuple[str, str, str, float]]:
    own = session.telemetry.filter(pc.starts_with(session.telemetry["metric"].cast("string"), "cloudwatch."))
    rows = own.select(["arm", "device", "metric", "at_s"]).to_pylist()
    return {(row["arm"], row["device"], row["metric"], row["at_s"]) for row in rows}


def _summary(wanted: Sequence[Query], points: Sequence[TelemetryPoint]) -> dict[str, Any]:
    return {
        "metrics": len(wanted),
        "values": len(points),
        "until_s": max((point.at_s for point in points), default=None),
        "usd": price_usd(wanted),
    }
