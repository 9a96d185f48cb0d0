"""Tests reach loopback and UNIX sockets, nothing else: whoever tries is stopped, and the test fails.

An audit hook sees what any library does with Python's sockets, botocore's included, in every thread, and it
cannot be removed; that somebody catches what it raises does not help the test. It does not see other
processes: those inherit an environment in which the AWS SDKs have no account, and find nobody.
"""

import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

_NOWHERE = "http://127.0.0.1:9"  # the port of discard(9), which nobody offers any more
ENVIRONMENT = {
    "AWS_ENDPOINT_URL": _NOWHERE,
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": _NOWHERE,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "BOTO_CONFIG": "/dev/null",  # botocore still looks for credentials there
}
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_FAMILIES = (socket.AF_UNIX, socket.AF_NETLINK)  # neither leaves the kernel
_TO_ADDRESS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_TO_NAME = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
_tried: list[str] = []


def is_here(host: str | bytes | None) -> bool:
    """Whether a host's name or address is this machine's loopback; none is a socket's own machine."""
    name = host.decode() if isinstance(host, bytes) else host
    if not name or name in _LOCAL:
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _target(event: str, args: tuple[Any, ...]) -> object:
    """Where an event of Python's audit leads, if that is not here."""
    if event in _TO_NAME:
        return None if is_here(args[0]) else args[0]
    if event == "socket.getnameinfo":
        return None if is_here(args[0][0]) else args[0]
    if event in _TO_ADDRESS:
        sender, address = args
        # a connected socket sends to no address
        here = address is None or sender.family in _FAMILIES or is_here(address[0])
        return None if here else address
    return None


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event.startswith("socket.") and (target := _target(event, args)) is not None:
        tried = f"{event} to {target!r} in thread {threading.current_thread().name}"
        _tried.append(tried)
        pytest.fail(f"{tried}: tests stay on loopback")  # no Exception: SDKs catch and retry those


def take() -> list[str]:
    """What was tried since this was last asked."""
    addresses = _tried.copy()
    _tried.clear()
    return addresses


def shield(environment: MutableMapping[str, str]) -> None:
    """Make it one in which nobody finds AWS, whatever it said before."""
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    environment.pop("ESRALLY_EBS_REHEARSE_AWS", None)
    environment.update(ENVIRONMENT)
    for name in ("NO_PROXY", "no_proxy"):  # a proxy would be asked for loopback, too
        environment[name] = ",".join(filter(None, [environment.get(name), *sorted(_LOCAL)]))


def install() -> None:
    """From now on, for this process and all that it starts."""
    shield(os.environ)
    sys.addaudithook(_hook)


@pytest.fixture(autouse=True)
def loopback_only() -> Iterator[None]:
    """Fails the test that tried to leave, whoever caught what stopped it."""
    yield
    tried = take()
    assert not tried, f"tests stay on loopback: {tried}"
