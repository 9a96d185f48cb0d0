"""Whether the clock is right: what the kernel says, in its own bytes, and what the guard makes of it."""

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from facts_of_arms import ALIKE, PLAN, arm, check_of

from esrally_ebs.checks.facts import ClockFacts, Facts
from esrally_ebs.checks.guards import guard
from esrally_ebs.checks.idle import clock_is_synchronised
from esrally_ebs.model import Kind

# struct timex of 64 bits up to its status; whoever asks must give 208 bytes
TIMEX = struct.Struct("=I4xqqqqi")
TIMEX_BYTES = 208
TIME_OK, TIME_ERROR = 0, 5
STA_PLL, STA_UNSYNC, STA_NANO = 0x1, 0x40, 0x2000

# as Linux 6.18 wrote it in a virtual machine without any NTP client
RECORDED = bytes.fromhex(
    "0000000000000000000000000000000000000000000000000024f400000000000024f4000000000040000000000000000200"
    "00000000000001000000000000000000f401000000005250026b000000006e42070000000000102700000000000000000000"
).ljust(TIMEX_BYTES, b"\0")


def timex(maxerror_us: int, status: int) -> bytes:
    """What the kernel writes: a frequency of -12 ppm, an error of some microseconds."""
    return TIMEX.pack(0, 1500, -12 << 16, maxerror_us, 40, status).ljust(TIMEX_BYTES, b"\xa5")


def kernel(state: int, written: bytes) -> SimpleNamespace:
    """A libc whose adjtimex(2) writes these bytes where the caller has room for them."""

    def adjtimex(argument: Any) -> int:  # noqa: ANN401 - a pointer
        assert ctypes.string_at(argument, 4) == bytes(4)  # modes: to ask, not to set
        ctypes.memmove(argument, written, len(written))
        return state

    return SimpleNamespace(adjtimex=adjtimex)


@pytest.mark.parametrize(
    ("who", "state", "written", "synchronised"),
    [
        ("chrony with rtcsync", TIME_OK, timex(1_276, STA_PLL | STA_NANO), True),
        ("chrony without it", TIME_ERROR, timex(1_276, STA_UNSYNC | STA_NANO), True),
        ("an hour ago, by ntpd", TIME_OK, timex(1_800_000, STA_PLL), True),
        ("almost nine hours ago", TIME_OK, timex(15_999_999, STA_PLL), True),
        ("nobody any more", TIME_ERROR, timex(16_000_000, STA_PLL | STA_UNSYNC), False),
        ("nobody since it booted", TIME_ERROR, RECORDED, False),
        ("a seccomp filter that forbids to ask", -1, b"", None),
    ],
)
def test_a_clock_is_held_as_long_as_its_error_is_bounded(
    who: str, state: int, written: bytes, synchronised: bool | None
) -> None:
    assert clock_is_synchronised(kernel(state, written)) is synchronised, who


def test_a_libc_that_cannot_ask_says_nothing() -> None:
    assert clock_is_synchronised(SimpleNamespace(printf=len)) is None


class NtpTime(ctypes.Structure):
    """``struct ntptimeval``, another call's view of the same clock."""

    _fields_ = (("time", ctypes.c_long * 2), ("maxerror", ctypes.c_long), ("rest", ctypes.c_long * 16))


def test_this_kernel_is_read_as_another_call_reads_it() -> None:
    other = NtpTime()
    if ctypes.CDLL(None).ntp_gettime(ctypes.byref(other)) < 0:
        assert clock_is_synchronised() is None
    else:
        assert clock_is_synchronised() is (other.maxerror < 16_000_000)


AWS_TELLS, KERNEL_TELLS = "agrees with AWS's", "is synchronised"


@pytest.mark.parametrize(
    ("clock", "mark", "text"),
    [
        (ClockFacts(synchronised=True), "ok", KERNEL_TELLS),
        (ClockFacts(synchronised=True, off_s=0.4), "ok", KERNEL_TELLS),
        (ClockFacts(off_s=-0.7), "ok", AWS_TELLS),
        (ClockFacts(synchronised=True, off_s=2.6), "FAILED", "+3 s off AWS's"),
        (ClockFacts(synchronised=False, off_s=-30.0), "FAILED", "-30 s off AWS's"),
        (ClockFacts(synchronised=False, off_s=0.4), "warning", "not synchronised"),
        (ClockFacts(), "unknown", "neither the kernel nor AWS told"),
    ],
)
def test_the_guard_says_what_is_known_of_the_clock_and_by_whom(
    clock: ClockFacts, mark: str, text: str
) -> None:
    check = check_of("clock", *ALIKE, clock=clock)
    assert check is not None
    assert check.mark == mark
    assert text in check.text
    assert check.ok == (mark == "ok")
    assert check.ok or "synchronise it with chrony" in check.mend
    assert check.forbids == (mark == "FAILED")


def test_away_from_aws_nobody_asks_for_the_clock() -> None:
    here = arm("a", kind=Kind.DIRECTORY)
    checks = guard(Facts(plan=PLAN, arms=(here,)))
    assert "clock" not in {check.name for check in checks}
