"""Which EC2 instance this is: from its metadata service (IMDSv2), a rehearsal's variable, and EC2.

The metadata service is asked only if the firmware says EC2. Its endpoint, and permission to ask it, follow
the AWS SDKs: ``AWS_EC2_METADATA_SERVICE_ENDPOINT``, ``AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE`` (``IPv6``),
``AWS_EC2_METADATA_DISABLED``.
"""

import http.client
import os
import re
import urllib.parse
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from esrally_ebs.aws.clients import REHEARSAL_VARIABLE, Api, leads_here
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.kernel_trees import Roots, text

_IPV4, _IPV6 = "http://169.254.169.254", "http://[fd00:ec2::254]"
_TIMEOUT_S = 2.0
_TOKEN_LIFE_S = 60
_TOKEN = re.compile(r"[!-~]{1,1024}")  # valid in a header
_WORD = re.compile(r"[A-Za-z0-9.-]{1,64}")  # valid metadata here; anything else is another server's


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance's facts about itself; "" for missing ones."""

    instance_id: str = ""
    instance_type: str = ""
    zone: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The instance that arms are made for, as described by EC2."""

    instance: str
    zone: str
    region: str
    subnet: str = ""  # this and the next are for EFS only
    security_groups: tuple[str, ...] = ()


def this_instance(roots: Roots, environment: Mapping[str, str] = os.environ) -> Instance | None:
    """This instance; None outside EC2, or if ``AWS_EC2_METADATA_DISABLED`` forbids asking.

    Raises SetupError if the service does not answer properly.
    """
    if not roots.on_ec2() or environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    service = _Service(endpoint(environment))
    zone = service.get("placement/availability-zone")
    tag = text(roots.sys / "class" / "dmi" / "id" / "board_asset_tag")  # on Nitro that is the id, too
    return Instance(
        instance_id=service.get("instance-id") or (tag if tag.startswith("i-") else ""),
        instance_type=service.get("instance-type"),
        zone=zone,
        region=service.get("placement/region") or region_of(zone),
    )


def endpoint(environment: Mapping[str, str]) -> str:
    """The service's URL, from variables common to all AWS SDKs."""
    named = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    if named:
        return named.rstrip("/")
    six = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "").lower() == "ipv6"
    return _IPV6 if six else _IPV4


class _Service:
    """One token, and a connection for each item."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._host, self._port, self._path = _address(url)
        life = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LIFE_S)}
        status, token = self._ask("PUT", "/latest/api/token", life)
        if status != 200:
            raise SetupError(
                f"{url}: IMDSv2 gives no token (HTTP {status}); allow it with"
                " aws ec2 modify-instance-metadata-options"
            )
        if not _TOKEN.fullmatch(token):
            raise SetupError(f"{url}: token: not an answer of IMDSv2; ask it by hand")
        self._headers = {"X-aws-ec2-metadata-token": token}

    def get(self, item: str) -> str:
        """One item of metadata; "" if the instance has none of that name."""
        status, answer = self._ask("GET", f"/latest/meta-data/{item}", self._headers)
        if status == 404:
            return ""
        if status != 200 or not _WORD.fullmatch(answer.strip()):
            raise SetupError(f"{self._url}: {item}: HTTP {status}, not an answer of IMDSv2; ask it by hand")
        return answer.strip()

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        try:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
            with closing(connection):
                connection.request(method, self._path + path, headers=dict(headers))
                answer = connection.getresponse()
                body = answer.read(4096)
                if answer.length:  # http.client accepts a truncated answer
                    raise http.client.IncompleteRead(body, answer.length)
                return answer.status, body.decode("ascii", "replace")
        except (OSError, UnicodeError, http.client.HTTPException) as error:  # UnicodeError: no host's name
            raise SetupError(
                f"{self._url}: the metadata service does not answer ({error!r}); in a container its hop limit"
                " may be 1, raise it or set AWS_EC2_METADATA_DISABLED=true"
            ) from error


def _address(url: str) -> tuple[str, int, str]:
    """Host, port and path. Raises SetupError if the address lacks them."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme != "http":
        raise SetupError(f"AWS_EC2_METADATA_SERVICE_ENDPOINT: {url!r} is not http://host; correct it")
    # without a port http.client takes the end of an IPv6 address for it
    return host, http.client.HTTP_PORT if port is None else port, parts.path.rstrip("/")


def region_of(zone: str) -> str:
    """The region of an availability, local or wavelength zone; "" for anything else."""
    match = re.match(r"[a-z]{2,4}(?:-[a-z]+)+-\d", zone)  # us-east-1a, eusc-de-east-1a, us-west-2-lax-1a
    return match[0] if match else ""


def rehearsed_instance(environment: Mapping[str, str] = os.environ) -> str | None:
    """The instance that a rehearsal stands for; None without a rehearsal.

    Raises SetupError unless AWS_ENDPOINT_URL leads to this machine: a rehearsal must never reach AWS. Whether
    every service follows it is checked when its client is made.
    """
    instance = environment.get(REHEARSAL_VARIABLE)
    if not instance:
        return None
    if not leads_here(environment.get("AWS_ENDPOINT_URL", "")):
        raise SetupError(
            f"{REHEARSAL_VARIABLE}: a rehearsal needs a stand-in of AWS on this machine; set AWS_ENDPOINT_URL"
            " to http://127.0.0.1:PORT of moto's server, or unset the variable"
        )
    return instance


def on_aws(roots: Roots | None = None) -> bool:
    """Whether arms can be made on AWS from here, as far as this machine can tell by itself."""
    return rehearsed_instance() is not None or (roots or Roots()).on_ec2()


def region_here(roots: Roots | None = None) -> str | None:
    """The instance's own region; None if unknown."""
    if rehearsed_instance() is not None:
        return None
    instance = this_instance(roots or Roots())
    return instance.region or None if instance else None


def instance_here(roots: Roots | None = None) -> str:
    """This instance's id. Raises SetupError outside EC2."""
    rehearsed = rehearsed_instance()
    if rehearsed is not None:
        return rehearsed
    roots = roots or Roots()
    instance = this_instance(roots)
    if instance is None and roots.on_ec2():
        raise SetupError(
            "AWS_EC2_METADATA_DISABLED=true keeps the pack from asking which EC2 instance this is, which"
            " arms on AWS need; unset it (in a container the service's hop limit must be 2)"
        )
    if instance is None or not instance.instance_id:
        raise SetupError(
            "arms on AWS are made on the EC2 instance that the command runs on, and this is none; use a plan"
            " without [aws] (emulated), or --dry-run"
        )
    return instance.instance_id


def place_of(api: Api, instance: str) -> Place:
    """An instance's zone, subnet and security groups. Raises SetupError if AWS does not know it."""
    described = next(iter(described_as(api, instance)), None)
    if described is None:
        raise SetupError(f"{instance}: AWS knows no such instance in this region; set aws.region in the plan")
    zone = described["Placement"]["AvailabilityZone"]
    return Place(
        instance=instance,
        zone=zone,
        region=region_of(zone),
        subnet=described.get("SubnetId", ""),
        security_groups=tuple(group["GroupId"] for group in described.get("SecurityGroups", ())),
    )


def described_as(api: Api, instance: str) -> list[Mapping[str, Any]]:
    """An instance as described by EC2; empty if it does not exist (asked by id, that is an error)."""
    filters = [{"Name": "instance-id", "Values": [instance]}]
    groups = api.call("ec2", "DescribeInstances", Filters=filters)["Reservations"]
    return [instance for group in groups for instance in group["Instances"]]
