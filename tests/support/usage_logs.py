"""What iostat writes of one volume, and the times between what logs say."""

from esrally_ebs.advice.usage import Interval

IOSTAT = """Linux 6.1.0 (host)  11/22/2026  _x86_64_  (2 CPU)

11/22/2026 11:59:50 PM
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00    0.00    0.00   98.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s
nvme1n1         99.00   9999.00     0.00   0.00    0.50    16.00    1.00      4.00

11/23/2026 12:00:00 AM
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00    0.00    0.00   98.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s
nvme1n1       1000.00  16000.00     0.00   0.00    0.50    16.00   10.00     40.00
"""


def idle(seconds: float) -> Interval:
    """In which nothing was done."""
    return Interval(seconds=seconds, reads=0, read_bytes=0, writes=0, written_bytes=0)
