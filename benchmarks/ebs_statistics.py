"""What it costs to sample the EBS statistics of four volumes once a second: CPU of this process, of one core.

    .venv/bin/python benchmarks/ebs_statistics.py [--volumes 4] [--seconds 20]

Four arms of one volume each; every second each volume's page has new counters, and six bins of either
histogram have grown, as on a busy volume. *Reading* asks the sources as the sampler does. *Recording* also
writes the rows to Parquet parts, as in a session. Both on the sampler's own beat, in its own thread.

The page comes from memory: no NVMe device of EBS is here, so the time that the kernel and the device take for
the command itself is not in it. Must reach: 1 % for four volumes.
"""

import argparse
import ctypes
import struct
import tempfile
import time
from pathlib import Path

from esrally_ebs.aws.ebs_statistics import COMMAND, StatisticsReader
from esrally_ebs.model import TelemetryPoint
from esrally_ebs.plan import parse_plan
from esrally_ebs.store import SessionFolder
from esrally_ebs.telemetry.sampler import SamplerThread, Sink
from esrally_ebs.telemetry.sources import EbsStatistics

PLAN = 'name = "counters"\narm = [{name = "a", type = "gp3"}]\n'
_BINS = 28  # powers of two from 1 us, as EBS shows


class Volume:
    """A device that answers the log page command with counters that grow."""

    def __init__(self) -> None:
        self._asked = 0

    def ioctl(self, descriptor: int, request: int, command: bytearray) -> int:
        """Put the next page where the command says."""
        self._asked += 1
        fields = COMMAND.unpack(command)
        page = self._page()
        ctypes.memmove(fields[7], page, fields[9])
        return 0

    def _page(self) -> bytes:
        page = bytearray(4096)
        struct.pack_into(
            "<II11Q", page, 0, 0x3C23B510, 0, *[self._asked * (at + 1) * 1000 for at in range(11)]
        )
        for offset in (512, 2056):
            struct.pack_into("<Q", page, offset, _BINS)
            for at in range(_BINS):
                count = self._asked * 100 if 8 <= at < 14 else 0
                struct.pack_into("<QQI", page, offset + 8 + 24 * at, 2**at >> 1, 2**at, count)
        return bytes(page)


class Sampled:
    """What the sampler does with the sources, for these alone."""

    def __init__(self, sources: list[EbsStatistics]) -> None:
        self._sources = sources

    def sample(self) -> list[TelemetryPoint]:
        """A row per value."""
        return [
            TelemetryPoint(
                arm=f"arm{at}",
                device="nvme1n1",
                at_s=time.time(),
                metric=v.metric,
                value=v.value,
                unit=v.unit,
            )
            for at, source in enumerate(self._sources)
            for v in source.read(time.monotonic())
        ]


def cost(volumes: int, seconds: float, folder: Path, sink: Sink) -> tuple[float, int]:
    """CPU seconds per second, and rows in all."""
    rows = 0

    def counted(points: list[TelemetryPoint]) -> None:
        nonlocal rows
        rows += len(points)
        sink(points)

    readers = [StatisticsReader(folder / "device", ioctl=Volume().ioctl) for _ in range(volumes)]
    sampled = Sampled([EbsStatistics([reader.read]) for reader in readers])
    began, wall = time.process_time(), time.monotonic()
    thread = SamplerThread(sampled.sample, counted)
    thread.start()
    time.sleep(seconds)
    thread.stop()
    spent = (time.process_time() - began) / (time.monotonic() - wall)
    for reader in readers:
        reader.close()
    return spent, rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--volumes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "device").touch()
        session = SessionFolder.create(folder, "s", kind="race", plan=parse_plan(PLAN, "this benchmark"))
        idle, _ = cost(0, given.seconds / 2, folder, lambda points: None)
        reading, rows = cost(given.volumes, given.seconds, folder, lambda points: None)
        with session.part_writer("telemetry") as writer:
            recording, _ = cost(given.volumes, given.seconds, folder, writer.add)
    print(f"{given.volumes} volumes, {given.seconds:.0f} s, {rows / given.seconds:.0f} rows a second")
    print(f"nothing sampled     {idle:8.3%} of one core")
    print(f"reading             {reading:8.3%}")
    print(f"reading, recording  {recording:8.3%}")


if __name__ == "__main__":
    main()
