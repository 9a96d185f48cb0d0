"""Which of two volumes takes in more documents while it is searched: real sessions of the plan ingest.

    sudo .venv/bin/python benchmarks/ingest.py 10 --results ingest.jsonl
    sudo .venv/bin/python benchmarks/ingest.py 20 --results alike.jsonl --alike

Each session is one ``esrally race``. A line of JSON per session goes to the file of results, and the next
call goes on from there, up to as many sessions as asked for. ``--alike`` gives both arms 250 MiB/s; with
``--lock`` each race waits for a lock that others of this machine take, too. On two cores the machine must do
nothing else.

Must reach: 10 of 10 find that the arm with 250 MiB/s is faster, and that volume throughput held the other
back; of two alike at most 1 of 20 claims a difference.
"""

import argparse
import json
import os
from pathlib import Path

from races import Line, be_called, lines_of, race, record_sessions
from sessions_aa import CLAIMS

from esrally_ebs.analysis.beside import compare_rates, writes
from esrally_ebs.analysis.comparable import all_checks
from esrally_ebs.analysis.findings import find
from esrally_ebs.machine.resources import home, plan_path, resource
from esrally_ebs.store import load_session
from esrally_ebs.store.session import Session

ALIKE = "gp3-250-b"


def line_of(session: Session) -> Line:
    """Rates, their verdict, and what held each arm's writes back (shares of its I/Os' time)."""
    findings = find(session, checks=all_checks(session))
    written = writes(session)
    (rates,) = compare_rates(written, findings)
    held_back = {arm: dict(of.profile.held_back) if of.profile else {} for (_, arm), of in written.items()}
    return {
        "session": session.id,
        "load": os.getloadavg()[0],
        "documents_per_s": {arm: round(of.documents_per_s, 1) for (_, arm), of in written.items()},
        "ratio": [rates.ratio.value, rates.ratio.low, rates.ratio.high],
        "verdict": rates.verdict.value,
        "held_back": held_back,
        "cause": max(held_back[rates.a].items(), key=lambda item: item[1], default=("none", 0.0))[0],
    }


def alike_plan(folder: Path) -> Path:
    """The plan with two arms of 250 MiB/s."""
    text = plan_path("ingest").read_text()
    changed = text.replace('name = "gp3-125"', f'name = "{ALIKE}"').replace("125MiB/s", "250MiB/s")
    path = folder / "ingest-alike.toml"
    path.write_text(changed)
    return path


def main() -> None:
    """Race, and print what all sessions of the file say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sessions", type=int, help="how many there shall be in the file of results")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--alike", action="store_true")
    parser.add_argument("--lock", type=Path, default=Path(os.devnull))
    words = parser.parse_args()
    be_called("ebs-sessions")
    os.umask(0o022)
    plan = alike_plan(words.results.resolve().parent) if words.alike else plan_path("ingest")

    def one(session: str) -> Line:
        race(f"--race-id={session}", f"--track-params=plan:{plan}", track=resource("tracks/ingest-ebs"))
        return line_of(load_session(home() / "sessions" / session))

    record_sessions(words.results, words.sessions, one, lock=words.lock)
    lines = [line for line in lines_of(words.results) if "failed" not in line]
    for line in lines:
        print(json.dumps(line))
    claims = [word.value for word in CLAIMS]
    print(f"a difference claimed: {sum(line['verdict'] in claims for line in lines)} of {len(lines)}")
    causes = [line for line in lines if line["verdict"] == "faster" and "throughput" in line["cause"]]
    print(f"faster, with throughput as the cause: {len(causes)} of {len(lines)}")


if __name__ == "__main__":
    main()
