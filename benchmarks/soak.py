"""A day in the life: session after session, most struck by a fault of the fault table, for two hours.

    soak.py [--minutes 120] [--seed 1]      as root, with the packages of the tests

After each session: nothing of it is on the machine and 'clean' finds nothing to do; it is listed with the end
that it had, and every earlier one as it was; mounts, loop devices and containers are as many as before. At
the end memory and disk are as they were, but for the sessions themselves. Exit code 1 when any of it fails.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "system")]

import psutil  # noqa: E402 - after the path of the tests
from race_under_test import docker, plan, race  # noqa: E402
from test_faults import FAULTS, Fault  # noqa: E402

from esrally_ebs.model import State  # noqa: E402
from esrally_ebs.store import list_sessions  # noqa: E402

MAX_LOST_BYTES = 512 * 1024**2  # of memory and of disk, beside what others on the machine do meanwhile


def session(home: Path, fault: Fault | None) -> tuple[str, State, float]:
    """Race once; the session's id, the state it must have, and the seconds until nothing of it was left."""
    with race(home, plan() if fault is None else fault.plan) as running:
        if fault is not None:
            running.reach(fault.stage)
            fault.strike(running)
        struck = time.monotonic()
        code = running.exit_code()
        gone_s = running.gone(struck)
        want = 0 if fault is None else fault.code
        assert code == want, f"exit code {code}, not {want}: {running.said[-500:]}"
        assert "Traceback" not in running.said, running.said[-2000:]
        return running.id, State.COMPLETE if fault is None else State(fault.state), gone_s


def machine() -> Mapping[str, int]:
    """What must be as before after each session."""
    mounts = Path("/proc/mounts").read_text()
    loops = Path("/sys/block").glob("loop*/loop/backing_file")
    return {
        "mounts of ours": mounts.count("esrally-ebs"),
        "loop devices": len(list(loops)),
        "containers": len(docker("ps", "-aq").split()),
        "images": len(list(Path("/dev/shm").glob("esrally-ebs/*/*.img"))),
    }


def check(home: Path, ended: Mapping[str, State], before: Mapping[str, int]) -> None:
    """Raise AssertionError for what is left, missing, or not as it was."""
    listed = {one.id: one.state for one in list_sessions(home)}
    assert listed == dict(ended), {key: listed.get(key) for key in listed.keys() ^ ended.keys()} or listed
    clean = [sys.executable, "-c", "import sys; from esrally_ebs.cli import main; sys.exit(main(['clean']))"]
    said = subprocess.run(clean, capture_output=True, text=True, check=False)
    assert said.stdout.endswith("nothing is left behind\n"), said.stdout + said.stderr
    assert machine() == before, f"{machine()}, before {before}"


def free(home: Path) -> tuple[int, int]:
    """Bytes of memory and of disk that are free."""
    return psutil.virtual_memory().available, shutil.disk_usage(home).free


def soak(home: Path, minutes: float, draw: random.Random) -> int:
    """Race until the time is over; how many sessions did not end as they must."""
    ended: dict[str, State] = {}
    before, at_first = machine(), free(home)
    until, broken, faults = time.monotonic() + 60 * minutes, 0, Counter[str]()
    while time.monotonic() < until:
        fault = draw.choice((None, *FAULTS))
        name = "none" if fault is None else fault.name
        try:
            id_, state, gone_s = session(home, fault)
            ended[id_] = state
            check(home, ended, before)
            said = f"{state}, nothing left after {gone_s:.1f} s"
        except (AssertionError, ValueError) as error:
            broken += 1
            ended = {one.id: one.state for one in list_sessions(home)}
            said = f"BROKEN: {error}"
        faults[name] += 1
        print(f"{len(ended):>4} sessions  {name:<45} {said}", flush=True)
    lost = [(then - now) >> 20 for then, now in zip(at_first, free(home), strict=True)]
    broken += any(mib << 20 > MAX_LOST_BYTES for mib in lost)
    struck = faults.total() - faults["none"]
    counts = f"{len(ended)} sessions, {struck} faults, {broken} broken"
    print(f"{counts}; {lost[0]} MiB less memory, {lost[1]} MiB less disk than before")
    return broken


def main() -> int:
    """Soak in a home of its own, which goes when all was well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ["ESRALLY_EBS_HOME"] = str(home)
    broken = soak(home, args.minutes, random.Random(args.seed))
    if broken:
        print(f"sessions and what they said are in {home}")
        return 1
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
