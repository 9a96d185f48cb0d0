"""Data hosts without SSH: the helper over pipes, and what a coordinator makes of what an ssh gives."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import esrally_ebs
from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import Check, Severity, State, session_name
from esrally_ebs.node.dataset import Dataset, content_hash
from esrally_ebs.plan import load_plan
from esrally_ebs.plan.tables import HostPlan
from esrally_ebs.session import host, host_client, hosts
from esrally_ebs.session.keeper import root_steps
from esrally_ebs.store import SessionFolder, running
from esrally_ebs.store.context import Arm, Context, Member, load_context
from esrally_ebs.store.encoding import dump, seal

HOST = HostPlan(name="a", ssh="ssh://root@10.0.0.2")
SPEC = {"name": "gp3", "type": "directory", "host": "a"}


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))


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


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """An ssh that runs these lines of Python, with the command for the host as ``command``."""
    script = tmp_path / "ssh.py"
    script.write_text(f"import os, sys, time\ncommand = sys.argv[-1]\n{code}\n")
    monkeypatch.setenv(host_client.SSH, f"{sys.executable} {script}")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            """print('{"esrally_ebs": "0.0.1"}', flush=True)""",
            f"host a: has esrally_ebs 0.0.1, the coordinator {esrally_ebs.__version__}; install that one"
            " there",
        ),
        (
            "print('welcome'); sys.exit('ssh: connect to host 10.0.0.2 port 22: Connection refused')",
            "host a: no helper by ssh ssh://root@10.0.0.2: ssh: connect to host 10.0.0.2 port 22: Connection "
            f"refused; see that ssh gets in unasked, and that esrally_ebs {esrally_ebs.__version__} is there "
            "(ESRALLY_EBS_HOST_PYTHON)",
        ),
    ],
)
def test_a_host_that_does_not_fit_is_one_line(
    code: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, code)
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
    ssh: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "sys.exit(' '.join(sys.argv[-4:-1]))")
    with pytest.raises(SetupError) as refused:
        host_client.HostClient(HostPlan(name="a", ssh=ssh))
    assert f"no helper by ssh {ssh}: {' '.join(words)}; see" in str(refused.value)


def test_a_helper_is_asked_and_ends_with_its_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path, monkeypatch, "print('welcome', flush=True); os.execv('/bin/sh', ['sh', '-c', command])"
    )
    client = host_client.HostClient(HOST)
    assert client.facts()["esrally_ebs"] == esrally_ebs.__version__
    assert client.now() == pytest.approx(time.time(), abs=2)
    with pytest.raises(SetupError, match=r"^host a: no session was begun"):
        client.attach([SPEC])
    assert client.close() == []
    assert client.close() == []


DEEP = "[" * 5000
GREETING = f'{{"esrally_ebs": "{esrally_ebs.__version__}"}}'


@pytest.mark.parametrize(
    "answer", ["no JSON", "[]", "1", DEEP, '{"result": "x"}', '{"id": "9", "error": {"kind": "near"}}']
)
def test_what_is_no_answer_is_one_line(answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        f"print({GREETING!r}, flush=True); print({answer!r}, flush=True); sys.stdin.read()",
    )
    client = host_client.HostClient(HOST)
    for _ in range(2):
        with pytest.raises(SetupError, match=r"^host a: what it answers to 'now' is no such answer"):
            client.now()
    client.close()


def test_a_lost_helper_is_named_and_what_it_may_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        tmp_path,
        monkeypatch,
        f"""print('{{"esrally_ebs": "{esrally_ebs.__version__}"}}', flush=True)
sys.stdin.readline()
sys.stderr.buffer.write(b'Timeout, server 10.0.0.2 not responding. \\xff')""",
    )
    client = host_client.HostClient(HOST, ["gp3"])
    lost = "host a: SSH was lost with arm gp3 (Timeout, server 10.0.0.2 not responding. \ufffd)"
    with pytest.raises(SetupError) as refused:
        client.now()
    assert str(refused.value) == lost
    assert client.close() == [f"{lost}; its helper takes down by itself within a minute"]


def test_a_helper_is_waited_for_while_it_says_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_client, "BEAT_S", 0.2)
    monkeypatch.setattr(host_client, "PATIENCE_S", 1.0)
    greeting = json.dumps({"esrally_ebs": esrally_ebs.__version__, "pid": 77})
    stand_in(
        tmp_path,
        monkeypatch,
        f"""print({greeting!r}, flush=True)
for _ in range(30):
    time.sleep(0.1)
    print('{{"lives": true}}', flush=True)
time.sleep(60)""",
    )
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


def test_a_helper_that_has_ended_is_not_a_lost_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, f"""print({GREETING!r}); print('{{"left": ["x stays"]}}')""")
    client = host_client.HostClient(HOST)
    with pytest.raises(
        SetupError, match=r"^host a: its helper ended before 'now' was done: nothing came for"
    ):
        client.now()
    assert client.close() == ["host a: x stays"]


def test_a_login_may_print_what_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    banner = f"print('{{}}'); print({DEEP!r}); print('x' * 100_000)"
    stand_in(tmp_path, monkeypatch, f"{banner}; print({GREETING!r}, flush=True); sys.stdin.read()")
    host_client.HostClient(HOST).close()


def test_a_login_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "time.sleep(60)")
    with pytest.raises(
        SetupError, match=r"^host a: no helper by ssh ssh://root@10.0.0.2 within 1 s; see that"
    ):
        host_client.HostClient(HOST, greets_s=1.0)


@pytest.mark.skipif(shutil.which("ssh", path="/usr/bin") is None, reason="no SSH client is installed")
def test_the_users_configuration_does_not_share_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, effective = tmp_path / "config", tmp_path / "effective"
    config.write_text("ControlMaster auto\nControlPath /nowhere/%h\nForwardX11 yes\nRemoteCommand true\n")
    ssh = ["/usr/bin/ssh", "-F", str(config), "-G"]
    stand_in(
        tmp_path,
        monkeypatch,
        f"import subprocess\nout = open({str(effective)!r}, 'w')\n"
        f"subprocess.run([*{ssh}, *sys.argv[1:]], stdout=out, check=True)\n"
        f"print({GREETING!r}, flush=True)",
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


def data_hosts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    start_helper: Callable[[HostPlan, Sequence[str]], host_client.HostClient] = host_client.HostClient,
) -> tuple[hosts.DataHosts, Path]:
    """Two hosts whose helpers answer with nothing, and the file of what they were asked."""
    requests = tmp_path / "requests"
    stand_in(
        tmp_path,
        monkeypatch,
        f"""print({GREETING!r}, flush=True)
for line in iter(lambda: next(filter(str.strip, sys.stdin), "end\\n"), "end\\n"):
    with open({str(requests)!r}, "a") as file:
        file.write(line)
    number, result = line.split()[0], "{{}}" if "facts" in line else "null"
    print('{{"id": "%s", "result": %s}}' % (number, result), flush=True)
print('{{"left": []}}', flush=True)""",
    )
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "h"\n[[arm]]\nname = "{0}"\ntype = "gp3"\nhost = "{0}"\n'
    plan.write_text('name = "p"\n' + "".join(map(tables.format, "ab")))
    steps = hosts.DataHosts(load_plan(plan), start_reaper=lambda *_: None, start_helper=start_helper)
    steps.preflight()
    return steps, requests


def test_hosts_that_are_one_machine_have_a_session_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, requests = data_hosts(tmp_path, monkeypatch)
    session = "s" * 81
    steps.begin(session, tmp_path / "session", ())
    assert steps.take_down() == []
    asked = [json.loads(line.partition(" ")[2]) for line in requests.read_text().splitlines()]
    begun = [each["arguments"]["session"] for each in asked if each["operation"] == "begin_here"]
    assert len({session, *map(session_name, begun)}) == 3


def test_a_helper_ends_by_a_word_where_others_have_its_input_open(run: Path) -> None:
    with Helper() as helper:
        helper.attached(run)
        os.write(helper.requests, b"\nend\n")
        assert helper.next() == {"left": []}
        helper.thread.join(20)
        assert not helper.thread.is_alive()


class Unclosable(host_client.HostClient):
    """One whose end fails for a reason that nobody thought of."""

    def close(self) -> list[str]:
        super().close()
        raise RuntimeError("why")


def test_all_else_is_taken_down_when_a_helper_cannot_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, _ = data_hosts(tmp_path, monkeypatch, start_helper=Unclosable)
    steps.begin("s", tmp_path / "session", ())
    assert steps.take_down() == [
        f"host {name}: RuntimeError('why'); run 'esrally-ebs clean' there" for name in "ab"
    ]
    assert not any((tmp_path / "run").glob("*"))


def test_hosts_of_different_kinds_are_a_warning() -> None:
    like: dict[str, object] = {"kernel": "6.1", "cores": 2, "memory_bytes": 8_056_623_104, "fio": "fio-3.33"}
    assert hosts.hosts_alike({"a": like, "b": dict(like)}).ok
    assert hosts.hosts_alike({"a": like, "b": like | {"memory_bytes": 8_056_614_912}}).ok  # KiB at each boot
    check: Check = hosts.hosts_alike({"a": like, "b": like | {"cores": 4}})
    assert (check.ok, check.severity) == (False, Severity.WARN)
    assert check.text == "arms are on different machines: cores: a 2, b 4"


def test_volumes_of_hosts_are_not_attached_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "p.toml"
    plan.write_text(
        'name = "p"\n[[host]]\nname = "a"\nssh = "h"\n[[arm]]\nname = "gp3"\ntype = "gp3"\nhost = "a"\n'
    )
    assert main(["volumes", "up", str(plan)]) == 2
    line = "host: 'volumes up' is not done on other machines yet; remove the hosts"
    assert capsys.readouterr().err == f"esrally-ebs: {plan}: {line}\n"


@pytest.fixture
def on_two_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[hosts.DataHosts, Context]]:
    """A session with an arm on each of two helpers of this machine, which has been published."""
    stand_in(tmp_path, monkeypatch, "os.execv('/bin/sh', ['sh', '-c', command])")
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "h"\n[[arm]]\nname = "{1}"\ntype = "directory"\nhost = "{0}"\n'
    plan.write_text('name = "p"\n' + tables.format("a", "one") + tables.format("b", "two"))
    loaded = load_plan(plan)
    steps = hosts.DataHosts(loaded, start_reaper=lambda *_: None)
    folder = SessionFolder.create(tmp_path / "home", "s", kind="race", plan=loaded)
    try:
        steps.preflight()
        steps.begin("s", folder.path, ())
        volumes = steps.attach(loaded.arm)
        arms = tuple(
            Arm(name=volume.spec.name, cluster=volume.spec.name, members=(Member(volume=volume),))
            for volume in volumes
        )
        arms = steps.look(arms).arms
        run = tmp_path / "run" / "s"
        yield steps, steps.publish(Context(session="s", folder=folder.path, run=run, plan=loaded, arms=arms))
    finally:
        assert steps.take_down() == []


def index_in(folder: Path) -> Dataset:
    """What looks like one that was built."""
    files = folder / "elasticsearch" / "indices" / "u" / "0" / "index"
    files.mkdir(parents=True)
    (files / "_0.cfs").write_bytes(os.urandom(700_000))
    (files / "_0.si").write_bytes(b"")
    facts = {"documents": 1, "bytes": 700_000, "segments": (), "hash": content_hash(folder / "elasticsearch")}
    made = Dataset(key="k", path=folder, **facts)
    (folder / "dataset.json").write_text(seal(dump(made.record())))
    return made


def test_an_index_comes_to_its_arms_byte_for_byte_and_stays_for_later(
    tmp_path: Path, on_two_hosts: tuple[hosts.DataHosts, Context]
) -> None:
    steps, context = on_two_hosts
    index = index_in(tmp_path / "index")
    said: list[str] = []
    for arm in context.arms:
        steps.copy_to(index, arm.volumes, said.append)
        assert steps.content_hash((arm.name,)) == index.hash
        assert content_hash(arm.volume.mount / "elasticsearch") == index.hash
    assert said == ["Copying the index to host a once; later sessions find it there"]  # b has the same home
    assert not any((tmp_path / "home" / "datasets").glob("*.unfinished"))


@pytest.fixture
def of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[hosts.DataHosts, Arm]]:
    """A session of an arm whose three volumes are on two helpers of this machine, attached."""
    stand_in(tmp_path, monkeypatch, "os.execv('/bin/sh', ['sh', '-c', command])")
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "h"\naddress = "10.0.0.2"\n'
    arm = '[[arm]]\nname = "one"\ntype = "directory"\nhosts = ["b", "a", "b"]\n[node]\ncount = 3\n[race]\n'
    plan.write_text('name = "p"\n' + tables.format("a") + tables.format("b") + arm)
    loaded = load_plan(plan)
    steps = hosts.DataHosts(loaded, start_reaper=lambda *_: None)
    steps._clients = {each.name: host_client.HostClient(each, ["one"]) for each in loaded.host}
    try:
        steps.begin("s", SessionFolder.create(tmp_path / "home", "s", kind="race", plan=loaded).path, ())
        volumes = steps.attach(loaded.volumes_of(loaded.arm[0]))
        yield steps, Arm(name="one", cluster="one", members=tuple(Member(volume=each) for each in volumes))
    finally:
        assert steps.take_down() == []


def test_each_host_of_an_arm_gets_what_its_nodes_have_of_an_index(
    tmp_path: Path, of_three: tuple[hosts.DataHosts, Arm]
) -> None:
    steps, arm = of_three
    parts = [index_in(tmp_path / "index" / number) for number in "123"]
    places = [part.path / "elasticsearch" for part in parts]
    index = replace(parts[0], path=tmp_path / "index", nodes=3, hash=content_hash(*places))
    said: list[str] = []
    for _ in range(2):
        steps.copy_to(index, arm.volumes, said.append)
    assert [line.partition(" once")[0] for line in said] == [
        f"Copying the index to host {name}" for name in "ba"
    ]
    kept = sorted((tmp_path / "home" / "datasets").iterdir())
    assert [path.name.rpartition("-")[2] for path in kept] == ["13", "2"]
    assert [content_hash(volume.mount / "elasticsearch") for volume in arm.volumes] == [
        content_hash(place) for place in places
    ]
    assert steps.content_hash(tuple(volume.spec.name for volume in arm.volumes)) == index.hash


def test_an_arm_on_several_hosts_is_looked_at_and_observed_node_by_node(
    tmp_path: Path, of_three: tuple[hosts.DataHosts, Arm]
) -> None:
    steps, arm = of_three
    (looked,) = steps.look((arm,)).arms
    assert [(volume.spec.name, volume.spec.host) for volume in looked.volumes] == [
        ("one-1", "b"),
        ("one-2", "a"),
        ("one-3", "b"),
    ]
    assert looked.recorded.spec.hosts == ("b", "a", "b")
    run = tmp_path / "run" / "s"
    folder = tmp_path / "home" / "sessions" / "s"
    steps.publish(Context(session="s", folder=folder, run=run, plan=steps._plan, arms=(looked,)))
    assert len(steps.counters("one")) == 3
    assert {point.arm for point in steps.sample().points} == {"one-1", "one-2", "one-3"}
    assert steps.cause("one") is None
    looked.volumes[1].mount.rename(tmp_path / "gone")
    assert str(steps.cause("one")).startswith("host a: arm one-2: ")
    (tmp_path / "gone").rename(looked.volumes[1].mount)


def test_a_host_whose_nodes_would_not_be_reached_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = tmp_path / "maps"
    monkeypatch.setattr(host, "_MAPS", maps)
    maps.write_text("262144\n")
    host._require_reachable("127.0.0.1")
    with pytest.raises(SetupError, match=r"^address 192\.0\.2\.1: Cannot assign requested address; give one"):
        host._require_reachable("192.0.2.1")
    maps.write_text("65530\n")
    with pytest.raises(SetupError, match=r"run: sysctl -w vm\.max_map_count=262144$"):
        host._require_reachable("127.0.0.1")


def test_other_processes_ask_by_the_context(on_two_hosts: tuple[hosts.DataHosts, Context]) -> None:
    _, context = on_two_hosts
    client = hosts.hosts_of(load_context(context.path))
    assert client is not None
    assert client.counters("two")[0].keys() >= {"processor.busy_s", "processor.stolen_s"}
    second = client.sample()
    assert {point.arm for point in second.points} == {"one", "two"}
    assert all(abs(point.at_s - time.time()) < 60 for point in second.points)
    assert root_steps(context).cause("one") is None
    clocks = [event for event in SessionFolder(context.folder).events() if event.kind == "clock"]
    assert [event.fields["host"] for event in clocks] == ["a", "b"]
    with pytest.raises(PlanError, match="there is no such operation"):
        client.take_down()


def test_a_clock_that_is_set_in_a_race_is_compared_again_at_once(
    on_two_hosts: tuple[hosts.DataHosts, Context],
) -> None:
    steps, _ = on_two_hosts
    steps.sample()
    last = steps._clocks["a"]
    steps._clocks["a"] = replace(last, ahead_s=last.ahead_s - 300)  # as if it had been set since
    assert all(abs(point.at_s - time.time()) < 60 for point in steps.sample().points)
    assert steps._clocks["a"].ahead_s == pytest.approx(last.ahead_s, abs=1.0)


def ended_on(tmp_path: Path, *names: str, more: str = "") -> SessionFolder:
    """A record of a session whose arms were on these hosts."""
    plan = tmp_path / "p.toml"
    tables = '[[host]]\nname = "{0}"\nssh = "{0}"\n{1}[[arm]]\nname = "{0}"\ntype = "gp3"\nhost = "{0}"\n'
    plan.write_text('name = "p"\n' + "".join(tables.format(name, more) for name in names))
    return SessionFolder.create(tmp_path / "home", "s", kind="race", plan=load_plan(plan))


def fails_on(tmp_path: Path, *names: str, more: str = "") -> None:
    ended_on(tmp_path, *names, more=more).finish(State.FAILED, reason="why")


@pytest.mark.parametrize(
    ("more", "engine", "silence"),
    [
        ("", "", ""),
        (
            'docker = "unix:///nowhere/docker.sock"\n',
            "DOCKER_HOST=unix:///nowhere/docker.sock ",
            "host a: engine unix:///nowhere/docker.sock cannot be asked what it holds: docker: the engine "
            "does not answer; ",
        ),
    ],
)
def test_clean_names_what_a_host_still_holds_and_the_engine_that_says_nothing(
    more: str,
    engine: str,
    silence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fails_on(tmp_path, "a", more=more)
    stand_in(tmp_path, monkeypatch, "os.execv('/bin/sh', ['sh', '-c', command])")
    assert main(["clean"]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert (silence in " ".join(out.split())) if silence else "host a" not in out
    running.begin("s-a")
    assert main(["clean"]) == 3
    line = f"host a: still holds session s-a; run '{engine}esrally-ebs clean' there"
    assert capsys.readouterr().err == f"esrally-ebs: {line}\n"


def test_clean_asks_all_hosts_at_once_and_names_those_that_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_on(tmp_path, "a", "b")
    # each refuses once both were called
    stand_in(
        tmp_path,
        monkeypatch,
        f"""open(os.path.join({str(tmp_path)!r}, "called-" + sys.argv[-2]), "w").close()
until = time.monotonic() + 10
while time.monotonic() < until and not all(
    os.path.exists(os.path.join({str(tmp_path)!r}, "called-" + each)) for each in "ab"
):
    time.sleep(0.01)
sys.exit("Connection refused" if time.monotonic() < until else "alone")""",
    )
    assert main(["clean"]) == 0
    out, err = capsys.readouterr()
    assert not err
    for name in "ab":
        assert f"host {name}: no helper by ssh {name}: Connection refused; see" in out.replace("\n", " ")


@pytest.mark.parametrize(("warning", "code"), [("host a: /mnt/gp3 is busy", 3), ("host b: is slow", 0)])
def test_clean_asks_a_host_on_which_a_complete_session_left_something(
    warning: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ended_on(tmp_path, "a")
    folder.add_warning(warning)
    folder.finish(State.COMPLETE)
    stand_in(tmp_path, monkeypatch, "os.execv('/bin/sh', ['sh', '-c', command])")
    running.begin("s-a")
    assert main(["clean"]) == code


def test_a_way_to_a_node_is_waited_for_as_long_as_a_login_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_client, "_GREETS_S", 0.2)
    monkeypatch.setattr(host_client, "BEAT_S", 0.1)  # for what ssh says last
    stand_in(tmp_path, monkeypatch, "time.sleep(60)")
    began = time.monotonic()
    with pytest.raises(SetupError, match=r"^host a: arm gp3: its node is not reached over SSH"):
        host_client.Forward(HOST, "gp3", [9200])
    assert time.monotonic() - began < 15
