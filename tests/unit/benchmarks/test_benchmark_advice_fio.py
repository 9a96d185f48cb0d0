"""What benchmarks/advice_fio.py makes of fio's log and a volume's I/Os, both made up here."""

import json
from pathlib import Path

import advice_fio
import numpy as np
import pyarrow as pa
import pytest
from advice import SETTINGS, TODAY

from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import MeasurementError
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.units import KIB
from esrally_ebs.volumes.virtual.replay import Column, Thread, replay

REQUESTS, PATH_S, RESTS_S = 3000, 100e-6, 20e-6


def on(name: str) -> tuple[Thread, Column]:
    """The mix, one I/O after the other, and what each takes on a setting: no less than the path does."""
    draw = np.random.default_rng(5)
    events = np.arange(2 * REQUESTS)
    size = np.zeros(2 * REQUESTS, np.int64)
    size[::2] = draw.choice([4, 16, 64], REQUESTS) * KIB
    write = np.zeros(2 * REQUESTS, np.int64)
    write[::2] = draw.random(REQUESTS) < 0.3
    spec = {**SETTINGS, "today": TODAY}[name]
    thread = Thread(
        offset=draw.integers(1 << 14, size=2 * REQUESTS) * 4 * KIB,
        size=size,
        write=write,
        path_s=np.zeros(2 * REQUESTS),
        compute_s=np.zeros(2 * REQUESTS),
        first_needed=np.append(0, np.cumsum(events % 2)),
        needed=events[::2],
        after_s=np.zeros(REQUESTS),
        rest_s=np.full(REQUESTS, RESTS_S),
        refilled=np.zeros(REQUESTS, bool),
    )
    latency_s = replay(thread, model_for(spec), credits=spec.credits, seed=11).latency_s
    return thread, np.maximum(latency_s, PATH_S)


def logged(tmp_path: Path) -> tuple[advice_fio.Mix, pa.Table]:
    """On today's volume: fio's log, and what the volume kept, also of others."""
    thread, took_s = on("today")
    op, size, offset = thread.write[::2], thread.size[::2], thread.offset[::2]
    ended_s = np.cumsum(took_s + RESTS_S)
    rows = zip(ended_s, took_s, op, size, offset, strict=True)
    log = tmp_path / "mix_lat.1.log"
    log.write_text("".join(f"{1e3 * at:.0f}, {1e9 * s:.0f}, {w}, {n}, {o}, 0\n" for at, s, w, n, o in rows))
    at_s = 1e9 + ended_s - took_s + 30e-6
    kept = {
        "arm": ["today"] * REQUESTS,
        "device": ["loop0"] * REQUESTS,
        "at_s": at_s,
        "done_s": at_s + took_s - PATH_S,
        "offset": offset,
        "bytes": size,
        "op": np.where(op, "write", "read"),
        "path_s": np.full(REQUESTS, PATH_S),
    }
    unknown = dict.fromkeys(set(TRACE.names) - kept.keys(), pa.nulls(REQUESTS))
    ours = pa.table(kept | unknown).select(TRACE.names).cast(TRACE)
    others = ours.take([7, 8, 9])
    return advice_fio.mix_of(log), pa.concat_tables([others, ours.slice(0, 100), others, ours.slice(100)])


def test_medians_on_other_settings_are_predicted_of_reads_and_of_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mix, kept = logged(tmp_path)
    predicted_s = advice_fio.foreseen({"at once": advice_fio.recorded_mix(mix, kept)})
    assert predicted_s.keys() == SETTINGS.keys()
    lines = []
    for name in SETTINGS:
        medians_s = mix._replace(took_s=on(name)[1]).medians_s()
        assert medians_s.keys() == {f"{op} {kib}k" for op in ("read", "write") for kib in (4, 16, 64)}
        lines.append({"setting": name, "p50_s": {"at once": medians_s}})
    capsys.readouterr()
    advice_fio.table({"predicted_s": predicted_s}, lines)
    *settings, last = capsys.readouterr().out.splitlines()
    assert len(settings) == 12
    assert last.startswith("p50: 100% of 72 within 5%")


def test_an_io_that_the_volume_did_not_keep_is_refused(tmp_path: Path) -> None:
    mix, kept = logged(tmp_path)
    with pytest.raises(MeasurementError, match="did not keep"):
        advice_fio.recorded_mix(mix, kept.slice(50))


def test_what_is_left_is_predicted_first_and_then_measured_by_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice_fio, "recorded", lambda: {"setting": "recorded anew"})
    monkeypatch.setattr(advice_fio, "measured", lambda name: {"setting": name})
    begun, anew = tmp_path / "begun", tmp_path / "anew"
    begun.write_text('{"setting": "recorded before"}\n{"setting": "gp2-credits"}\n')
    for results, first in ((begun, "recorded before"), (anew, "recorded anew")):
        advice_fio.go(results)
        lines = [json.loads(line)["setting"] for line in results.read_text().splitlines()]
        assert lines == [first, *SETTINGS]
