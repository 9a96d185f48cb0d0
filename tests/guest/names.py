"""Two boots, between which two volumes swap their names; ``host_names.py`` runs a test in each."""

import json
from pathlib import Path

from guest import device

from esrally_ebs.cli import main
from esrally_ebs.machine.resources import home
from esrally_ebs.session import manual

NAMES = Path("/mnt/names.json")
PLAN = """name = "swapped"
[[arm]]
name = "a"
type = "gp3"
size = "1GiB"
[[arm]]
name = "b"
type = "gp3"
size = "2GiB"
[aws]
"""
THEIRS = b"somebody else's"


def test_before() -> None:
    theirs = Path("/mnt/theirs").read_text()
    with device(theirs).open("r+b") as file:
        file.write(THEIRS)
    home().mkdir(parents=True)
    plan = home() / "swapped.toml"
    plan.write_text(PLAN)
    ours = [volume.identity for volume in manual.up(str(plan))]
    NAMES.write_text(json.dumps({volume: device(volume).name for volume in (*ours, theirs)}))


def test_after() -> None:
    before = json.loads(NAMES.read_text())
    now = {volume: device(volume).name for volume in before}
    *ours, theirs = before
    swapped = [(one, other) for one in ours for other in before if one != other and now[one] == before[other]]
    assert swapped, f"no volume has another's name: {before} before, {now} now"
    assert main(["clean"]) == 0
    with device(theirs).open("rb") as file:
        assert file.read(len(THEIRS)) == THEIRS
