"""A data host without SSH: Python in the place of the login, on this machine."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import esrally_ebs
from esrally_ebs.session import host_client

GREETING = f'{{"esrally_ebs": "{esrally_ebs.__version__}"}}'
HELPER = "os.execv('/bin/sh', ['sh', '-c', command])"  # the real one
StandIn = Callable[[str], None]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Sets an ssh that runs given lines of Python, with the command for the host as ``command``."""

    def set_ssh(code: str) -> None:
        script = tmp_path / "ssh.py"
        script.write_text(f"import os, sys, time\ncommand = sys.argv[-1]\n{code}\n")
        monkeypatch.setenv(host_client.SSH, f"{sys.executable} {script}")

    return set_ssh
