"""The guard that keeps tests on loopback stops every way out, and no way to this machine."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from loopback_only import ENVIRONMENT, is_here, shield, take

ELSEWHERE = "192.0.2.1"  # TEST-NET-1 (RFC 5737): of nobody
HERE = Path(__file__).parents[2] / "support"


def tcp() -> None:
    with socket.socket() as ours:
        ours.settimeout(1)
        ours.connect((ELSEWHERE, 80))


def udp() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as ours:
        ours.sendto(b"?", (ELSEWHERE, 53))


def udp_message() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as ours:
        ours.sendmsg([b"?"], [], 0, (ELSEWHERE, 53))


def name() -> None:
    socket.getaddrinfo("ec2.us-east-1.amazonaws.com", 443)


def old_name() -> None:
    socket.gethostbyname("example.invalid")


def name_of_address() -> None:
    socket.gethostbyaddr(ELSEWHERE)


def other_name_of_address() -> None:
    socket.getnameinfo((ELSEWHERE, 80), 0)


def aws() -> None:
    ec2 = boto3.client(
        "ec2",
        region_name="us-east-1",
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
        config=Config(ignore_configured_endpoint_urls=True, connect_timeout=1, read_timeout=1),
    )
    ec2.describe_volumes()


# One for each event of the audit, and an SDK, which retries what it catches.
WAYS = (tcp, udp, udp_message, name, old_name, name_of_address, other_name_of_address, aws)


@pytest.mark.parametrize("leave", WAYS)
def test_every_way_out_is_stopped_and_noted(
    leave: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("http", "https", "all"):  # a proxy on loopback would be asked instead, and that is allowed
        for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
            monkeypatch.delenv(name, raising=False)
    with pytest.raises(pytest.fail.Exception, match="tests stay on loopback"):
        leave()
    assert len(take()) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_is_stopped_as_well() -> None:
    thread = threading.Thread(target=tcp, name="other")
    thread.start()
    thread.join()
    assert take() == [f"socket.connect to ('{ELSEWHERE}', 80) in thread other"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "::ffff:127.0.0.1", b"127.1.2.3", None]
)
def test_loopback_is_here(host: str | bytes | None) -> None:
    assert is_here(host)


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "fd00:ec2::254", "10.0.0.1", "localhost.example", "::ffff:8.8.8.8"]
)
def test_nothing_else_is(host: str) -> None:
    assert not is_here(host)


def test_this_machine_is_reached(tmp_path: Path) -> None:
    for where in ("127.0.0.1", "localhost"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection((where, server.getsockname()[1])).close()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as ours:
        server.bind(str(tmp_path / "s"))
        server.listen()
        ours.connect(str(tmp_path / "s"))
    assert take() == []


RUN = f"""
import socket
import pytest
from loopback_only import install, loopback_only
install()

def leave():
    try:
        socket.socket().connect(("{ELSEWHERE}", 80))
    except BaseException:
        pass

def test_caught():
    leave()

def test_here():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()

@pytest.fixture
def leaving():
    leave()

def test_whose_fixture_leaves(leaving):
    pass
"""


def test_whoever_catches_what_stopped_it_fails_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(RUN)
    environment = {**os.environ, "PYTHONPATH": str(HERE), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "test_inner.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1, ran.stdout
    lines = [line.split(" - ")[0] for line in ran.stdout.splitlines() if "::" in line]
    assert {line for line in lines if line.startswith("ERROR")} == {
        "ERROR test_inner.py::test_caught",
        "ERROR test_inner.py::test_whose_fixture_leaves",
    }
    assert "PASSED test_inner.py::test_here" in lines
    assert f"socket.connect to ('{ELSEWHERE}', 80)" in ran.stdout


CHILD = """
import boto3
session = boto3.Session(region_name="us-east-1")
print(session.get_credentials())
for service in ("ec2", "cloudwatch", "sts", "efs", "iam", "s3"):
    print(session.client(service).meta.endpoint_url)
"""


def test_other_processes_have_no_account_and_find_nobody(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    team = {"AWS_PROFILE": "team", "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "x"}
    environment = {**os.environ, **team}
    for name in ENVIRONMENT:
        environment.pop(name, None)
    shield(environment)
    output = subprocess.run(
        [sys.executable, str(tmp_path / "child.py")],
        env=environment, capture_output=True, text=True, timeout=60, check=True,
    ).stdout.split()  # fmt: skip
    assert output == ["None", *[ENVIRONMENT["AWS_ENDPOINT_URL"]] * 6]
    assert "127.0.0.1" in environment["NO_PROXY"]


def test_this_process_and_what_it_starts_have_that_environment() -> None:
    assert {name: os.environ.get(name) for name in ENVIRONMENT} == ENVIRONMENT
