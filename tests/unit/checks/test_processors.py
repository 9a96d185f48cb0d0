"""Whether processors are the machine's own and free: made counters, and a second of this machine."""

import errno
import os
import threading
import time

from esrally_ebs.checks.idle import check_processors
from esrally_ebs.machine.procfs import ProcessorCounters
from esrally_ebs.model import Check, Severity


def counters(busy_s: float, idle_s: float, stolen_s: float) -> ProcessorCounters:
    return ProcessorCounters(busy_s=busy_s, stolen_s=stolen_s, total_s=busy_s + idle_s + stolen_s)


def check(*parts: tuple[float, float, float]) -> Check:
    """Of two parts: how many seconds processors were busy, idle and stolen, none of it by this process."""
    now, read = (100.0, 100.0, 100.0), []
    for part in parts:
        after = tuple(was + more for was, more in zip(now, part, strict=True))
        read += [counters(*now), counters(*after)]
        now = after
    times = iter(read)
    return check_processors(counters=lambda: next(times), watch=lambda seconds: None, own_s=lambda: 0.0)


def test_processors_that_nobody_else_uses_are_good() -> None:
    result = check((0.1, 0.9, 0.0), (0.0, 1.0, 0.0))

    assert (result.ok, result.value) == (True, "steal 0%, others 0%")


def test_what_the_host_keeps_is_warned_of_as_a_share_of_what_was_asked_for() -> None:
    # 0.05 s of 1.0 s asked for; 0.19 of 1.0 s are other processes', which is not yet much
    result = check((0.19, 0.76, 0.05), (0.76, 0.19, 0.0))

    assert (result.mark, result.severity, result.value) == ("warning", Severity.WARN, "steal 5%, others 19%")
    assert result.text.startswith(
        "the host keeps 5% of the processor time that this machine asks for (steal): "
    )
    assert result.text.endswith(f"; {result.mend}")
    assert "whose processors are its own" in result.mend


def test_other_work_is_warned_of_when_it_goes_on_through_both_parts() -> None:
    result = check((0.9, 1.1, 0.0), (0.5, 1.5, 0.0))

    assert (result.mark, result.value) == ("warning", "steal 0%, others 25%")
    assert result.text.startswith("other processes use 25% of this machine's processors: ")
    assert "top" in result.mend
    assert check((0.9, 1.1, 0.0), (0.1, 1.9, 0.0)).ok  # something only started up


def test_both_are_said_in_one_line_and_forbid_nothing() -> None:
    result = check((0.6, 0.0, 0.4), (0.6, 0.0, 0.4))

    assert not result.forbids
    assert "(steal), and other processes use 60% of" in result.text
    assert "its own; end what uses them (top)" in result.mend
    assert "\n" not in result.text


def test_what_cannot_be_read_is_unknown() -> None:
    def no_such_file() -> ProcessorCounters:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/stat")

    result = check_processors(counters=no_such_file)

    assert (result.mark, result.forbids) == ("unknown", False)
    assert result.text.startswith("could not tell: ")


def test_this_machines_processors_are_asked_for_and_none_of_that_counts_as_others() -> None:
    nice, threads = os.getpriority(os.PRIO_PROCESS, 0), set(threading.enumerate())
    began, used = time.monotonic(), time.process_time()
    result = check_processors()
    seconds, used = time.monotonic() - began, time.process_time() - used

    assert used > 0  # whatever else runs here has left
    assert os.getpriority(os.PRIO_PROCESS, 0) == nice
    assert set(threading.enumerate()) <= threads  # one of an earlier test may have ended
    others = float(result.value.split()[-1].rstrip("%")) / 100
    # What this process had and what others had is at most all there is, give or take ticks of 10 ms.
    assert others + used / seconds / (os.cpu_count() or 1) < 1.15
