"""moto's server on loopback for one pytest session: what the tests of AWS speak to over real HTTP.

Its own environment is made by ``scripts/moto.sh``; ``ESRALLY_EBS_MOTO`` names another ``moto_server``.
Without one the tests skip. ``aws`` gives a test an empty account, an endpoint and credentials that exist
nowhere else.
"""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback_server import free_port

REGION = "us-east-1"
ACCOUNT = "123456789012"  # moto's
KEY_ID = "AKIAMOTOTESTONLY0000"
SECRET = "moto+secret+that+exists+nowhere+else+0000"
TOKEN = "moto/session/token/" + "that/exists/nowhere/else/" * 8
_BUILT = Path(__file__).parents[2] / ".cache" / "moto-venv" / "bin" / "moto_server"
_START_S = 30.0


@dataclass(frozen=True)
class Moto:
    """A running server."""

    url: str

    def reset(self) -> None:
        """An account as on its first day."""
        request = urllib.request.Request(f"{self.url}/moto-api/reset", data=b"", method="POST")
        urllib.request.urlopen(request, timeout=10).close()


def program() -> Path | None:
    """The ``moto_server`` to start; None when there is none."""
    path = Path(os.environ.get("ESRALLY_EBS_MOTO") or _BUILT)
    return path if path.is_file() else None


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=2).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
        else:
            return True
    return False


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    """The server, started once and ended with the pytest session."""
    server = program()
    if server is None:
        pytest.skip("moto's server is not installed: run scripts/moto.sh, or set ESRALLY_EBS_MOTO to one")
    port = free_port()
    # Hundreds of images that no test asks for would otherwise be loaded.
    environment = {**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [str(server), "-H", "127.0.0.1", "-p", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        assert _answers(url, process), f"{server}: does not answer within {_START_S:.0f} s; start it by hand"
        yield Moto(url)
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def aws(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Moto:
    """An empty account, and the variables of the AWS SDKs that lead to it and to nowhere else."""
    moto.reset()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": moto.url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": TOKEN,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    return moto
