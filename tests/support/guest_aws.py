"""AWS for a guest: moto's server and a metadata service on the host, and the variables that lead to them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from fake_imds import imds
from instance_on_moto import make_instance
from moto_server import REGION
from virtual_machine import HOST

from esrally_ebs.aws.clients import Aws

_ITEMS = {
    "instance-type": "m5.large",
    "placement/availability-zone": f"{REGION}a",
    "placement/region": REGION,
}
PYTEST = ".venv/bin/python -m pytest -p no:cacheprovider -v --color=no --durations=0 --confcutdir=tests/guest"


@contextmanager
def instance_of_guest(api: Aws) -> Iterator[tuple[str, str, str]]:
    """An instance that the guest takes itself for, and a volume of somebody else's that it has: their ids.

    The third is shell words that begin each of its commands.

    To be used with the fixture ``aws``, whose variables the guest gets.
    """
    instance, theirs = make_instance(api, size_gib=8)
    with imds({"instance-id": instance, **_ITEMS}) as service:
        variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        variables["AWS_EC2_METADATA_DISABLED"] = "false"
        variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = service.url
        words = [f"{name}={value.replace('127.0.0.1', HOST)}" for name, value in variables.items()]
        kept = "PYTHONPATH=$PYTHONPATH PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
        yield instance, theirs, f"sudo {kept} {' '.join(words)}"
