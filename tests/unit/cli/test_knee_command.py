"""The command that looks for a knee: what it races."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs.cli import main
from esrally_ebs.plan import Plan
from esrally_ebs.session import runs


@pytest.mark.parametrize(
    ("plan", "settings", "mode", "is_said"),
    [
        ("aa", [], "steady", True),
        ("aa", ["--set", "cache.mode=warm"], "warm", False),
        ("ingest", [], "warm", False),
    ],
)
def test_caches_that_a_plan_has_cold_are_steady(
    plan: str,
    settings: list[str],
    mode: str,
    is_said: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    raced: list[Mapping[str, Any]] = []

    def race(path: Path, plan: Plan, overrides: Mapping[str, Any], *_: object) -> int:
        raced.append({**overrides, "mode": plan.cache.mode, "bound": plan.design.knee})
        return 0

    monkeypatch.setattr(runs, "_race", race)
    assert main(["knee", plan, "--latency", "p99=100ms", *settings]) == 0
    (overrides,) = raced
    assert (overrides["mode"], overrides["bound"]) == (mode, "p99=100ms")
    assert overrides.get("cache.mode", "warm") == mode  # what Rally is given makes the same plan
    assert ("caches are steady here" in capsys.readouterr().err) is is_said


def test_an_empty_name_of_a_task_races_none_instead_of_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "_race", lambda *_: 0)
    assert main(["knee", "aa", "--latency", "p99=100ms", "--task", "range_field", "--task", ""]) == 2
    assert "--task '': an empty value; is a variable of your shell not set?" in capsys.readouterr().err
