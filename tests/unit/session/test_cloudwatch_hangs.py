"""CloudWatch that takes the call and does not answer: the session ends in time, and says what it lacks."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hanging_server import WAYS, Hanging, hanging
from recorded_aws import ID_GP2

from esrally_ebs.aws.cloudwatch import collect
from esrally_ebs.model import State
from esrally_ebs.plan import parse_plan
from esrally_ebs.report import RENDERERS, SUFFIX
from esrally_ebs.session.protocol import LiveSession
from esrally_ebs.session.steps import MachineSteps
from esrally_ebs.store import Session, SessionFolder, load_session

PATIENCE_S = 0.4
# of a busy machine, for all that is done besides waiting: the reports and the import of the SDK
REST_S = 20.0
ROOT = Path(__file__).parents[3]
ON_AWS = {
    "instance": {"instance_id": "i-1", "region": "eu-west-1"},
    "limits": None,
    "arms": {"a": {"volume_ids": [ID_GP2], "file_system_id": "", "volumes": [], "file_system": None}},
    "unknown": [],
}


def lead_to(server: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS is asked there, and by whom does not matter; all else is as for every test (loopback_only)."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")


@pytest.fixture(params=WAYS)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    with hanging(request.param) as made:
        lead_to(made, monkeypatch)
        yield made


@pytest.fixture
def live(run: Path, tmp_path: Path) -> LiveSession:
    """A session that has measured; its arm is a directory that passes for an EBS volume."""
    (tmp_path / "mnt").mkdir()
    arm = f'[[arm]]\nname = "a"\ntype = "directory"\nmount = "{tmp_path / "mnt"}"\n'
    plan = parse_plan(f'name = "x"\n{arm}', "x.toml")
    # the reaper is a process of its own, of which nothing is asked
    started = LiveSession(MachineSteps("s", plan, start_reaper=lambda *_: None, patience_s=PATIENCE_S))
    context = started.prepare()
    SessionFolder(context.folder).update(environment={"aws": ON_AWS})
    return started


def ended(tmp_path: Path) -> Session:
    return load_session(tmp_path / "home" / "sessions" / "s")


def test_a_session_ends_in_time_and_whole_and_says_what_is_not_known(
    server: Hanging, live: LiveSession, run: Path, tmp_path: Path
) -> None:
    start = time.monotonic()
    output = live.complete()
    assert PATIENCE_S <= time.monotonic() - start < REST_S
    assert server.requested.wait(REST_S)
    session = ended(tmp_path)
    assert session.state is State.COMPLETE
    assert not (run / "s").exists()
    (warning,) = [text for text in session.warnings if "CloudWatch" in text]
    why = "no answer within 0.4 s; 'esrally-ebs cloudwatch' fetches them later"
    assert warning == f"CloudWatch's minutes are missing: {why}"
    for form in RENDERERS:
        assert "no answer within 0.4 s" in (session.path / f"report.{SUFFIX[form]}").read_text(), form
    assert "no answer within 0.4 s" in " ".join(output.split())


_BODY = json.dumps({"MetricDataResults": [{"Id": "m0", "Timestamps": [1.8e9], "Values": [42.0]}]}).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


def test_an_answer_that_comes_too_late_changes_nothing_any_more(
    live: LiveSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning would contradict the data, and the reports would not have them."""
    with hanging() as server:
        lead_to(server, monkeypatch)
        of_others = set(threading.enumerate())  # those of other tests may still try
        live.complete()
        path = ended(tmp_path).path
        before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
        new = set(threading.enumerate()) - of_others
        (asking,) = [thread for thread in new if thread.name == "ebs-cloudwatch"]
        answer(server)
        asking.join(REST_S)
        assert not asking.is_alive()
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before

        later = threading.Thread(target=answer, args=[server])  # the same answer to whoever waits for it
        later.start()
        assert collect(SessionFolder(path)) == 1
        later.join()
    assert not [text for text in ended(tmp_path).warnings if "CloudWatch" in text]  # they are there now


def answer(server: Hanging) -> None:
    """To the next one who asks, or who has asked."""
    assert server.requested.wait(REST_S)
    server.requested.clear()
    server.connections[-1].sendall(ANSWER)


SCRIPT = """
import sys
from pathlib import Path
from esrally_ebs.aws.cloudwatch import collect_in_time
from esrally_ebs.store import SessionFolder

collect_in_time(SessionFolder(Path(sys.argv[1])), patience_s=0.4)
print("done", flush=True)
sys.stdin.read()
"""


def test_nothing_of_it_keeps_the_process_alive(server: Hanging, live: LiveSession, tmp_path: Path) -> None:
    script = tmp_path / "end.py"
    script.write_text(SCRIPT)
    path = ended(tmp_path).path
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            assert server.requested.wait(REST_S)  # the thread goes on without us
            process.stdin.close()
            assert process.wait(REST_S) == 0  # the SDK would try for minutes
        finally:
            process.kill()
    assert server.hung_up.wait(REST_S)
    assert "no answer within 0.4 s" in ended(tmp_path).warnings[0]
