"""Replicas, relocations and restores: how long they take beside what limits let one expect.

Tasks of like volumes are compared as well.

    sudo .venv/bin/python benchmarks/recovery.py [unlike alike setting]

Must reach: within 10 % in 9 of 10 settings (a task on a volume), like volumes within 5 %.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from races import be_called, race

from esrally_ebs.machine.resources import home, resource
from esrally_ebs.report.recoveries import recovery_table
from esrally_ebs.store import find_session, load_session

NEAR, ALIKE, MOST_MISSES = 0.10, 0.05, 0.1
TRACK = resource("tracks/recovery-ebs")
# MiB/s of two volumes, and of Elasticsearch's setting: what is slow must take seconds
PIECES = {"unlike": ((2, 3), 100), "alike": ((2, 2), 100), "setting": ((60, 60), 1)}
ARM = """\
[[arm]]
name = "{name}"
type = "instance-store"
size = "2GiB"
iops = 3000
throughput = "{mib}MiB/s"
"""
REST = """\
[node]
count = 2
params = {{ "indices.recovery.max_bytes_per_sec" = "{setting}mb" }}
[dataset]
documents = 200_000
[race]
track = "recovery-ebs"
iterations = {iterations}
warmup_iterations = 0
[design]
rounds = 1
"""


def measure(piece: str, iterations: int) -> dict[tuple[str, str], tuple[float, float]]:
    """By task and arm of one race: the time that it took (s), and that over the expected."""
    (a, b), setting = PIECES[piece]
    text = f'name = "recovery-{piece}"\naccept = ["lateness"]\n'
    text += ARM.format(name="a", mib=a) + ARM.format(name="b", mib=b)
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / f"{piece}.toml"
        plan.write_text(text + REST.format(setting=setting, iterations=iterations))
        race(f"--track-params=plan:{plan}", "--exclude-tasks=merge", track=TRACK)
    table = recovery_table(load_session(find_session(home(), "latest")), {})
    assert table is not None, "a race of this track has such events"
    measured = {}
    for row in table.rows:
        task, _, arm = row.item.partition(" on ")
        facts = {name: value for cell in row.cells for name, value in cell.facts.items()}
        measured[task, arm] = float(facts["took_s"]), float(facts["took_of_expected"])
        print(f"{piece}: {row.item}: {', '.join(cell.text for cell in row.cells)}", flush=True)
    return measured


def main() -> int:
    """Returns 1 when it took longer than limits say, or like volumes differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pieces", nargs="*", choices=(*PIECES, []), default=list(PIECES))
    parser.add_argument("--iterations", type=int, default=1)
    arguments = parser.parse_args()
    be_called("benchmark-recovery")
    shares, apart = [], []
    for piece in arguments.pieces:
        measured = measure(piece, arguments.iterations)
        shares += [share for _, share in measured.values()]
        if len(set(PIECES[piece][0])) == 1:
            tasks = {task for task, _ in measured}
            apart += [abs(measured[task, "a"][0] / measured[task, "b"][0] - 1) for task in tasks]
    near = sum(abs(share - 1) <= NEAR for share in shares)
    print(f"within {NEAR:.0%} of the expected: {near} of {len(shares)}, median {median(shares) - 1:+.1%}")
    print(f"like volumes: {max(apart, default=0.0):.1%} apart at most, {len(apart)} tasks; must {ALIKE:.0%}")
    return int(near < (1 - MOST_MISSES) * len(shares) or max(apart, default=0.0) > ALIKE)


if __name__ == "__main__":
    sys.exit(main())
