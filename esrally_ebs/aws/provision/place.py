"""Where arms are made: the instance that the command runs on, or the one that a rehearsal names."""

import os
from collections.abc import Mapping
from typing import Any

from esrally_ebs.aws.clients import REHEARSAL_VARIABLE as REHEARSAL_VARIABLE
from esrally_ebs.aws.clients import Api, items, leads_here
from esrally_ebs.aws.imds import region_of, this_instance
from esrally_ebs.aws.provision.goal import Place
from esrally_ebs.aws.roots import Roots
from esrally_ebs.errors import SetupError


def rehearsed_instance(environment: Mapping[str, str] = os.environ) -> str | None:
    """The instance that a rehearsal stands for; None when this is none.

    Raises SetupError unless AWS_ENDPOINT_URL leads to this machine: a rehearsal must never reach AWS. Whether
    every service does go there is seen when its client is made.
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
    """Whether arms can be made on AWS from here, as far as this machine can tell without asking anyone."""
    return rehearsed_instance() is not None or (roots or Roots()).on_ec2()


def region_here(roots: Roots | None = None) -> str | None:
    """The instance's own region; None when it does not say."""
    if rehearsed_instance() is not None:
        return None
    instance = this_instance(roots or Roots())
    return instance.region or None if instance else None


def instance_here(roots: Roots | None = None) -> str:
    """The id of this instance. Raises SetupError when this is none."""
    rehearsed = rehearsed_instance()
    if rehearsed is not None:
        return rehearsed
    instance = this_instance(roots or Roots())
    if instance is None or not instance.instance_id:
        raise SetupError(
            "arms on AWS are made on the EC2 instance that the command runs on, and this is none; use a plan"
            " without [aws] (emulated), or --dry-run"
        )
    return instance.instance_id


def place_of(api: Api, instance: str) -> Place:
    """Zone, subnet and security groups of an instance. Raises SetupError when AWS knows no such instance."""
    wanted = [{"Name": "instance-id", "Values": [instance]}]
    found = list(items(api, "ec2", "DescribeInstances", "Reservations", Filters=wanted))
    instances: list[Mapping[str, Any]] = [each for group in found for each in group["Instances"]]
    if not instances:
        raise SetupError(f"{instance}: AWS knows no such instance in this region; set aws.region in the plan")
    described = instances[0]
    zone = described["Placement"]["AvailabilityZone"]
    return Place(
        instance=instance,
        zone=zone,
        region=region_of(zone),
        subnet=described.get("SubnetId", ""),
        security_groups=tuple(group["GroupId"] for group in described.get("SecurityGroups", ())),
    )
