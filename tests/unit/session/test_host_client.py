"""The helper on a data host, over pipes, and what a coordinator makes of what an ssh gives."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from stand_in_ssh import GREETING, HELPER, StandIn

import esrally_ebs
from esrally_ebs.errors import SetupError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.plan.tables import HostPlan
from esrally_ebs.session import host, host_client, measure
from esrally_ebs.store.context import Arm, Member

pytestmark = pytest.mark.usefixtures("own_folders")

HOST = HostPlan(name="a", ssh="ssh://root@10.0.0.2")
SPEC = {"name": "gp3", "type": "directory", "host": "a"}


class Helper:
    """One that runs in a thread, spoken with over pipes."""

    def __init__(self, *, patience_s: float = 20.0) -> None:
        read, self.requests = os.pipe()
        answers, written = os.pipe()
        steps = host.HostSteps(start_reaper=lambda *_: None)

        def serve() -> None:
            with os.fdopen(written, "wb") as file, os.fdopen(read, "rb"):
                host.serve(read, file, steps=steps, patience_s=patience_s)

        self.thread = threading.Thread(target=serve)
        self.thread.start()
        self.answers = os.fdopen(answers, "rb")

    def __enter__(self) -> "Helper":
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self.thread.join()
        self.answers.close()

    def hang_up(self) -> None:
        if self.requests >= 0:
            os.close(self.requests)
            self.requests = -1

    def next(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.answers.readline())
        return self.next() if "lives" in answer else answer

    def ask(self, operation: str, **arguments: object) -> dict[str, Any]:
        request = json.dumps({"operation": operation, "arguments": arguments})
        os.write(self.requests, f"\n7 {request}\n".encode())
        answer = self.next()
        assert answer.pop("id") == "7"
        return answer

    def attached(self, run: Path) -> None:
        assert self.next() == {"esrally_ebs": esrally_ebs.__version__, "pid": os.getpid()}
        assert self.ask("begin_here", session="s") == {"result": None}
        (volume,) = self.ask("attach", specs=[SPEC])["result"]
        assert Path(volume["mount"]).is_relative_to(run / "s")


def test_a_helper_takes_down_when_its_input_ends(tmp_path: Path) -> None:
    with Helper() as helper:
        helper.attached(tmp_path / "run")
        helper.hang_up()
        assert helper.next() == {"left": []}
    assert not any((tmp_path / "run").glob("*"))


def test_a_helper_takes_down_when_nothing_comes(tmp_path: Path) -> None:
    with Helper(patience_s=3.0) as helper:
        helper.attached(tmp_path / "run")
        began = time.monotonic()
        assert helper.next() == {"left": []}
        assert time.monotonic() - began < 10
    assert not any((tmp_path / "run").glob("*"))


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"operation": "take_down", "arguments": {}}, "there is no such operation"),
        ({"operation": "begin_here", "arguments": {"session": "../x"}}, "is not a name"),
        ({"operation": "run_job", "arguments": {"arm": "gp3"}}, "Missing required"),
        ({"operation": "attach", "arguments": {"specs": [SPEC]}}, "no session was begun"),
    ],
)
def test_a_helper_refuses_in_one_line(request_: dict[str, Any], text: str) -> None:
    with Helper() as helper:
        helper.next()
        assert text in helper.ask(request_["operation"], **request_["arguments"])["error"]["text"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            """print('{"esrally_ebs": "0.0.1"}', flush=True)""",
            f"host a: has esrally_ebs 0.0.1, the coordinator {esrally_ebs.__version__}; install that one"
            " there",
        ),
        (
            # as root's key does on AWS
            """print('Please login as "ec2-user", not as "root".\\n'); sys.exit(142)""",
            'host a: no helper by ssh ssh://root@10.0.0.2: Please login as "ec2-user", not as "root".; see '
            f"that ssh gets in unasked, and that esrally_ebs {esrally_ebs.__version__} is there "
            "(ESRALLY_EBS_HOST_PYTHON)",
        ),
        (
            "print('welcome', flush=True); sys.exit('ssh: connect to host h port 22: Connection refused')",
            "host a: no helper by ssh ssh://root@10.0.0.2: welcome | ssh: connect to host h port 22: "
            "Connection refused; see that ssh gets in unasked, and that esrally_ebs "
            f"{esrally_ebs.__version__} is there (ESRALLY_EBS_HOST_PYTHON)",
        ),
    ],
)
def test_a_host_that_does_not_fit_is_one_line(code: str, text: str, stand_in: StandIn) -> None:
    stand_in(code)
    with pytest.raises(SetupError) as refused:
        host_client.HostClient(HOST)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("ssh", "words"),
    [
        ("ssh://root@[fe80::1%25eth0]:2222", ["-p2222", "--", "root@fe80::1%eth0"]),
        ("ssh://[::1]", ["-oClearAllForwardings=yes", "--", "::1"]),
        ("root@::1", ["-oClearAllForwardings=yes", "--", "root@::1"]),
        ("ssh://root@host:2222", ["-oClearAllForwardings=yes", "--", "ssh://root@host:2222"]),
    ],
)
def test_ssh_gets_no_address_in_brackets_which_it_would_not_read(
    ssh: str, words: list[str], stand_in: StandIn
) -> None:
    stand_in("sys.exit(' '.join(sys.argv[-4:-1]))")
    with pytest.raises(SetupError) as refused:
        host_client.HostClient(HostPlan(name="a", ssh=ssh))
    assert f"no helper by ssh {ssh}: {' '.join(words)}; see" in str(refused.value)


def test_a_helper_is_asked_and_ends_with_its_coordinator(stand_in: StandIn) -> None:
    stand_in(f"print('welcome', end='', flush=True); {HELPER}")
    client = host_client.HostClient(HOST)
    assert client.facts()["esrally_ebs"] == esrally_ebs.__version__
    assert client.now() == pytest.approx(time.time(), abs=2)
    with pytest.raises(SetupError, match=r"^host a: no session was begun"):
        client.attach([SPEC])
    assert client.close() == []
    assert client.close() == []


def test_what_no_line_can_say_is_not_waited_for(stand_in: StandIn) -> None:
    stand_in(f"print({GREETING!r}, flush=True); sys.stdin.read()")
    client = host_client.HostClient(HOST)
    with pytest.raises(ValueError, match="surrogates not allowed"):
        client.steps.receive(key="k", path="\udcff", data=b"")
    client.close()


DEEP = "[" * 5000


@pytest.mark.parametrize(
    "answer", ["no JSON", "[]", "1", DEEP, '{"result": "x"}', '{"id": "9", "error": {"kind": "near"}}']
)
def test_what_is_no_answer_is_one_line(answer: str, stand_in: StandIn) -> None:
    stand_in(f"print({GREETING!r}, flush=True); print({answer!r}, flush=True); sys.stdin.read()")
    client = host_client.HostClient(HOST)
    for _ in range(2):
        with pytest.raises(SetupError, match=r"^host a: what it answers to 'now' is no such answer"):
            client.now()
    client.close()


def test_a_lost_helper_is_named_and_what_it_may_hold(stand_in: StandIn) -> None:
    stand_in(f"""print({GREETING!r}, flush=True)
sys.stdin.readline()
sys.stderr.buffer.write(b'Timeout, server 10.0.0.2 not responding. \\xff')""")
    client = host_client.HostClient(HOST, ["gp3"])
    lost = "host a: SSH was lost with arm gp3 (Timeout, server 10.0.0.2 not responding. \ufffd)"
    with pytest.raises(SetupError) as refused:
        client.now()
    assert str(refused.value) == lost
    assert client.close() == [f"{lost}; its helper takes down by itself within a minute"]


def test_a_helper_is_waited_for_while_it_says_that_it_lives(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_client, "BEAT_S", 0.2)
    monkeypatch.setattr(host_client, "PATIENCE_S", 1.0)
    greeting = json.dumps({"esrally_ebs": esrally_ebs.__version__, "pid": 77})
    stand_in(f"""print({greeting!r}, flush=True)
for _ in range(30):
    time.sleep(0.1)
    print('{{"lives": true}}', flush=True)
time.sleep(60)""")
    client = host_client.HostClient(HOST, ["gp3"])
    began = time.monotonic()
    with pytest.raises(SetupError) as refused:
        client.now()
    assert 3 < time.monotonic() - began < 20
    silent = (
        "host a: its helper says nothing any more with arm gp3: process 77 there is stopped, or gets no "
        "processor; let it go on, or kill it"
    )
    assert str(refused.value) == silent
    assert client.close() == [f"{silent}; then it takes down by itself within a minute"]


def test_a_helper_that_has_ended_is_not_a_lost_ssh(stand_in: StandIn) -> None:
    stand_in(f"""print({GREETING!r}); print('{{"left": ["x stays"]}}')""")
    client = host_client.HostClient(HOST)
    with pytest.raises(SetupError, match=r"^host a: its helper ended before 'now' was done: nothing came"):
        client.now()
    assert client.close() == ["host a: x stays"]


def test_a_login_may_print_what_it_likes(stand_in: StandIn) -> None:
    banner = f"print('{{}}'); print({DEEP!r}); print('x' * 100_000); print('\\n' * 200)"
    stand_in(f"{banner}; print({GREETING!r}, flush=True); sys.stdin.read()")
    host_client.HostClient(HOST).close()


def test_a_login_that_waits_is_given_up_with_what_it_said(stand_in: StandIn) -> None:
    stand_in("print('Enter PASSCODE: ', end='', flush=True); time.sleep(60)")
    given_up = r"^host a: no helper by ssh ssh://root@10.0.0.2 within 1 s \(Enter PASSCODE:\); see that"
    with pytest.raises(SetupError, match=given_up):
        host_client.HostClient(HOST, greets_s=1.0)


def test_a_login_is_not_waited_for_once_it_is_refused(stand_in: StandIn) -> None:
    stand_in("""print('{"esrally_ebs": "0.0.1"}', flush=True); time.sleep(60)""")
    began = time.monotonic()
    with pytest.raises(SetupError, match=r"^host a: has esrally_ebs 0\.0\.1"):
        host_client.HostClient(HOST)
    assert time.monotonic() - began < 20


@pytest.mark.skipif(shutil.which("ssh", path="/usr/bin") is None, reason="no SSH client is installed")
def test_the_users_configuration_does_not_share_a_connection(tmp_path: Path, stand_in: StandIn) -> None:
    config, effective = tmp_path / "config", tmp_path / "effective"
    config.write_text("ControlMaster auto\nControlPath /nowhere/%h\nForwardX11 yes\nRemoteCommand true\n")
    ssh = ["/usr/bin/ssh", "-F", str(config), "-G"]
    stand_in(
        f"import subprocess\nout = open({str(effective)!r}, 'w')\n"
        f"subprocess.run([*{ssh}, *sys.argv[1:]], stdout=out, check=True)\n"
        f"print({GREETING!r}, flush=True)"
    )
    host_client.HostClient(HOST).close()
    options = dict(line.split(" ", 1) for line in effective.read_text().splitlines() if " " in line)
    assert (options["controlmaster"], options["forwardx11"]) == ("false", "no")
    assert options.get("controlpath", "none") == "none"
    assert options.get("remotecommand", "none") == "none"


def test_what_waits_on_a_host_for_a_way_to_end_hears_of_a_lost_network() -> None:
    waits = host_client._WAITS.replace(str(host_client.PATIENCE_S), "1.0")
    assert waits != host_client._WAITS
    with subprocess.Popen([sys.executable, "-P", "-c", waits], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for _ in range(15):
            process.stdin.write(b"\n")
            process.stdin.flush()
            time.sleep(0.1)
        assert process.poll() is None
        assert process.wait(10) == 0  # nothing comes any more
    ended = subprocess.run(
        [sys.executable, "-P", "-c", host_client._WAITS], input=b"\n", check=True, timeout=10
    )
    assert ended.returncode == 0


def test_a_helper_ends_by_a_word_where_others_have_its_input_open(run: Path) -> None:
    with Helper() as helper:
        helper.attached(run)
        os.write(helper.requests, b"\nend\n")
        assert helper.next() == {"left": []}
        helper.thread.join(20)
        assert not helper.thread.is_alive()


def test_a_way_to_a_node_is_waited_for_as_long_as_a_login_may_take(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_client, "_GREETS_S", 0.2)
    monkeypatch.setattr(host_client, "BEAT_S", 0.1)  # for what ssh says last
    stand_in("time.sleep(60)")
    began = time.monotonic()
    with pytest.raises(SetupError, match=r"^host a: arm gp3: its node is not reached over SSH"):
        host_client.Forward(HOST, "gp3", [9200])
    assert time.monotonic() - began < 15


def test_no_fio_starts_on_a_host_once_it_takes_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    (tmp_path / "fio").write_text(f'#!/bin/sh\necho "$@" >>{asked}\n')
    (tmp_path / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    steps = host.HostSteps(start_reaper=lambda *_: None)
    steps.begin_here("s")
    (volume,) = steps.attach((VolumeSpec(name="gp3", type="directory", size_bytes=0),))
    steps._arms["gp3"] = Arm(name="gp3", cluster="gp3", members=(Member(volume=volume),))
    monkeypatch.setattr(measure, "wait_refilled", lambda *_, **__: float(len(steps.take_down())))
    monkeypatch.setattr(measure, "snapshot", lambda *_, **__: {})
    with pytest.raises(SetupError, match="its volume has failed"):
        steps.run_job("gp3", BaselineJob(name="j", rw="randread", bs=4096, size=1 << 20), 0)
    (layout,) = asked.read_text().splitlines()
    assert "--create_only=1" in layout
    assert not any((tmp_path / "run").glob("*"))
