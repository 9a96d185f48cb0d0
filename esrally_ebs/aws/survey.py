"""Everything that can be found out about arms before they are measured, and what cannot, with the reason.

Takes mount points, the kernel's trees and a way to AWS; gives a Survey. AWS is asked only when a mount stands
on its volumes, and a question that it refuses leaves the others answered.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from esrally_ebs.aws import describe
from esrally_ebs.aws.clients import Api, Aws
from esrally_ebs.aws.disks import Sort
from esrally_ebs.aws.identity import Identity, identify, with_known, with_mapping
from esrally_ebs.aws.imds import Instance, this_instance
from esrally_ebs.aws.records import EbsVolume, FileSystem, InstanceLimits
from esrally_ebs.aws.roots import Roots
from esrally_ebs.errors import SetupError

T = TypeVar("T")
MakeApi = Callable[[str | None, Callable[[str], None]], Api]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is known of the arms."""

    identities: Mapping[str, Identity]  # by arm
    volumes: Mapping[str, EbsVolume] = field(default_factory=dict)  # by id
    file_systems: Mapping[str, FileSystem] = field(default_factory=dict)  # by id
    instance: Instance | None = None
    limits: InstanceLimits | None = None
    unknown: tuple[str, ...] = ()  # what could not be found out, and why
    calls: Mapping[str, int] = field(default_factory=dict)  # IAM action -> how often

    @property
    def on_aws(self) -> bool:
        """Whether any arm is on EBS or a known EFS."""
        return any(found.volume_ids or found.file_system_id for found in self.identities.values())

    def volumes_of(self, arm: str) -> tuple[EbsVolume, ...]:
        """The arm's volumes as far as AWS told."""
        return tuple(self.volumes[v] for v in self.identities[arm].volume_ids if v in self.volumes)


def connect(region: str | None, on_call: Callable[[str], None]) -> Api:
    """The way to the real AWS, in the region of the environment or else in ``region``."""
    return Aws(
        os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or region, on_call=on_call
    )


def survey(
    mounts: Mapping[str, Path],
    *,
    known: Mapping[str, Sequence[str]] | None = None,
    roots: Roots | None = None,
    make_api: MakeApi = connect,
) -> Survey:
    """Look at the mounts of all arms, by name; ``known`` has the ids that whoever made an arm knows of it.

    Raises PlanError for a path on no mount; nothing of AWS's.
    """
    roots = roots or Roots()
    found = {
        arm: with_known(identify(path, roots), (known or {}).get(arm, ())) for arm, path in mounts.items()
    }
    asking = _Asking()
    instance = asking.try_to("tell the instance", lambda: this_instance(roots))
    on_ec2 = roots.on_ec2()
    if not any(_is_of_aws(identity, on_ec2) for identity in found.values()):
        return Survey(identities=found, instance=instance, unknown=tuple(asking.unknown))
    api = asking.try_to("ask AWS", lambda: make_api(instance.region if instance else None, asking.count))
    if api is not None:
        found = _mapped(found, api, instance, asking)
    result = Survey(identities=found, instance=instance)
    if api is not None:
        result = _described(result, api, asking)
    return replace(result, unknown=tuple(asking.unknown), calls=dict(asking.calls))


class _Asking:
    """Questions that may fail, each by itself."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.calls: Counter[str] = Counter()

    def count(self, action: str) -> None:
        """Hear of a call."""
        self.calls[action] += 1

    def try_to(self, what: str, ask: Callable[[], T]) -> T | None:
        """The answer; None when there is none, and the reason is kept."""
        try:
            return ask()
        except SetupError as error:
            self.unknown.append(f"could not {what}: {error}")
            return None


def _is_of_aws(identity: Identity, on_ec2: bool) -> bool:
    xen = on_ec2 and any(disk.sort is Sort.XEN for disk in identity.stack.disks)
    return bool(identity.volume_ids or identity.file_system_id) or xen


def _mapped(
    found: Mapping[str, Identity], api: Api, instance: Instance | None, asking: _Asking
) -> dict[str, Identity]:
    """Xen disks with the ids of their volumes, which only the instance's mapping tells."""
    disks = [disk for identity in found.values() for disk in identity.stack.disks]
    if instance is None or not any(disk.sort is Sort.XEN for disk in disks):
        return dict(found)
    mapping = asking.try_to(
        "tell which volumes the Xen disks are", lambda: describe.device_mapping(api, instance.instance_id)
    )
    return {arm: with_mapping(identity, mapping or {}) for arm, identity in found.items()}


def _described(result: Survey, api: Api, asking: _Asking) -> Survey:
    ids = list(dict.fromkeys(v for identity in result.identities.values() for v in identity.volume_ids))
    file_systems = {i.file_system_id for i in result.identities.values() if i.file_system_id}
    instance = result.instance
    return replace(
        result,
        volumes=_volumes(api, ids, asking) if ids else {},
        file_systems=_file_systems(api, sorted(file_systems), asking),
        limits=asking.try_to(
            "tell the instance's limits", lambda: describe.describe_instance_type(api, instance.instance_type)
        )
        if instance and instance.instance_type
        else None,
    )


def _volumes(api: Api, ids: Sequence[str], asking: _Asking) -> dict[str, EbsVolume]:
    found = asking.try_to(
        "tell type, size, IOPS and state of the volumes", lambda: describe.describe_volumes(api, ids)
    )
    if not found:
        return {}
    changes = asking.try_to(
        "tell whether the volumes are being modified", lambda: describe.describe_modifications(api, ids)
    )
    restored = [volume for volume, facts in found.items() if facts.snapshot_id]
    read = {}
    if restored:
        read = (
            asking.try_to(
                "tell whether volumes made from snapshots are initialised",
                lambda: describe.describe_initialisation(api, restored),
            )
            or {}
        )
    for volume, facts in found.items():
        change: dict[str, Any] = {}
        if changes is not None:
            state, progress = changes.get(volume, ("", None))
            change = {"modification": state, "modified": progress}
        found[volume] = replace(facts, initialised=read.get(volume), **change)
    return found


def _file_systems(api: Api, ids: Sequence[str], asking: _Asking) -> dict[str, FileSystem]:
    found = {
        name: asking.try_to(f"tell what {name} is", partial(describe.describe_file_system, api, name))
        for name in ids
    }
    return {name: facts for name, facts in found.items() if facts is not None}
