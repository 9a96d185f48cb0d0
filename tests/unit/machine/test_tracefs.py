"""Instances of tracefs, of which only root may look for one."""

import os
from pathlib import Path

import pytest
from shared_python import NOBODY, as_user

from esrally_ebs.errors import SetupError
from esrally_ebs.machine import tracefs


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_user_who_may_not_look_for_an_instance_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tracing"
    root.mkdir(mode=0o700)
    monkeypatch.setattr(tracefs, "tracefs", lambda: root)

    def remove() -> str:
        try:
            tracefs.remove_instance("esrally-ebs-s")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked at
            return repr(error)
        return "none"

    assert as_user(NOBODY, remove) == "none"


def test_a_trace_that_cannot_be_made_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked whether another of this name was running, which has a number of its own."""
    monkeypatch.setattr(tracefs, "require_tracing", lambda: tmp_path / "gone")
    with pytest.raises(
        SetupError, match=r"instances/x: No such file .*; a trace needs 8 MiB of memory a proc"
    ):
        tracefs.TracingInstance.create("x", {}, buffer_bytes=8 << 20)
