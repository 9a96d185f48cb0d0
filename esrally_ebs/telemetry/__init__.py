"""What devices, page cache and limiters do while the race runs: arms in, rows once a second out.

Started with the benchmark in Rally's driver process; the rows go to ``telemetry/*.parquet``.
"""

from esrally_ebs.telemetry.counters import snapshot
from esrally_ebs.telemetry.gc_log import GcLog
from esrally_ebs.telemetry.processors import check_processors
from esrally_ebs.telemetry.sampler import CUT, Sampler
from esrally_ebs.telemetry.thread import SamplerThread
from esrally_ebs.telemetry.watch import Watch

__all__ = ["CUT", "GcLog", "Sampler", "SamplerThread", "Watch", "check_processors", "snapshot"]
