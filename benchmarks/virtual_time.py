"""How fast virtual time is: I/Os per second of processor time by job, as Python and compiled, on one core.

Run anywhere: ``python benchmarks/virtual_time.py``. Takes about 30 s; every row is of this run.
"""

import json
import time

from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.units import GIB, KIB, MIB
from esrally_ebs.volumes.virtual import SimulatedVolume

_SPEC = VolumeSpec(name="gp2", type="gp2", size_bytes=100 * GIB)
_PLAIN_IOS, _COMPILED_IOS = 40_000, 2_000_000


def main() -> None:
    """Print the table."""
    started = time.process_time()
    _run(_job(ios=256), compiled=True)
    print(f"compiling, once per process: {time.process_time() - started:.1f} s\n")
    print(f"{'job':26}{'Python':>12}{'compiled':>12}   I/Os per second of processor time")
    for title, of in (
        ("randread 4k x1", {}),
        ("randread 4k x16", {"numjobs": 16}),
        ("readwrite 4k x16", {"numjobs": 16, "rw": "readwrite"}),
        ("randread 4k, depth 32", {"iodepth": 32}),
        ("randread 4k, depth 256", {"iodepth": 256}),
        ("randread 4k x16, depth 16", {"numjobs": 16, "iodepth": 16}),
    ):
        plain = _rate(_job(ios=_PLAIN_IOS, **of), compiled=False)
        compiled = _rate(_job(ios=_COMPILED_IOS, **of), compiled=True)
        print(f"{title:26}{plain:>12,.0f}{compiled:>12,.0f}")
    started = time.process_time()
    ios = _burst()
    seconds = time.process_time() - started
    print(f"\nburst, exhaustion, two hours of rest, second burst: {ios:,} I/Os in {seconds:.2f} s")


def _burst() -> int:
    """The hours of the study of 2014, as two jobs of 144 I/Os in flight: how many I/Os they did."""
    volume = SimulatedVolume(_SPEC)
    total = 0
    for rest_s, runtime_s in ((0, 5400), (7200, 3600)):
        volume.rest(rest_s)
        job = BaselineJob(
            name="burst", rw="write", bs=4 * KIB, numjobs=144, size=MIB, runtime=float(runtime_s)
        )
        total += json.loads(volume.run(job, compiled=True))["jobs"][0]["write"]["total_ios"]
    return total


def _job(*, ios: int, rw: str = "randread", numjobs: int = 1, iodepth: int = 1) -> BaselineJob:
    options = {"name": "job", "rw": rw, "bs": 4 * KIB, "numjobs": numjobs, "iodepth": iodepth}
    engine = "psync" if iodepth == 1 else "libaio"
    return BaselineJob.model_validate(options | {"engine": engine, "size": ios // numjobs * 4 * KIB})


def _rate(job: BaselineJob, *, compiled: bool) -> float:
    started = time.process_time()
    _run(job, compiled=compiled)
    return job.numjobs * (job.size // job.bs) / (time.process_time() - started)


def _run(job: BaselineJob, *, compiled: bool) -> None:
    SimulatedVolume(_SPEC).run(job, compiled=compiled)


if __name__ == "__main__":
    main()
