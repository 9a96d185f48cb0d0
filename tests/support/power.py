"""Run in a guest whose power is going to be cut: what the last cut left, then arms or sessions without end.

``power.py ARMS PHASE``; the host reads ``checked.json``, ``phase`` and ``heartbeat`` in the shared directory,
where what is written is out of the guest at once.
"""

import io
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from leftovers import leftovers

from esrally_ebs.aws.provision.host import DeviceQuery, LinuxHost
from esrally_ebs.cli import main
from esrally_ebs.errors import CommandError
from esrally_ebs.machine.mounts import mounts
from esrally_ebs.machine.resources import home
from esrally_ebs.model import TelemetryPoint
from esrally_ebs.plan import load_plan
from esrally_ebs.session import manual
from esrally_ebs.session.runs import measure_plan
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.context import Context

SHARE = Path("/mnt")
FOREIGN = "AWS00000000000000009"  # a disk of the instance that somebody else uses
_BEATS_EVERY_S = 0.2
_ARM = {
    "emulated": 'type = "gp3"\nsize = "1GiB"',
    "disk": 'type = "instance-store"\nsize = "1GiB"\n[aws]',
    "mdadm": 'type = "instance-store"\nsize = "1GiB"\nstripes = 2\n[aws]\nstripe_with = "mdadm"',
    "lvm": 'type = "instance-store"\nsize = "1GiB"\nstripes = 2\n[aws]\nstripe_with = "lvm"',
}
_PLAN = """name = "cut"
accept = ["lateness"]
[[baseline]]
name = "read"
rw = "randread"
bs = "16k"
size = "1m"
runtime = "1s"
repeat = 9
[[arm]]
name = "a"
"""
_BEAT = "heartbeat"


def run(words: list[str]) -> tuple[int, str]:
    """One command of the pack: its exit code, and all that it prints."""
    output = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with redirect_stdout(output), redirect_stderr(output):
        code = main(words)
    output.seek(0)
    return code, output.read().strip()


def check() -> dict[str, Any]:
    """What is there after a cut: the session as commands show it, and what `clean` finds, twice."""
    sessions = json.loads(run(["sessions", "--json"])[1]) if (home() / "sessions").exists() else []
    last = sessions[-1] if sessions else None
    checked: dict[str, Any] = {"session": last}
    if last is not None:
        session = load_session(Path(last["path"]))
        checked["warnings"] = [text for text in session.warnings if ".parquet" in text or ".json" in text]
        for path in Path(last["path"]).glob("baseline/*.json"):
            json.loads(path.read_text())
        checked["report"] = run(["report", last["id"]])
        events = [event.fields["number"] for event in session.events if event.kind == _BEAT]
        checked["events"], checked["fio"] = max(events, default=0), session.baseline.num_rows
        rows = session.telemetry
        beats = [row["value"] for row in rows.to_pylist() if row["metric"] == _BEAT]
        checked["rows"] = max(beats, default=0)
    checked["clean"], checked["clean_again"] = run(["clean"]), run(["clean"])
    disks = LinuxHost().look(DeviceQuery(point=Path("/mnt"), disks=True)).disks
    checked["left"] = [
        *(
            f"{disk.path}: {disk.signature or 'not blank'}"
            for disk in disks
            if disk.serial != FOREIGN and (not disk.blank or disk.holders)
        ),
        *(str(mount.mount_point) for mount in mounts() if "esrally-ebs" in str(mount.mount_point)),
        *(part.text for part in leftovers()),
        *map(str, (home() / "backing").glob("*/*/*")),
        *map(str, Path("/run/esrally-ebs").glob("*")),
    ]
    return checked


@contextmanager
def beating(context: Context) -> Iterator[None]:
    """Beside the jobs: a numbered event and a row of telemetry every 0.2 s, and their number to the host."""
    folder, over = SessionFolder(context.folder), threading.Event()

    def beat() -> None:
        with folder.part_writer("telemetry") as writer, (SHARE / _BEAT).open("w") as host:
            number = 0
            while not over.wait(_BEATS_EVERY_S):
                number += 1
                at_s = time.time()
                folder.note(_BEAT, number=number)
                row = TelemetryPoint(arm="a", device="", at_s=at_s, metric=_BEAT, value=number, unit="")
                writer.add([row])
                host.write(f"{context.session} {number} {at_s:.3f}\n")
                host.flush()

    thread = threading.Thread(target=beat)
    thread.start()
    phase("measuring")
    try:
        yield
    finally:
        over.set()
        thread.join()


def phase(name: str) -> None:
    """Tell the host what begins."""
    (SHARE / "phase").write_text(name)
    with (SHARE / "times").open("a") as file:
        file.write(f"{time.time():.1f} {name}\n")


def use(arms: str, wanted: str) -> None:
    """Arms up and down, or sessions, whichever has the phase that the power is to go in: until it goes."""
    path = home() / "cut.toml"
    path.write_text(_PLAN + _ARM[arms])
    while True:
        with suppress_slowness():
            if wanted == "measuring":
                phase("session")
                measure_plan(load_plan(path, {}), print, beside=beating)
            else:
                phase("up")
                manual.up(str(path))
                phase("down")
                manual.down(str(path))


@contextmanager
def suppress_slowness() -> Iterator[None]:
    """Begin again where an emulated processor was too slow for a program's time limit."""
    try:
        yield
    except CommandError as error:
        if "still running after" not in str(error):
            raise


if __name__ == "__main__":
    home().mkdir(parents=True, exist_ok=True)
    (SHARE / "checked.json").write_text(json.dumps(check()))
    use(*sys.argv[1:])
