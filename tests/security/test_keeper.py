"""What the keeper does for a user is that user's: nobody else is answered, and no request leads elsewhere."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from shared_python import NOBODY, as_user

from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine import processes
from esrally_ebs.machine.caller import KEEPER, Caller, caller
from esrally_ebs.machine.mounts import describe, mount_at
from esrally_ebs.machine.processes import Process
from esrally_ebs.model import NODE_USER, Kind, Node, VolumeSpec
from esrally_ebs.node import NodeSettings
from esrally_ebs.session import clean, keeper, root_steps
from esrally_ebs.session.keeper import MAX_REQUEST_BYTES, OPERATIONS, KeeperClient, KeeperService, bound
from esrally_ebs.session.root_steps import RootSteps
from esrally_ebs.store import running
from esrally_ebs.store.context import FIO_PID, OF_CALLER
from esrally_ebs.volumes import backends as volumes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")

OTHER = 65533


@pytest.fixture
def steps(run: Path) -> Iterator[RootSteps]:
    made = RootSteps(Caller(NOBODY, NOBODY, "nobody", "/nonexistent"), start_reaper=lambda *_: None)
    yield made
    made.take_down()


@pytest.fixture
def address(steps: RootSteps) -> Iterator[str]:
    listener, name = bound()
    with listener:
        service = KeeperService(steps, NOBODY)
        threading.Thread(target=service.listen, args=(listener,), daemon=True).start()
        yield name
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def sent(address: str, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(f"\0{address}")
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(ConnectionResetError):
            while part := client.recv(65536):
                answer += part
        return answer


def answered(address: str, data: bytes, uid: int = NOBODY) -> str:
    """What that user gets to read."""
    return as_user(uid, lambda: sent(address, data).decode())


def request(operation: str, **arguments: object) -> bytes:
    return json.dumps({"operation": operation, "arguments": arguments}).encode() + b"\n"


def refused(address: str, operation: str, **arguments: object) -> str:
    return str(json.loads(answered(address, request(operation, **arguments)))["error"]["text"])


@pytest.mark.parametrize("uid", [0, OTHER])
def test_only_the_user_who_called_is_answered(address: str, uid: int) -> None:
    assert taken_down(address)
    assert answered(address, request("take_down"), uid) == ""


def test_descriptors_without_a_request_are_closed(address: str) -> None:
    def leave_some() -> str:
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"\0{address}")
                socket.send_fds(client, [b"half a line"], [0])
                client.shutdown(socket.SHUT_WR)
                client.recv(1)
        return ""

    before = len(list(Path("/proc/self/fd").iterdir()))
    as_user(NOBODY, leave_some)
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 10


@pytest.mark.parametrize("operation", ["serve", "take", "caller", "is_over", "_run", "__init__", "", "fork"])
def test_what_is_no_operation_is_refused(address: str, operation: str) -> None:
    assert operation not in OPERATIONS
    assert "there is no such operation" in refused(address, operation)


@pytest.mark.parametrize("session", ["", "..", "../x", "/etc", "a/b", "by-hand-gp2", "-x", "a\n", "x" * 99])
def test_what_is_no_name_of_a_session_is_not_begun(address: str, run: Path, session: str) -> None:
    assert refused(address, "begin", session=session, folder="/x", watched=[]).startswith("session ")
    assert not run.exists()


@pytest.mark.parametrize("operation", ["attach", "lend", "publish", "ending"])
def test_nothing_is_done_before_a_session_is_begun(address: str, run: Path, operation: str) -> None:
    arguments = {"specs": [{"name": "a", "type": "gp2"}]} if operation == "attach" else {}
    assert json.loads(answered(address, request(operation, **arguments)))["error"]
    assert not run.exists()


def test_a_session_of_another_process_stays_another_s(address: str, run: Path) -> None:
    running.begin("theirs")
    assert "this session runs, or was killed" in refused(
        address, "begin", session="theirs", folder="/x", watched=[]
    )
    assert taken_down(address)
    assert (run / "theirs" / "owner").exists()
    clean.take_down("theirs")


def begun(address: str) -> None:
    assert json.loads(answered(address, request("begin", session="s", folder="/x", watched=[]))) == {
        "result": None
    }


def attached(address: str, **spec: object) -> Path:
    """Where an arm on a directory is."""
    specs = [{"name": "a", "type": "directory", **spec}]
    return Path(json.loads(answered(address, request("attach", specs=specs)))["result"][0]["mount"])


def taken_down(address: str) -> bool:
    """Whether nothing is left of the session, and the keeper answers still."""
    return answered(address, request("take_down")) == '{"result":[]}\n'


def test_processes_of_others_are_not_watched_or_ended(address: str, run: Path) -> None:
    text = refused(address, "begin", session="s", folder="/x", watched=[os.getpid()])
    assert text == f"process {os.getpid()}: is another user's; name one of your own"
    assert not run.exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "..", OF_CALLER, "lent_1", "", "A"])
def test_an_arm_lies_in_its_session(address: str, run: Path, name: str) -> None:
    begun(address)
    assert "name" in refused(address, "attach", specs=[{"name": name, "type": "directory"}])
    assert sorted(path.name for path in (run / "s").iterdir()) == [OF_CALLER, "owner"]


def test_an_arm_on_a_directory_that_the_user_can_exchange_is_refused(
    address: str, run: Path, tmp_path: Path
) -> None:
    begun(address)
    mount = tmp_path / "theirs" / "mount"
    mount.mkdir(parents=True)
    os.chown(mount.parent, NOBODY, NOBODY)
    for path in (mount, mount.parent / "link"):
        with suppress(FileExistsError):
            (mount.parent / "link").symlink_to(mount)
        specs = [{"name": "a", "type": "directory", "mount": str(path)}]
        text = refused(address, "attach", specs=specs)
        assert f"arm a: {mount.parent} may be changed by user {NOBODY}" in text
    assert list(mount.iterdir()) == []


def test_an_arm_is_no_directory_that_the_user_could_not_write_to(
    address: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root would make directories of the user's there, which the user could fill."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    begun(address)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        theirs, behind = Path(folder), Path(folder) / "behind"
        behind.mkdir()
        behind.chmod(0o1777)  # open to all, but nobody else gets there
        for mode, refused_one in ((0o755, theirs), (0o700, behind)):
            theirs.chmod(mode)
            text = refused(
                address, "attach", specs=[{"name": "a", "type": "directory", "mount": str(refused_one)}]
            )
            assert text.startswith(f"arm a: user nobody may not write to {refused_one}; ")
        assert list(behind.iterdir()) == []
        theirs.chmod(0o1777)
        assert attached(address, mount=str(theirs)) == theirs / "esrally-ebs-s"
        assert taken_down(address)
        assert list(theirs.iterdir()) == [behind]


def test_on_an_arm_the_user_has_two_folders_and_no_more(address: str, run: Path) -> None:
    begun(address)
    mount = attached(address)
    assert {path.name: path.stat().st_uid for path in mount.iterdir()} == dict.fromkeys(
        ("elasticsearch", "fio"), NOBODY
    )
    assert mount.stat().st_uid == 0
    assert stat.S_IMODE(run.stat().st_mode) == stat.S_IMODE((run / "s").stat().st_mode) == 0o711
    assert "has its arms" in refused(address, "attach", specs=[{"name": "b", "type": "directory"}])
    assert taken_down(address)
    assert not (run / "s").exists()


def test_nothing_comes_up_in_a_session_that_is_to_be_taken_down(address: str, run: Path) -> None:
    """Else a volume that is being attached while its session is taken down stays when all else has gone."""
    begun(address)
    for operation in ("ending", "take_down"):
        answered(address, request(operation))
        text = refused(address, "attach", specs=[{"name": "a", "type": "directory"}])
        assert text == refused(address, "attach_neutral") == "session s: has ended; start again"
    assert not (run / "s").exists()


@pytest.mark.parametrize("reached", [{"also_at": "10.0.0.2"}, {"apart": {"a-1": "10.0.0.2:9300"}}])
def test_no_node_of_a_callers_is_reached_from_other_machines(
    steps: RootSteps, reached: dict[str, Any]
) -> None:
    settings = NodeSettings(heap_bytes=1, memory_bytes=1, cpus=0, **reached)
    with pytest.raises(SetupError, match="root"):
        steps.start_shared({}, settings)


@pytest.mark.system
@pytest.mark.beside
def test_nothing_is_made_below_the_mount_point_of_an_arm_that_was_unmounted(tmp_path: Path) -> None:
    mount = tmp_path / "mnt"
    mount.mkdir()
    processes.run(["mount", "-t", "tmpfs", "tmpfs", mount], timeout_s=10)
    volume = describe(VolumeSpec(name="a", type="gp3", size_bytes=1 << 30), mount, Kind.EMULATED)
    processes.run(["umount", mount], timeout_s=10)
    with pytest.raises(SetupError, match="arm a: its volume is no longer mounted"):
        volumes.let_in(volume, Caller(NOBODY, NOBODY, "nobody", "/nonexistent"))
    assert list(mount.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\n", id="nothing"),
        pytest.param(b"\0\xff\xfe{\n", id="no text"),
        pytest.param(b"[" * 20_000 + b"\n", id="deep nesting"),
        pytest.param(b'{"operation": "begin", "arguments": ' + b'{"a":' * 9_000 + b"\n", id="deep keys"),
        pytest.param(request("begin", session={"a": 1}, folder=1, watched="x"), id="other types"),
        pytest.param(request("begin", session="s", folder="/x", watched=[10**400]), id="long numbers"),
        pytest.param(request("begin", session="s", folder="/x", watched=[], more=1), id="more"),
        pytest.param(request("begin", session="s", folder="/x", watched=[1] * 9), id="many processes"),
        pytest.param(b"x" * (MAX_REQUEST_BYTES + 70_000) + b"\n", id="oversized"),
        pytest.param(request("lend", data=0), id="a number for a descriptor"),
    ],
)
def test_garbage_is_refused_in_one_line(address: str, run: Path, data: bytes) -> None:
    answer = answered(address, data)
    assert answer.count("\n") <= 1
    assert not answer or json.loads(answer)["error"]["text"]
    assert not run.exists()
    assert taken_down(address)  # it answers still


def test_who_sends_half_a_line_keeps_nobody_waiting(address: str) -> None:
    def two() -> str:
        with socket.socket(socket.AF_UNIX) as slow:
            slow.connect(f"\0{address}")
            slow.sendall(b'{"operation"')
            return sent(address, request("take_down")).decode()

    assert as_user(NOBODY, two) == '{"result":[]}\n'


def lend(address: str, path: Path, *, read_only: bool = False) -> str:
    """As a user whose descriptors lead elsewhere than asked for."""

    def ask() -> str:
        client = KeeperClient(address)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            client.lend(descriptor, read_only=read_only)
        except EbsError as error:
            return str(error)
        return ""

    return as_user(NOBODY, ask)


def test_only_a_directory_of_the_user_s_own_is_lent(address: str, run: Path) -> None:
    begun(address)
    for path in (Path("/etc"), Path("/etc/passwd"), Path("/dev/null")):
        assert f"is no directory of user {NOBODY}" in lend(address, path)
    assert not (run / "s" / "lent_1").exists()


@pytest.mark.system
@pytest.mark.beside
def test_a_repository_has_nothing_that_the_user_may_not_read_and_stays_as_it_is(
    address: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's container has the group 0, and may so read more than the user who lends it a directory."""
    begun(address)
    tools = run.parent / "tools"
    tools.mkdir()
    (tools / "umount").symlink_to("/usr/bin/umount")
    monkeypatch.setenv("PATH", str(tools))
    repository = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        repository.chmod(0o755)
        (repository / "index-0").touch(mode=0o644)
        assert lend(address, repository, read_only=True) == ""
        point = run / "s" / "lent_1" / "mnt" / "elasticsearch"
        with pytest.raises(OSError, match="Read-only"):
            (point / "more").touch()
        mount = mount_at(point)
        assert mount is not None
        assert {"nosuid", "nodev", "noexec"} <= set(mount.options.split(","))
        (repository / "sudoers").touch(mode=0o640)
        text = lend(address, repository, read_only=True)
        assert text.startswith("dataset.snapshot: sudoers in the repository is of user 0 and not for all to")
        assert taken_down(address)
        assert {path.stat().st_uid for path in (repository, *repository.iterdir())} == {0}
    finally:
        shutil.rmtree(repository)


@pytest.mark.parametrize("what", ["file", "segment", "folder"])
def test_no_file_of_others_is_kept_for_an_arm(address: str, run: Path, what: str) -> None:
    begun(address)
    mount = attached(address)
    own, roots = mount / "elasticsearch" / "indices" / "u" / "0" / "index", run.parent / "roots" / "index"
    name = "_0.cfs" if what == "segment" else "segments_1"
    roots.mkdir(parents=True)
    (roots / name).write_text("secret")
    if what == "folder":
        own.parent.mkdir(parents=True)
        own.symlink_to(roots)
    else:
        own.mkdir(parents=True)
        os.link(roots / name, own / name)
    assert "arm a" in refused(address, "keep", arm="a")
    texts = [path.read_text() for path in (mount / "kept").rglob("*") if path.is_file()]
    assert "secret" not in texts
    assert taken_down(address)


def shared_node(address: str, folder: str) -> str:
    """What is refused of a node of all arms with an index in that folder of arm a."""
    settings = {"heap_bytes": 1, "memory_bytes": 2, "cpus": 0}
    copies = {"a": {folder: "B" * 22}}
    return refused(address, "start_shared", copies=copies, settings=settings)


@pytest.mark.parametrize("folder", ["..", "../../x", "/etc", "A" * 21, "A" * 22 + "\n", "Ä" * 22])
def test_an_index_of_a_node_of_all_arms_is_named_as_elasticsearch_names_one(
    address: str, run: Path, folder: str
) -> None:
    begun(address)
    assert "should match pattern" in shared_node(address, folder)


@pytest.mark.parametrize("place", ["indices", "indices/" + "A" * 22])
def test_an_index_of_a_node_of_all_arms_lies_on_its_arm(address: str, run: Path, place: str) -> None:
    begun(address)
    data = attached(address) / "elasticsearch"
    assert "error" not in json.loads(answered(address, request("attach_neutral")))
    link = data / place
    link.parent.mkdir(exist_ok=True)
    target = run.parent / "roots"
    (target / ("A" * 22)).mkdir(parents=True)
    link.symlink_to(target if place == "indices" else target / ("A" * 22))
    assert "Not a directory" in shared_node(address, "A" * 22)
    assert not (run / "s" / "lent_1").exists()
    assert {path.stat().st_uid for path in (target, *target.iterdir())} == {0}


def test_what_lies_on_an_arm_is_unmounted_before_it(tmp_path: Path) -> None:
    for name in ("gp2", "lent_1", "a-1", "all_arms"):
        (tmp_path / name).mkdir()
    assert [path.name for path in clean.arm_folders(tmp_path)] == ["all_arms", "lent_1", "a-1", "gp2"]


def test_a_log_that_is_a_link_out_of_the_container_is_not_handed_on(
    steps: RootSteps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "gc.log"
    monkeypatch.setattr(root_steps, "log_of", lambda node: log)
    steps._nodes["a"] = Node(
        arm="a", container="c", host="", port=0, pid=0, data_dir=tmp_path, memory_cgroup=None
    )
    log.symlink_to("/etc/shadow")
    with pytest.raises(OSError, match="symbolic link"):
        steps.gc_log("a")
    log.unlink()
    log.write_text("root's")  # what a link further up would lead to
    with pytest.raises(EbsError, match="is no file of its node's"):
        steps.gc_log("a")
    os.chown(log, NODE_USER, 0)
    with steps.gc_log("a") as file:
        assert file.read() == b"root's"


@pytest.mark.parametrize("written_by", [NOBODY, 0])
def test_a_pid_that_a_user_wrote_down_ends_no_process_of_others(
    address: str, run: Path, written_by: int
) -> None:
    begun(address)
    victim = subprocess.Popen(["/bin/bash", "-c", "exec -a fio /bin/sleep 60"], process_group=0)
    try:
        while (process := Process.of(victim.pid)) is None or not Path(
            f"/proc/{victim.pid}/cmdline"
        ).read_bytes().startswith(b"fio"):
            pass
        noted = run / "s" / OF_CALLER / FIO_PID
        noted.write_text(f"{process.pid} {process.start_ticks}\n")
        os.chown(noted, written_by, 0)
        assert taken_down(address)
        assert (victim.poll() is None) == (written_by == NOBODY)
    finally:
        victim.kill()
        victim.wait()


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_a_user_puts_in_place_of_a_note_holds_nothing_up(address: str, run: Path, kind: str) -> None:
    begun(address)
    noted = run / "s" / OF_CALLER / FIO_PID
    os.mkfifo(noted) if kind == "pipe" else noted.symlink_to("/dev/zero")
    assert taken_down(address)
    assert Path("/dev/zero").exists()
    assert not (run / "s").exists()


def test_what_the_user_left_beside_the_notes_is_named_and_stays(
    address: str, run: Path, steps: RootSteps
) -> None:
    begun(address)
    more = run / "s" / OF_CALLER / "thesis"
    more.touch()
    (problem,) = json.loads(answered(address, request("take_down")))["result"]
    assert "not empty" in problem
    assert more.exists()
    more.unlink()


@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no file systems of users")
def test_what_the_user_mounts_over_the_notes_keeps_no_other_session(address: str, run: Path) -> None:
    for name in ("a", "z"):
        running.begin(name)
        (run / name / "owner").write_text("99999999 1")
    begun(address)
    (run / "s" / "owner").write_text("99999999 1")
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id={NOBODY},group_id={NOBODY}"
    words = ["/bin/mount", "-i", "-t", "fuse", "-o", options, "closed-to-root", run / "s" / OF_CALLER]
    subprocess.run(words, pass_fds=[fuse], check=True)
    try:
        taken = dict(clean.clean())
    finally:
        subprocess.run(["/bin/umount", "--lazy", words[-1]], check=True)
        os.close(fuse)
    assert taken["a"] == taken["z"] == []
    assert re.fullmatch(
        r".*/s/of_caller: the user has mounted something there; run 'umount .*", taken["s"][0]
    )


@pytest.mark.parametrize("text", ["x", "-1", "1e3", "٣", "99999999999999999999"])
def test_a_user_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SUDO_UID", text)
    with pytest.raises(EbsError, match=r"^SUDO_UID=.*sudo, or unset it$"):
        caller()


@pytest.mark.parametrize("text", ["", "0", "00"])
def test_root_without_another_user_stays_root(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SUDO_UID", text)
    assert caller() is None


def test_a_keeper_that_has_ended_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEEPER, "ebs-test-nobody-listens")
    with pytest.raises(EbsError, match=r"^the root process of this session has ended \(.*clean'$"):
        keeper.root_steps().ending()


def test_every_operation_has_a_row_in_the_documents() -> None:
    text = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    assert [name for name in OPERATIONS if f"`{name}`" not in text] == []
