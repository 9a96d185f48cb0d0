"""Replicas, relocations and restores: how long they take beside what limits let one expect.

Tasks of like volumes are compared as well.

    sudo .venv/bin/python benchmarks/recovery.py [unlike] [setting] [rounds]

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
# MiB/s of volumes, and of Elasticsearch's setting: what is slow must take many seconds; and rounds
PIECES = {"unlike": ((3, 4, 4), 100, 1), "setting": ((60, 60), 2, 1), "rounds": ((10, 10), 100, 3)}
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
params = {{ "indices.recovery.max_bytes_per_sec" = "{setting}mb", java_opts = "-XX:TieredStopAtLevel=1" }}
[dataset]
documents = {documents}
[race]
track = "recovery-ebs"
iterations = 1
warmup_iterations = 0
[design]
rounds = {rounds}
"""


def measure(piece: str, documents: int) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """One race; by task and MiB/s, of each such volume: the time that it took (s), and over the expected."""
    rates, setting, rounds = PIECES[piece]
    arms = {f"arm{number}": mib for number, mib in enumerate(rates)}
    text = f'name = "recovery-{piece}"\naccept = ["lateness"]\n'
    text += "".join(ARM.format(name=name, mib=mib) for name, mib in arms.items())
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / f"{piece}.toml"
        plan.write_text(text + REST.format(setting=setting, rounds=rounds, documents=documents))
        race(f"--track-params=plan:{plan}", "--exclude-tasks=merge", track=TRACK)
    table = recovery_table(load_session(find_session(home(), "latest")), {})
    assert table.rows, "a race of this track has such events"
    measured: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in table.rows:
        task, _, arm = row.item.partition(" on ")
        facts = {name: value for cell in row.cells for name, value in cell.facts.items()}
        took = float(facts["took_s"]), float(facts["took_of_expected"])
        measured.setdefault((task, arms[arm]), []).append(took)
        print(f"{piece}: {row.item}: {', '.join(cell.text for cell in row.cells)}", flush=True)
    return measured


def main() -> int:
    """Returns 1 when it took longer than limits say, or like volumes differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "pieces", nargs="*", default=list(PIECES), help="unlike, setting, rounds, or all (the default)"
    )
    parser.add_argument("--documents", type=int, default=200_000, help="30 MiB by default")
    arguments = parser.parse_args()
    be_called("benchmark-recovery")
    measured = [took for piece in arguments.pieces for took in measure(piece, arguments.documents).values()]
    shares = [share for alike in measured for _, share in alike]
    apart = [alike[0][0] / alike[1][0] - 1 for alike in measured if len(alike) == 2]
    near = sum(abs(share - 1) <= NEAR for share in shares)
    print(f"within {NEAR:.0%} of the expected: {near} of {len(shares)}, median {median(shares) - 1:+.1%}")
    print(f"like volumes, apart: {', '.join(f'{each:+.1%}' for each in apart)}; must {ALIKE:.0%}")
    return int(near < (1 - MOST_MISSES) * len(shares) or max(map(abs, apart), default=0.0) > ALIKE)


if __name__ == "__main__":
    sys.exit(main())
