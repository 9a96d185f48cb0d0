"""Measures what a volume can do by itself: runs fio jobs of the plan; gives fio's JSON, a row per direction.

Runs at the start of a session on every arm, and for some jobs again at its end. The file is laid out first,
and the volume's buckets refill before the job, so that the job alone is measured.
"""

import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

from esrally_ebs.errors import CommandError, PlanError, SetupError
from esrally_ebs.machine.mounts import unmounted
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Process, last_lines, tool_environment
from esrally_ebs.model import BaselineRow, Volume
from esrally_ebs.plan import BaselineJob
from esrally_ebs.units import KIB, MIB, format_bytes
from esrally_ebs.volumes.fio import PERCENTILES, parse_fio

Start = Callable[[], AbstractContextManager[object]]

_FIGURES = ("iops", "bandwidth_bytes_per_s", "mean_s", "p50_s", "p90_s", "p99_s", "p999_s")  # of a row
_DIRECTORY = "fio"
_FILE = "fio-bench"
_POLL_S = 0.05
_KILL_GRACE_S = 10.0

# Time limit beyond what a job takes on the slowest volume sold.
_SLOWEST_IOPS = 100
_SLOWEST_BYTES_PER_S = MIB
_START_S = 60.0


def run_job(
    job: BaselineJob,
    volume: Volume,
    *,
    pid_file: Path,
    refill: Callable[[], float],
    round_: int = 0,
    timeout_s: float | None = None,
    start: Start = nullcontext,
) -> tuple[str, list[BaselineRow]]:
    """Run one job on a file of its own below the volume's mount; returns fio's JSON, unchanged, and its rows.

    ``refill`` is called between layout and job; it returns when the volume's buckets are full. While fio
    runs, its pid is in ``pid_file``; it leads a process group without other processes, and is killed however
    this function is left. ``timeout_s`` limits each of the two runs. The volume may be detached meanwhile,
    except during blocks of ``start``, which raises once nothing may start any more: fio is ended then.

    Raises SetupError if fio is missing, fails (CommandError), or the mount is full, read-only or no longer
    the volume's; FormatError for unknown output; PlanError for a job that cannot run alone.
    """
    if not job.stonewall:
        raise PlanError(f"baseline {job.name}: jobs run together only in virtual time; remove stonewall")

    @contextmanager
    def while_mounted() -> Iterator[None]:
        with start():
            _require_mounted(volume)
            yield

    runner = functools.partial(
        _run_fio,
        what=f"baseline {job.name} on {volume.spec.name}",
        pid_file=pid_file,
        limit_s=timeout_s or _limit_s(job),
        start=while_mounted,
    )
    with _scratch_file(volume.mount, job, while_mounted) as file:
        runner(layout_argv(job, file))
        refill()
        time.sleep(job.rest)
        text = runner(job_argv(job, file))
        _require_mounted(volume)
    return text, rows_of(text, job, volume.spec.name, round_)


def layout_argv(job: BaselineJob, file: Path) -> list[str]:
    """Command that only writes the file: otherwise a write job would be its own layout."""
    return _argv("layout", file, rw="read", bs=MIB, size=job.size, create_only=1)


def job_argv(job: BaselineJob, file: Path) -> list[str]:
    """The measured command: all clones on one file, as in the published runs."""
    listed = ":".join(f"{percentile:g}" for percentile in PERCENTILES)
    return [*_argv(job.name, file, **job.options(), percentile_list=listed), "--group_reporting"]


def _argv(name: str, file: Path, **options: str | int) -> list[str]:
    escaped = str(file).replace(":", r"\:")  # fio separates file names by colons
    words = [f"--{key}={value}" for key, value in options.items()]
    # Threads: fio's forked processes lead sessions of their own and would survive a kill of fio.
    return ["fio", "--output-format=json", "--thread", f"--name={name}", f"--filename={escaped}", *words]


def _limit_s(job: BaselineJob) -> float:
    if job.lasts_s is not None:
        return job.lasts_s + _START_S
    total = job.size * job.numjobs
    operations = total / min(job.bs, 256 * KIB)  # a volume splits larger I/Os
    by_rate_s = job.size / job.bs * job.gap_s
    return _START_S + max(operations / _SLOWEST_IOPS, total / _SLOWEST_BYTES_PER_S, by_rate_s)


def _require_mounted(volume: Volume) -> None:
    """Raise if the volume is no longer mounted: I/O below its mount point would go elsewhere."""
    if (gone := unmounted(volume)) is not None:
        raise SetupError(gone)


@contextmanager
def _scratch_file(mount: Path, job: BaselineJob, start: Start) -> Iterator[Path]:
    """A path for the job's file, with room for it; the file is removed afterwards."""
    file = mount / _DIRECTORY / _FILE
    try:
        with start():
            file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        free = shutil.disk_usage(mount).free
    except OSError as error:
        raise SetupError(
            f"{file.parent}: {error.strerror}; mount the arm writable, or take another"
        ) from error
    try:
        if free < job.size:
            raise SetupError(
                f"{mount}: {format_bytes(free)} free, baseline {job.name} needs {format_bytes(job.size)}; "
                "free some space or lower the job's size"
            )
        yield file
    finally:
        with suppress(OSError):  # the error above says more than one about clearing up
            file.unlink(missing_ok=True)
            file.parent.rmdir()


def _run_fio(argv: Sequence[str], *, what: str, pid_file: Path, limit_s: float, start: Start) -> str:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with ExitStack() as ends:
            with start():  # until it is noted: what is noted is ended with the session
                process = _start(argv, out, err)
                ends.callback(_end, process, pid_file)
                if (noted := Process.of(process.pid)) is not None:  # still running
                    pid_file.write_text(f"{noted.pid} {noted.start_ticks}\n")
            _wait(process, what, limit_s)
        out.seek(0)
        err.seek(0)
        text = out.read()
        if process.returncode != 0:
            why = last_lines(err.read() or text)
            raise CommandError(f"{what}: fio: exit code {process.returncode}: {why}; {_next_step(why)}")
    return text


def _start(argv: Sequence[str], out: IO[str], err: IO[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            process_group=0,
            env=tool_environment(),
        )
    except FileNotFoundError as error:
        raise SetupError("fio: not found; install it (apt-get install fio)") from error


def _wait(process: subprocess.Popen[str], what: str, limit_s: float) -> None:
    if not SYSTEM_CLOCK.wait_until(lambda: process.poll() is not None, limit_s=limit_s, poll_s=_POLL_S):
        raise CommandError(
            f"{what}: fio still ran after {limit_s:.0f} s and was ended; does the volume hang?"
        )


def _end(process: subprocess.Popen[str], pid_file: Path) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(_KILL_GRACE_S)
    except subprocess.TimeoutExpired as error:
        raise SetupError(
            f"fio (pid {process.pid}): does not end, its I/O hangs; run 'esrally-ebs clean'"
        ) from error
    pid_file.unlink(missing_ok=True)


def _next_step(message: str) -> str:
    if "No space left" in message:
        return "free some space on the arm's mount or lower the job's size"
    if "direct" in message.lower() or "Invalid argument" in message:
        return "the file system must support direct I/O with this block size"
    return "run 'esrally-ebs doctor'"


def rows_of(text: str, job: BaselineJob, arm: str, round_: int) -> list[BaselineRow]:
    """Rows of a job on an arm, from fio's JSON. Raises FormatError if it is not understood."""
    return [
        BaselineRow(
            arm=arm,
            round=round_,
            job=job.name,
            op=figures.op,
            bs_bytes=job.bs,
            numjobs=job.numjobs,
            iodepth=job.in_flight,
            **{name: getattr(figures, name) for name in _FIGURES},
        )
        for figures in parse_fio(text, f"fio job {job.name} on {arm}")
    ]
