"""The protocol of benchmarks/advice.py, whose pieces need a machine."""

import json
from pathlib import Path

import advice
import pytest

from esrally_ebs.plan import Plan, load_plan

BENCHMARKS = Path(advice.__file__).parent
TRACKS = BENCHMARKS.parent / "tracks"


def test_races_have_the_rounds_and_the_track_that_the_recording_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[tuple[str, int, str]] = []

    def race(name: str, _: object, rounds: int, track: Path) -> str:
        raced.append((name, rounds, track.name))
        return name

    monkeypatch.setattr(advice, "raced_as", race)
    monkeypatch.setattr(advice, "predict", lambda _: "")
    monkeypatch.setattr(advice, "raced", lambda _: {"today": None})
    monkeypatch.setattr(advice, "fio_longer", lambda *_: {})
    results = tmp_path / "results"
    advice.go(results, 1, rounds="27", track="benchmarks/lookups")
    advice.go(results, 9)
    assert raced == [("advice-record", 27, "lookups"), *[("advice-race", 27, "lookups")] * 4]
    first, *races = map(json.loads, results.read_text().splitlines())
    assert first["rounds"] == 27
    assert not any("fio_s" in race for race in races)


@pytest.mark.parametrize("track", advice.SIZES)
def test_each_track_has_a_folder_and_a_plan(track: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = next(place / track for place in (BENCHMARKS, TRACKS) if (place / track).is_dir())
    plans: list[Plan] = []

    def race(*words: str, track: Path) -> None:
        assert track == folder
        plans.append(load_plan(Path(json.loads(words[1].partition("=")[2])["plan"])))

    monkeypatch.setattr(advice, "race", race)
    advice.raced_as("advice-record", [advice.TODAY], 4, folder)
    (plan,) = plans
    assert plan.trace is True
    assert (plan.design.rounds, plan.dataset.documents) == (16, advice.SIZES[track][0])


def test_the_order_of_settings_is_told_of_those_that_were_predicted_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    advice.print_order([(1.0, 1.1), (1.01, 1.0), (2.0, 2.1), (0.5, 2.2)])
    assert "of 5 pairs predicted over 4% apart 2 were raced in that order" in capsys.readouterr().out
