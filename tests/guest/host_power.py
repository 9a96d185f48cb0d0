"""Power cuts: QEMU is killed at random moments of up, down and a session; the same disks are booted again."""

import hashlib
import itertools
import json
import logging
import os
import random
import struct
import time
from pathlib import Path
from typing import Any

from guest_aws import instance_of_guest
from moto_server import Moto
from power import FOREIGN
from virtual_machine import DISKS, Disk, VirtualMachine

from esrally_ebs.aws.clients import Aws

_LOG = logging.getLogger(__name__)
_ARMS = ("lvm", "mdadm", "disk", "emulated")
_PHASES = {"measuring": 30.0, "up": 20.0, "down": 2.0}  # seconds that it takes about, emulated
_BOOT_S = 1800.0
_MAY_BE_LOST_S = 5.0
_FOREIGN_MIB = 64
# a boot record whose one partition, of Linux (0x83), begins at 1 MiB
_PARTITIONED = bytes(446) + struct.pack("<4xB3xII", 0x83, 2048, 2**16) + bytes(48) + b"\x55\xaa"


def wait_for(machine: VirtualMachine, name: str, wanted: str = "") -> str:
    """A file that the guest writes, when it has that text."""
    until = time.monotonic() + _BOOT_S
    while not (text := machine.read(name)) or (wanted and text != wanted):
        assert machine.runs, machine.read("output")
        assert time.monotonic() < until, f"no {wanted or name}: {machine.read('output')}"
        time.sleep(0.05)
    return text


def check(checked: dict[str, Any], beats: list[str]) -> tuple[str, float]:
    """What does not hold after a cut, or nothing; how many seconds of the session's record it has cost."""
    lost_s, problems = 0.0, []
    try:
        check_machine(checked)
    except AssertionError as error:
        problems.append(str(error))
    try:
        lost_s = check_session(checked, beats)
        assert lost_s <= _MAY_BE_LOST_S, f"{lost_s:.1f} s lost"
    except AssertionError as error:
        problems.append(str(error))
    return "; ".join(problems), lost_s


def check_machine(checked: dict[str, Any]) -> None:
    """`clean` left nothing behind, at once."""
    assert checked["clean"][0] == 0, checked["clean"]
    assert checked["clean_again"] == [0, "nothing is left behind"]
    assert checked["left"] == []


def check_session(checked: dict[str, Any], beats: list[str]) -> float:
    """The session can be read; how many seconds of its record are missing."""
    session = checked["session"]
    if session is None:
        return 0.0
    torn = [text for text in checked["warnings"] if "was the session cut there?" in text]  # in its last line
    assert checked["warnings"] == torn[:1]
    code, text = checked["report"]
    assert code == 0 or "\n" not in text, text
    last = [line.split() for line in beats if line.count(" ") == 2 and line.endswith("\n")]
    if not last or last[0][0] != session["id"]:
        return 0.0
    if session["state"] != "complete":
        assert (session["state"], session["reason"]) == ("failed", "its process ended without saying so")
    times = {int(number): float(at_s) for _, number, at_s in last}
    end_s = max(times.values())
    recorded = min(checked["events"], checked["rows"])
    return end_s - times.get(recorded, min(times.values())) if recorded < max(times) else 0.0


def boot(machine: VirtualMachine, command: str, phase: str, beats: list[str]) -> str:
    """Boot what the last cut left, cut the power in a phase, if any; what was wrong at first, or nothing."""
    for name in ("checked.json", "phase", "heartbeat"):
        (machine.share / name).unlink(missing_ok=True)
    with machine.booted(command, services=False):
        checked = json.loads(wait_for(machine, "checked.json"))
        problem, lost_s = check(checked, beats)
        _LOG.info("%.1f s lost; clean: %r; wrong: %s", lost_s, checked["clean"][1], problem or "nothing")
        if phase and not problem:
            wait_for(machine, "phase", phase)
            delay_s = random.uniform(0, _PHASES[phase])
            time.sleep(delay_s)
            _LOG.info("cut %.1f s after the beginning of %s, in %s", delay_s, phase, machine.read("phase"))
    return problem


def test_cuts(aws: Moto, tmp_path: Path) -> None:
    machine = VirtualMachine(tmp_path, (*DISKS, Disk(name="foreign", serial=FOREIGN, mib=_FOREIGN_MIB)))
    foreign = machine.folder / "foreign"
    foreign.write_bytes(_PARTITIONED + os.urandom(_FOREIGN_MIB * 1024**2 - len(_PARTITIONED)))
    before = hashlib.sha256(foreign.read_bytes()).digest()
    cuts, done, wrong, beats = int(os.environ.get("CUTS", "6")), 0, [], list[str]()
    with instance_of_guest(Aws()) as (_, _, sudo):
        for arms, phase in itertools.cycle((arms, phase) for arms in _ARMS for phase in _PHASES):
            _LOG.info("%s, %s, after cut %d of %d", arms, phase, done, cuts)
            command = f"{sudo} .venv/bin/python tests/support/power.py {arms} {phase}"
            problem = boot(machine, command, phase if done < cuts else "", beats)
            assert hashlib.sha256(foreign.read_bytes()).digest() == before
            if problem:
                wrong.append(f"cut {done}: {problem}")
                machine.blank(DISKS)  # so that it can go on
            if done == cuts:
                break
            done += not problem
            beats = [] if problem else machine.read("heartbeat").splitlines(keepends=True)
    assert not wrong, "\n".join(wrong)
