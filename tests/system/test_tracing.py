"""A mount's I/Os recorded by the kernel's tracepoints, and nothing left of it, however it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest
import shared_python
from mounted import on_loop

from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.machine.tracefs import tracefs
from esrally_ebs.model import State
from esrally_ebs.store import SessionFolder, load_session

pytestmark = pytest.mark.system  # none beside others: the kernel has one tracefs for all, that comes and goes
IOPS, SIZE_MIB = 2000, 64


@pytest.fixture
def instances(tmp_path: Path) -> Iterator[Path]:
    """Where tracing instances are; tracefs is mounted for the test where it is not."""
    place = tmp_path / "tracefs"
    mounted = tracefs() is None
    if mounted:
        place.mkdir()
        subprocess.run(["mount", "-t", "tracefs", "nodev", place], check=True)
    root = tracefs()
    assert root is not None
    yield root / "instances"
    if mounted:
        subprocess.run(["umount", place], check=True)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """An ext4 on a loop device on a file in memory."""
    image = Path(f"/dev/shm/test-tracing-{os.getpid()}")
    with on_loop(image, tmp_path / "mnt", mib=2 * SIZE_MIB) as point:
        yield point


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    own = {"ESRALLY_EBS_HOME": str(tmp_path / "home"), "ESRALLY_EBS_RUN": str(tmp_path / "run")}
    return {**os.environ, **own}


def trace(mount: Path, seconds: int, output: Path) -> list[str]:
    words = ["trace", "--mount", str(mount), "--seconds", str(seconds), "--output", str(output)]
    return [str(Path(sys.executable).with_name("esrally-ebs")), *words, "--size", "100GiB"]


HEEDING = ("env", "--default-signal=HUP,INT")  # which nohup, and shells for what they start with &, ignore


def fio(mount: Path, seconds: int) -> list[str]:
    job = [f"--filename={mount / 'file'}", f"--size={SIZE_MIB}m", "--rw=randread", "--bs=4k", "--direct=1"]
    job += [f"--rate_iops={IOPS}", f"--runtime={seconds}", "--time_based", "--output-format=json"]
    return ["fio", "--name=reads", "--ioengine=libaio", "--iodepth=4", *job]


def await_(condition: Callable[[], bool]) -> None:
    assert SYSTEM_CLOCK.wait_until(condition, limit_s=30)


def is_on(instances: Path) -> bool:
    events = "".join(path.read_text() for path in instances.glob("esrally-ebs-*/set_event"))
    return {"block:block_rq_issue", "block:block_rq_complete"} <= set(events.split())


def test_every_read_of_fio_is_recorded(
    mount: Path, instances: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run(fio(mount, 1), check=True, capture_output=True)  # lays the file out
    recorder = subprocess.Popen(
        trace(mount, 6, tmp_path / "out"), env=environment, stderr=subprocess.PIPE, text=True
    )
    assert recorder.stderr is not None
    assert re.match(r"recording the requests of loop\d+ for 6 s", recorder.stderr.readline())
    await_(lambda: is_on(instances))
    load = subprocess.run(fio(mount, 2), check=True, capture_output=True, text=True)
    output = recorder.communicate(timeout=60)[1]
    assert recorder.returncode == 0, output
    assert " 0 events lost, 0 requests in flight" in output
    read = json.loads(load.stdout)["jobs"][0]["read"]["total_ios"]
    ios = SessionFolder(tmp_path / "out").read_trace()
    direct = ios.filter(pc.and_(pc.equal(ios["bytes"], 4096), pc.equal(ios["op"], "read")))
    assert read <= direct.num_rows <= read + 100  # ext4 reads some of its own
    assert pc.all(pc.greater_equal(ios["done_s"], ios["at_s"])).as_py()
    assert pc.all(pc.less(pc.add(ios["offset"], ios["bytes"]), 2 * SIZE_MIB << 20)).as_py()
    session = load_session(tmp_path / "out")
    assert session.state is State.COMPLETE
    assert [*instances.glob("esrally-ebs-*"), *(tmp_path / "run").glob("*")] == []


READER = """
import os, sys, threading, time
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
print("open", flush=True)
sys.stdin.readline()
def read():
    print(threading.get_native_id())
    for place in range(100):
        os.pread(file, 4096, place * 65536)
        time.sleep(0.025)
    for place in range(100, 200):
        os.posix_fadvise(file, place * 65536, 4096, os.POSIX_FADV_WILLNEED)
threading.Thread(target=read).start()
"""


def test_what_a_thread_sleeps_for_is_told_from_what_it_has_read_ahead(
    mount: Path, instances: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    file = mount / "file"
    file.write_bytes(os.urandom(16 << 20))
    os.sync()
    with file.open() as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", READER, file], text=True, **pipes) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        recorder = subprocess.Popen(
            trace(mount, 8, tmp_path / "out"), env=environment, stderr=subprocess.PIPE, text=True
        )
        await_(lambda: len(list(instances.glob("esrally-ebs-*/per_cpu"))) == 2)
        time.sleep(0.5)
        thread = int(reader.communicate("go\n", timeout=30)[0])  # begun after the trace
        output = recorder.communicate(timeout=60)[1]
    assert recorder.returncode == 0, output
    assert "1 thread watched" in output
    ios = SessionFolder(tmp_path / "out").read_trace()
    mine = ios.filter(pc.and_(pc.equal(ios["thread"], thread), pc.equal(ios["op"], "read"))).sort_by("at_s")
    assert mine.num_rows == 200
    waited, ahead = mine.slice(0, 100), mine.slice(100)
    seen = waited.filter(pc.is_valid(waited["waiter"]))
    assert seen.num_rows >= 95  # a read may be done before its thread is asleep
    assert seen["waiter"].unique().to_pylist() == [thread]
    assert pc.all(pc.less(seen["slept_s"], seen["done_s"])).as_py()
    assert pc.all(pc.less_equal(seen["done_s"], seen["woken_s"])).as_py()
    assert ahead["waiter"].null_count == 100
    assert [*instances.glob("esrally-ebs-*"), *(tmp_path / "run").glob("*")] == []


def test_by_sudo_what_is_recorded_is_the_callers_who_reads_the_logs(
    mount: Path, instances: Path, tmp_path: Path
) -> None:
    with shared_python.environment() as folder:
        env = shared_python.by_sudo(folder, tmp_path / "run")
        roots, output = folder / "slow.log", folder / "home" / "out"
        roots.touch(mode=0o600)
        words = [str(folder / "bin" / "esrally-ebs"), *trace(mount, 3, output)[1:]]
        refused = subprocess.run(
            [*words, f"--log={roots}"], env=env, capture_output=True, text=True, check=False
        )
        assert refused.returncode == 2
        assert re.fullmatch(rf".*{roots}: Permission denied; .*\n", refused.stderr)
        (folder / "roots").mkdir(mode=0o700)
        python = folder / "roots" / "python"
        python.symlink_to((folder / "bin" / "python").resolve())
        here = {**env, "PYTHONPATH": f"{shared_python.ROOT}:{shared_python.PACKAGES}"}
        words_there = [python, "-m", "esrally_ebs", *words[1:]]
        refused = subprocess.run(words_there, env=here, capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stderr.count("\n")) == (3, 1), refused.stderr
        assert "who called by sudo, may not use it" in refused.stderr
        with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True, cwd="/") as recorder:
            await_(lambda: is_on(instances))
            subprocess.run(fio(mount, 1), check=True, capture_output=True)
            said = recorder.communicate(timeout=60)[1]
        assert recorder.returncode == 0, said
        assert {path.stat().st_uid for path in (output, *output.rglob("*"))} == {shared_python.NOBODY}
        assert SessionFolder(output).read_trace().num_rows > 1000
        assert load_session(output).state is State.COMPLETE
    assert [*instances.glob("esrally-ebs-*"), *(tmp_path / "run").glob("*")] == []


def test_what_was_recorded_until_ctrl_c_is_kept(
    mount: Path, instances: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    words = [*HEEDING, *trace(mount, 300, tmp_path / "out")]
    recorder = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    await_(lambda: is_on(instances))
    subprocess.run(fio(mount, 3), check=True, capture_output=True)
    recorder.send_signal(signal.SIGINT)
    said = recorder.communicate(timeout=60)[1]
    assert recorder.returncode == 0, said
    assert load_session(tmp_path / "out").state is State.COMPLETE
    assert SessionFolder(tmp_path / "out").read_trace().num_rows > 1000
    assert [*instances.glob("esrally-ebs-*"), *(tmp_path / "run").glob("*")] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 4), (signal.SIGHUP, 130), (signal.SIGKILL, -9)])
def test_nothing_stays_of_a_recording_without_an_io_that_is_ended(
    number: int, code: int, mount: Path, instances: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    def remains() -> list[Path]:
        return [*instances.glob("esrally-ebs-*"), *(tmp_path / "run").glob("*")]

    with (
        (mount / "held").open("w"),  # so that threads, of this process, are watched
        subprocess.Popen([*HEEDING, *trace(mount, 300, tmp_path / "out")], env=environment) as recorder,
    ):
        try:
            await_(lambda: len(list(instances.glob("esrally-ebs-*/per_cpu"))) == 2)
            time.sleep(0.5)
            recorder.send_signal(number)
            assert recorder.wait(timeout=30) == code
        finally:
            recorder.kill()
    await_(lambda: not remains())  # its reaper is at it
    assert load_session(tmp_path / "out").state in (State.CANCELLED, State.FAILED)


@pytest.mark.usefixtures("instances")
def test_a_process_that_is_not_there_is_refused(
    mount: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    words = [*trace(mount, 2, tmp_path / "out"), "--pid", str(2**30)]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert f"--pid {2**30}: there is no such process" in ended.stderr


def test_a_machine_without_tracefs_says_how_to_mount_it(
    mount: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    if tracefs() is not None:
        pytest.skip("tracefs is mounted here")
    ended = subprocess.run(
        trace(mount, 2, tmp_path / "out"), env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 3
    assert "mount -t tracefs nodev /sys/kernel/tracing" in ended.stderr
    assert not (tmp_path / "out").exists()
