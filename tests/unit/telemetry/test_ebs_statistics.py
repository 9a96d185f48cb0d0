"""EBS statistics each second: the command to the device, what is done when it is refused, and what grows."""

import ctypes
import errno
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs.aws.ebs_statistics import ADMIN_COMMAND, COMMAND, COUNTERS, Bin, LogPage, StatisticsReader
from esrally_ebs.errors import MeasurementError, SetupError
from esrally_ebs.telemetry.sources import EXCEEDED, EbsStatistics

PAGE = struct.pack("<II11Q", 0x3C23B510, 0, *range(100, 111)).ljust(4096, b"\0")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    (tmp_path / "nvme1n1").touch()
    return tmp_path / "nvme1n1"


def answering(page: bytes, status: int = 0) -> Callable[[int, int, bytearray], int]:
    """A kernel that puts ``page`` where the command says, if the command is the right one."""

    def ioctl(descriptor: int, request: int, command: bytearray) -> int:
        assert os.fstat(descriptor)
        assert (request, len(command)) == (ADMIN_COMMAND, 72) == (0xC0484E41, COMMAND.size)
        opcode, _, _, namespace, _, _, _, address, _, length, cdw10, *_ = COMMAND.unpack(command)
        assert (opcode, namespace, length) == (0x02, 1, len(page))
        assert cdw10 == 0xD0 | (len(page) // 4 - 1) << 16
        ctypes.memmove(address, page, length)
        return status

    return ioctl


def refusing(number: int) -> Callable[[int, int, bytearray], int]:
    def ioctl(descriptor: int, request: int, command: bytearray) -> int:
        raise OSError(number, os.strerror(number))

    return ioctl


def test_the_page_is_read_by_one_admin_command(device: Path) -> None:
    reader = StatisticsReader(device, ioctl=answering(PAGE))
    assert reader.read().counters == dict(zip(COUNTERS, range(100, 111), strict=True))
    assert reader.read() == reader.read()
    reader.close()


@pytest.mark.parametrize(
    ("there", "command"),
    [({"ebsnvme", "nvme"}, ["ebsnvme", "stats", "-j"]), ({"nvme"}, ["nvme", "amzn", "stats", "-o", "json"])],
)
def test_a_refused_ioctl_is_left_to_the_tool_that_is_there(
    device: Path, there: set[str], command: list[str]
) -> None:
    histogram = {"num_bins": 0, "bins": []}
    fields: dict[str, Any] = dict.fromkeys(COUNTERS, 7)
    fields |= {"read_io_latency_histogram": histogram, "write_io_latency_histogram": histogram}
    commands: list[list[Any]] = []

    def run(argv: list[Any], *, timeout_s: float) -> str:
        commands.append(argv)
        return json.dumps(fields)

    reader = StatisticsReader(
        device, ioctl=refusing(errno.EACCES), run=run, which=lambda name: name if name in there else None
    )
    assert [reader.read().counters["total_read_ops"] for _ in range(2)] == [7, 7]
    assert commands == [[*command, device]] * 2


def test_without_root_and_tools_one_line_says_what_to_do(device: Path) -> None:
    reader = StatisticsReader(device, ioctl=refusing(errno.EPERM), which=lambda name: None)
    with pytest.raises(SetupError, match=r"need root.*run as root, or install amazon-ec2-utils"):
        reader.read()


def test_a_device_without_the_page_or_gone_is_one_line(device: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="NVMe status 0x4109"):
        StatisticsReader(device, ioctl=answering(PAGE, status=0x4109), which=lambda name: None).read()
    with pytest.raises(SetupError, match="No such file or directory; is it attached"):
        StatisticsReader(tmp_path / "gone").read()


def page(*, read: tuple[Bin, ...] = (), **counters: int) -> LogPage:
    zeros = dict.fromkeys(COUNTERS, 0)
    return LogPage(counters={**zeros, **counters}, reads=read, writes=())


def pages(*given: LogPage) -> Callable[[], LogPage]:
    """A volume whose pages are these, one a second."""
    return iter(given).__next__


def values(source: EbsStatistics) -> dict[str, float]:
    return {value.metric: value.value for value in source.read(0.0)}


def test_counters_and_bins_are_told_as_they_grew_and_the_queue_as_it_is() -> None:
    source = EbsStatistics(
        [
            pages(
                page(total_read_ops=10, volume_queue_length=3, read=(Bin(0, 256, 5), Bin(256, 512, 5))),
                page(
                    total_read_ops=25,
                    total_read_time=6_000,
                    ebs_volume_performance_exceeded_iops=700_000,
                    volume_queue_length=1,
                    read=(Bin(0, 256, 5), Bin(256, 512, 20)),
                ),
            )
        ]
    )
    first = values(source)
    assert first == {"ebs.queue_length": 3} | {f"ebs.exceeded_s.{limit}": 0 for limit in EXCEEDED}
    second = values(source)
    assert second["ebs.reads"] == 15
    assert second["ebs.read_time_s"] == pytest.approx(0.006)
    assert second["ebs.exceeded_s.iops"] == pytest.approx(0.7)
    assert second["ebs.queue_length"] == 1
    assert {name: value for name, value in second.items() if "_us." in name} == {"ebs.reads_us.256-512": 15}


def test_volumes_of_a_stripe_ask_for_more_than_a_limit_at_the_same_time() -> None:
    us = [300_000, 500_000]
    source = EbsStatistics([pages(page(ec2_instance_ebs_performance_exceeded_iops=each)) for each in us])
    assert values(source)["ebs.exceeded_s.instance-iops"] == pytest.approx(0.4)


def test_the_volumes_of_a_stripe_are_added_up() -> None:
    first = pages(page(), page(total_write_bytes=4096, read=(Bin(0, 256, 1),)))
    second = pages(page(), page(total_write_bytes=8192, read=(Bin(0, 256, 2),)))
    source = EbsStatistics([first, second])
    source.read(0.0)
    metrics = values(source)
    assert (metrics["ebs.write_bytes"], metrics["ebs.reads_us.0-256"]) == (12288, 3)


def test_a_bin_that_went_round_at_32_bits_goes_on() -> None:
    source = EbsStatistics([pages(page(read=(Bin(0, 256, 2**32 - 2),)), page(read=(Bin(0, 256, 3),)))])
    source.read(0.0)
    assert values(source)["ebs.reads_us.0-256"] == 5


def test_counters_that_begin_anew_are_an_error_and_growth_goes_on_after_it() -> None:
    source = EbsStatistics([pages(page(total_read_ops=9), page(), page(total_read_ops=2))])
    source.read(0.0)
    with pytest.raises(MeasurementError, match="total_read_ops has begun anew"):
        source.read(1.0)
    assert values(source)["ebs.reads"] == 2


def test_the_growth_of_one_member_hides_no_other_that_begins_anew() -> None:
    first = pages(page(total_read_ops=9), page(total_read_ops=2))
    second = pages(page(total_read_ops=100), page(total_read_ops=500))
    source = EbsStatistics([first, second])
    source.read(0.0)
    with pytest.raises(MeasurementError, match="total_read_ops has begun anew"):
        source.read(1.0)
