"""What ``advise`` predicts of fio's reads and writes, against fio itself on twelve other settings.

    python benchmarks/advice_fio.py go RESULTS [LOCK]  # what is left of it
    python benchmarks/advice_fio.py table RESULTS      # the errors of the predictions so far

Needs root and fio. One I/O after the other, so that each is a request: 70 % are reads, of 4, 16 and 64 KiB,
at any place; one job sends them at once, another thinks for 2 ms before each. First both run on an emulated
gp3 3,000/125, which keeps its I/Os; what each would take on twelve settings is predicted, and is the first
line of the file of results. Then they run on each setting, a line each; whatever ends the benchmark, the next
call goes on from there. A cell is the p50 of a setting, a job, a direction and a size. Must (issue 17): 90 %
of them within 5 %.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from advice import SETTINGS, TODAY, plan_file
from races import append, be_called, in_turn, lines_of

from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.recording import IOS, Recording
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Volume, VolumeSpec
from esrally_ebs.session import manual
from esrally_ebs.units import KIB
from esrally_ebs.volumes.emulated import control
from esrally_ebs.volumes.emulated.trace import take_trace
from esrally_ebs.volumes.virtual.replay import Column

THINKS_US = {"at once": 0, "thinking": 2000}  # by job
IOS_A_JOB = 6000  # some 600 writes of each size
AREA = "256m"  # of the device
MIX = ("--rw=randrw", "--rwmixread=70", "--bssplit=4k/34:16k/33:64k/33", "--norandommap", "--ioengine=psync")
Medians = dict[str, dict[str, float]]  # by job, then by direction and size: seconds


class Mix(NamedTuple):
    """fio's log of a job, as columns by I/O."""

    took_s: Column
    write: Column  # 1, or 0
    bytes: Column
    offset: Column

    @property
    def kind(self) -> Column:
        """Direction and size."""
        pairs = zip(self.write, self.bytes, strict=True)
        return np.array([f"{'write' if write else 'read'} {size // KIB}k" for write, size in pairs])

    def medians_s(self) -> dict[str, float]:
        kind = self.kind
        return {str(one): float(np.median(self.took_s[kind == one])) for one in np.unique(kind)}


@contextmanager
def bare(spec: VolumeSpec) -> Iterator[Volume]:
    """An emulated volume whose device is fio's alone: no file system writes to it besides."""
    with plan_file("advice-fio-mix", [], [spec]) as plan:
        (volume,) = manual.up(plan)
        try:
            subprocess.run(["umount", volume.mount], check=True)
            with control.unlimited(volume.control):
                fio(volume, "--rw=write", "--bs=1m", "--ioengine=psync")
            yield volume
        finally:
            manual.down(plan)


def fio(volume: Volume, *words: str, folder: str | None = None) -> None:
    job = ["fio", "--name=mix", f"--filename=/dev/{volume.device}", f"--size={AREA}", "--direct=1", *words]
    subprocess.run([*job, "--output=/dev/null"], check=True, cwd=folder)


def run(volume: Volume, thinks_us: int) -> Mix:
    """Run a job on full buckets; the same I/Os on every volume."""
    assert volume.control is not None
    control.change(volume.control, refill=True, credits=volume.spec.credits)
    with tempfile.TemporaryDirectory(prefix="advice-fio-") as folder:
        words = [f"--thinktime={thinks_us}", f"--number_ios={IOS_A_JOB}", "--write_lat_log=mix"]
        fio(volume, *MIX, *words, "--log_offset=1", folder=folder)
        return mix_of(Path(folder) / "mix_lat.1.log")


def mix_of(log: Path) -> Mix:
    """A log of ``write_lat_log`` with ``log_offset``: ms, ns, direction, bytes, offset, priority."""
    took_ns, *rest = np.loadtxt(log, delimiter=",", usecols=(1, 2, 3, 4), dtype=np.int64).T
    return Mix(took_ns / 1e9, *rest)


def recorded_mix(mix: Mix, kept: pa.Table) -> Recording:
    """A request for each I/O of fio's log, from those that the volume kept, which may be more.

    fio tells when a request was done to a millisecond: it is taken to begin when its I/O reached the volume,
    so that all that the path takes comes after it. Raises MeasurementError where an I/O was not kept.
    """
    write = kept["op"].to_numpy(zero_copy_only=False) == "write"
    ios = enumerate(zip(write, kept["bytes"].to_numpy(), kept["offset"].to_numpy(), strict=True))
    wanted = zip(mix.write, mix.bytes, mix.offset, strict=True)
    places = [next((place for place, io in ios if io == one), None) for one in wanted]
    if None in places:
        raise MeasurementError("the volume did not keep the I/Os of fio; let nothing else use its device")
    kept = kept.take(places)
    requests = len(places)
    columns = {name: kept[name].to_numpy() for name in IOS}
    return Recording(
        spec=TODAY,
        task=mix.kind,
        round=np.zeros(requests),
        began_s=columns["at_s"],
        latency_s=mix.took_s,
        pause_s=np.zeros(requests),
        cold=np.zeros(requests, bool),
        ios=columns | {"write": mix.write, "ahead": np.full(requests, -1)},
        first=np.arange(requests + 1),
    )


def foreseen(recordings: Mapping[str, Recording]) -> dict[str, Medians]:
    """By setting and job the medians that are predicted. Raises MeasurementError where a self-check fails."""
    predictors = {job: Predictor(of, thread_of(of)) for job, of in recordings.items()}
    for job, predictor in predictors.items():
        print(f"{job}: self-check", {p: f"{error:+.2%}" for p, error in predictor.errors.items()})
        predictor.require_right()
    return {
        name: {
            job: {kind: times_s[0] for kind, times_s in predictor.predict(spec).tasks.items()}
            for job, predictor in predictors.items()
        }
        for name, spec in SETTINGS.items()
    }


def recorded() -> Mapping[str, Any]:
    """Run both jobs on today's volume, and predict them."""
    recordings = {}
    with bare(TODAY) as volume:
        assert volume.control is not None
        for job, thinks_us in THINKS_US.items():
            control.change(volume.control, trace=True)
            mix = run(volume, thinks_us)
            recordings[job] = recorded_mix(mix, take_trace(volume.control, TODAY.name)[0])
    return {"predicted_s": foreseen(recordings), "load": os.getloadavg()}


def measured(name: str) -> Mapping[str, Any]:
    """Run both jobs on a setting."""
    with bare(replace(SETTINGS[name], name=name)) as volume:
        medians_s = {job: run(volume, thinks_us).medians_s() for job, thinks_us in THINKS_US.items()}
    return {"setting": name, "p50_s": medians_s, "load": os.getloadavg()}


def go(results: Path, lock: str = os.devnull) -> None:
    """What is left: the predictions, then each setting."""
    while (done := len(lines_of(results))) <= len(SETTINGS):
        with in_turn(Path(lock)):
            line = measured(list(SETTINGS)[done - 1]) if done else recorded()
        append(results, line)


def table(first: Mapping[str, Any], rest: Sequence[Mapping[str, Any]]) -> None:
    """A line a setting, then what must be reached."""
    errors: list[float] = []
    for line in rest:
        made_s = first["predicted_s"][line["setting"]]
        off = {
            f"{job}, {kind}": made_s[job][kind] / p50_s - 1
            for job, medians_s in line["p50_s"].items()
            for kind, p50_s in medians_s.items()
        }
        worst = max(off, key=lambda cell: abs(off[cell]))
        mean = np.mean(np.abs(list(off.values())))
        print(f"{line['setting']:16} {len(off)} cells: mean {mean:.1%}, worst {off[worst]:+.1%} ({worst})")
        errors += off.values()
    sizes = np.abs(errors)
    print(
        f"p50: {np.mean(sizes <= 0.05):.0%} of {len(sizes)} within 5%, mean {sizes.mean():.1%},"
        f" worst {sizes.max():.1%}"
    )


def main() -> None:
    """Do what the first word says."""
    be_called("advice-fio")
    match sys.argv[1:]:
        case ["go", results, *lock] if len(lock) < 2:
            go(Path(results), *lock)
        case ["table", results] if len(lines := lines_of(Path(results))) > 1:
            table(lines[0], lines[1:])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
