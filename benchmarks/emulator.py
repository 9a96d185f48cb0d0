"""What the emulated volume holds: latency at queue depth 1, its caps, its CPU, how near it comes to the most
that gp3 can be bought with, and the raw loop device beside it.

Run as root on a machine with fio: ``python benchmarks/emulator.py``. Takes about 80 s; every row is of this
run.
"""

import json
import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steal import steal_reported

from esrally_ebs.machine.processes import run
from esrally_ebs.model import Volume, VolumeSpec
from esrally_ebs.session import clean
from esrally_ebs.store import running
from esrally_ebs.units import GIB, MIB
from esrally_ebs.volumes.backends import attach
from esrally_ebs.volumes.emulated.control import change
from esrally_ebs.volumes.emulated.daemon.process import PROCESS_NAME

_TARGET_S = 280e-6
_RUN_S = 3
_RAMP_S = 1  # not measured by fio, but in the daemon's CPU time
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Result:
    """One fio job: operations and bytes per second, median latency, and the daemon's CPU during it."""

    iops: float
    mib_per_s: float
    p50_us: float
    cores: float


def main() -> None:
    """Measure and print the table."""
    spec = VolumeSpec(
        name="bench", type="gp3", size_bytes=40 * GIB, iops=16_000, throughput_bytes_per_s=1000 * MIB
    )
    # The most that gp3 has had since September 2025; it takes 160 GiB.
    most = replace(spec, name="most", size_bytes=160 * GIB, iops=80_000, throughput_bytes_per_s=2000 * MIB)
    directory = running.begin(f"bench-{os.getpid()}")  # so that nobody's clean takes it for abandoned
    with ExitStack() as stack, steal_reported():
        stack.callback(clean.take_down, directory.name)
        volume, fast = (_laid_out(of, directory) for of in (spec, most))
        print(f"{'what':<58}{'target':>9}{'measured':>12}{'off by':>9}{'daemon':>12}")
        _latency_rows(volume, volume.mount / "fio")
        _cap_rows(volume, volume.mount / "fio", depth=64)
        _cap_rows(fast, fast.mount / "fio", depth=128)
        _reference_rows(volume, stack.enter_context(_plain_loop()))


def _laid_out(spec: VolumeSpec, directory: Path) -> Volume:
    """A volume with a file of 1 GiB."""
    volume = attach(spec, directory / spec.name)
    change(volume.control, unlimited=True)
    _fio(volume.mount / "fio", "write", 1024, 16, extra=["--size=1g", "--end_fsync=1"])
    change(volume.control, unlimited=False)
    return volume


def _latency_rows(volume: Volume, file: Path) -> None:
    for busy in (0, 2):
        beside = f", {busy} busy processes beside" if busy else ""
        for op in ("randread", "randwrite"):
            change(volume.control, fixed_latency_s=(_TARGET_S, _TARGET_S))
            with _busy(busy):
                got = _measure(volume, file, op, 16, 1, engine="psync")
            change(volume.control, fixed_latency_s=None)
            _row(f"{op} 16k depth 1, p50 us{beside}", _TARGET_S * 1e6, got.p50_us, got.cores)


def _cap_rows(volume: Volume, file: Path, *, depth: int) -> None:
    iops, throughput = volume.spec.iops, volume.spec.throughput_bytes_per_s
    assert iops is not None
    assert throughput is not None
    for op in ("randread", "randwrite"):
        change(volume.control, drain=True)  # else saved tokens would count; so would those of fio's start
        got = _measure(volume, file, op, 16, depth)
        _row(f"{op} 16k depth {depth}, IOPS", iops, got.iops, got.cores)
    for op in ("randread", "randwrite"):
        change(volume.control, drain=True)
        got = _measure(volume, file, op, 256, 32)
        _row(f"{op} 256k depth 32, MiB/s", throughput / MIB, got.mib_per_s, got.cores)


def _reference_rows(volume: Volume, loop: Path) -> None:
    """No limits and no latency, against a loop device on a file in memory; reads only, on both devices."""
    change(volume.control, unlimited=True)
    device = Path("/dev") / str(volume.device)
    for bs_kib, depth, unit in ((16, 64, "IOPS"), (256, 32, "MiB/s")):
        plain = _measure(volume, loop, "randread", bs_kib, depth)
        ours = _measure(volume, device, "randread", bs_kib, depth)
        of_plain, of_ours = (r.iops if unit == "IOPS" else r.mib_per_s for r in (plain, ours))
        print(
            f"{f'unlimited against plain loop, {bs_kib}k depth {depth}, {unit}':<58}"
            f"{of_plain:>9,.0f}{of_ours:>12,.0f}{of_ours / of_plain:>8.2f}x{ours.cores:>6.2f} cores"
        )


def _row(what: str, target: float, measured: float, cores: float) -> None:
    print(f"{what:<58}{target:>9,.0f}{measured:>12,.1f}{measured / target - 1:>+9.1%}{cores:>6.2f} cores")


def _measure(volume: Volume, file: Path, op: str, bs_kib: int, depth: int, engine: str = "libaio") -> Result:
    before = _cpu_s(volume)
    job = _fio(
        file,
        op,
        bs_kib,
        depth,
        extra=["--time_based", f"--runtime={_RUN_S}", f"--ramp_time={_RAMP_S}", f"--ioengine={engine}"],
    )
    side = job["write" if "write" in op else "read"]
    return Result(
        iops=side["iops"],
        mib_per_s=side["bw_bytes"] / MIB,
        p50_us=side["clat_ns"]["percentile"]["50.000000"] / 1000,
        cores=(_cpu_s(volume) - before) / (side["runtime"] / 1000 + _RAMP_S),
    )


def _fio(file: Path, op: str, bs_kib: int, depth: int, extra: list[str]) -> Mapping[str, Any]:
    shape = [f"--rw={op}", f"--bs={bs_kib}k", f"--iodepth={depth}", "--size=1g", "--direct=1"]
    words = ["fio", "--name=bench", f"--filename={file}", *shape, "--ioengine=libaio", "--output-format=json"]
    text = run([*words, *extra], timeout_s=120)
    job: Mapping[str, Any] = json.loads(text)["jobs"][0]
    return job


def _cpu_s(volume: Volume) -> float:
    pid = json.loads((volume.control.parent / PROCESS_NAME).read_text())["pid"]
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS  # utime and stime


def _spin() -> None:
    while True:
        pass


@contextmanager
def _busy(count: int) -> Iterator[None]:
    processes = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


@contextmanager
def _plain_loop() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        run(["dd", "if=/dev/zero", f"of={file.name}", "bs=1M", "count=1024", "status=none"], timeout_s=60)
        device = run(["losetup", "--find", "--show", file.name], timeout_s=30).strip()
        try:
            yield Path(device)
        finally:
            run(["losetup", "--detach", device], timeout_s=30)


if __name__ == "__main__":
    main()
