"""Sessions made by hand through the store, for tests that hold several against one another."""

from pathlib import Path
from typing import Any

from small_plan import small_plan
from stored import sample_of

from esrally_ebs.model import Kind, Sample, State, Volume, VolumeSpec
from esrally_ebs.store import SessionFolder


def volume(name: str, **changes: Any) -> Volume:  # noqa: ANN401
    spec = VolumeSpec(name=name, type="gp3", size_bytes=1024**3, iops=changes.pop("iops", 3000))
    whole: dict[str, Any] = {"kind": Kind.EMULATED, "filesystem": "xfs", "readahead_bytes": 131072}
    return Volume(spec=spec, mount=Path("/mnt") / name, **{**whole, **changes})


def sample(arm: str, round_: int, seconds: float, hits: int | None) -> Sample:
    fields = {"task": "q", "operation": "q", "started_s": 0.0, "hits": hits, "resident_before": 0.0}
    return sample_of(seconds, arm=arm, round=round_, **fields)


def make(
    home: Path, name: str, *, scale: float = 1.0, hits: int | None = 5, at: float = 0.0, kernel: str = "6.1"
) -> Path:
    """A session of six rounds: 100 ms on gp2 and 80 ms on gp3, times ``scale``."""
    plan = small_plan(race={"iterations": 5}, design={"rounds": 6})
    folder = SessionFolder.create(home, name, kind="race", plan=plan, started_at=at)
    nodes = {arm: {"version": "8.8.2", "heap_bytes": 1} for arm in ("gp2", "gp3")}
    folder.update(
        arms=[volume("gp2"), volume("gp3")],
        environment={"kernel": kernel, "rally": "2.13.0", "host": "here", "nodes": nodes},
        dataset={"documents": 10, "hash": "abc"},
    )
    with folder.part_writer("samples") as writer:
        writer.add(
            [
                sample(arm, round_, scale * seconds * (1 + 0.001 * ((3 * round_) % 7)), hits)
                for round_ in range(1, 7)
                for arm, seconds in (("gp2", 0.1), ("gp3", 0.08))
            ]
        )
    folder.finish(State.COMPLETE, ended_at=at + 60.0)
    return folder.path
