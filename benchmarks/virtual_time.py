"""How fast virtual time is: I/Os per second of wall time by job, as Python and compiled, on one core.

Run anywhere: ``python benchmarks/virtual_time.py``. Takes about 15 s; every row is of this run.
"""

import time

from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.simulate import SimulatedVolume
from esrally_ebs.units import GIB, KIB, MIB

_SPEC = VolumeSpec(name="gp2", type="gp2", size_bytes=100 * GIB)
_PLAIN_IOS, _COMPILED_IOS = 100_000, 4_000_000


def main() -> None:
    """Print the table."""
    started = time.perf_counter()
    _run(_job("randread", clones=1, ios=256), compiled=True)
    print(f"compiling, once per process: {time.perf_counter() - started:.1f} s\n")
    print(f"{'job':24}{'Python':>12}{'compiled':>12}   I/Os per second")
    for rw, clones in (("randread", 1), ("randread", 16), ("readwrite", 16), ("randread", 256)):
        plain = _rate(_job(rw, clones=clones, ios=_PLAIN_IOS), compiled=False)
        compiled = _rate(_job(rw, clones=clones, ios=_COMPILED_IOS), compiled=True)
        print(f"{f'{rw} 4k x{clones}':24}{plain:>12,.0f}{compiled:>12,.0f}")
    burst = BaselineJob(
        name="burst", rw="write", bs=4 * KIB, engine="libaio", iodepth=128, size=MIB, runtime=7200
    )
    started = time.perf_counter()
    _run(burst, compiled=True)
    print(f"\ntwo hours of a 100 GiB gp2, 128 I/Os in flight: {time.perf_counter() - started:.2f} s")


def _job(rw: str, *, clones: int, ios: int) -> BaselineJob:
    return BaselineJob.model_validate(
        {"name": "job", "rw": rw, "bs": 4 * KIB, "numjobs": clones, "size": ios // clones * 4 * KIB}
    )


def _rate(job: BaselineJob, *, compiled: bool) -> float:
    started = time.perf_counter()
    _run(job, compiled=compiled)
    return job.numjobs * (job.size // job.bs) / (time.perf_counter() - started)


def _run(job: BaselineJob, *, compiled: bool) -> None:
    SimulatedVolume(_SPEC).run(job, compiled=compiled)


if __name__ == "__main__":
    main()
