"""What arms are on: from mount points, the kernel's trees and access to AWS to a Survey.

AWS is asked only if a mount is on its volumes. If it refuses one question, the others are still answered;
unknown facts are in the Survey with their reason.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from esrally_ebs.aws import describe
from esrally_ebs.aws.clients import Api, Aws
from esrally_ebs.aws.describe import EbsVolume, FileSystem, InstanceLimits
from esrally_ebs.aws.identity import Identity, identify, with_known, with_mapping
from esrally_ebs.aws.instance import Instance, this_instance
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.disks import Sort
from esrally_ebs.machine.kernel_trees import Roots

T = TypeVar("T")
MakeApi = Callable[[str | None, Callable[[str], None]], Api]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    identities: Mapping[str, Identity]  # by arm
    volumes: Mapping[str, EbsVolume] = field(default_factory=dict)  # by id
    file_systems: Mapping[str, FileSystem] = field(default_factory=dict)  # by id
    instance: Instance | None = None
    limits: InstanceLimits | None = None
    unknown: tuple[str, ...] = ()  # unknown facts, and why
    calls: Mapping[str, int] = field(default_factory=dict)  # IAM action -> number of calls

    @property
    def on_aws(self) -> bool:
        """Whether any arm is on EBS or a known EFS."""
        return any(each.volume_ids or each.file_system_id for each in self.identities.values())

    def volumes_of(self, arm: str) -> tuple[EbsVolume, ...]:
        """The arm's volumes, if described by AWS."""
        return tuple(self.volumes[v] for v in self.identities[arm].volume_ids if v in self.volumes)


def connect(region: str | None, on_call: Callable[[str], None]) -> Api:
    """Access to AWS, in the environment's region or else in ``region``."""
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
    """Survey the mounts of all arms, by name; ``known``: ids known to an arm's maker.

    Raises PlanError for a path on no mount; failures of AWS do not raise.
    """
    roots = roots or Roots()
    identities = {
        arm: with_known(identify(path, roots), (known or {}).get(arm, ())) for arm, path in mounts.items()
    }
    questions = _Questions()
    instance = questions.ask("tell the instance", lambda: this_instance(roots))
    on_ec2 = roots.on_ec2()
    if not any(_is_of_aws(identity, on_ec2) for identity in identities.values()):
        return Survey(identities=identities, instance=instance, unknown=tuple(questions.unknown))
    region = instance.region if instance else None
    api = questions.ask("ask AWS", lambda: make_api(region, questions.count))
    result = Survey(identities=identities, instance=instance)
    if api is not None:
        result = _described(replace(result, identities=_with_xen(result, api, questions)), api, questions)
    return replace(result, unknown=tuple(questions.unknown), calls=dict(questions.calls))


class _Questions:
    """Questions that may fail independently."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.calls: Counter[str] = Counter()

    def count(self, action: str) -> None:
        self.calls[action] += 1

    def ask(self, what: str, question: Callable[[], T]) -> T | None:
        """The answer; None, with the reason kept, if there is none."""
        try:
            return question()
        except SetupError as error:
            self.unknown.append(f"could not {what}: {error}")
            return None


def _is_of_aws(identity: Identity, on_ec2: bool) -> bool:
    xen = on_ec2 and any(disk.sort is Sort.XEN for disk in identity.stack.disks)
    return bool(identity.volume_ids or identity.file_system_id) or xen


def _with_xen(surveyed: Survey, api: Api, questions: _Questions) -> Mapping[str, Identity]:
    """Fill in the volume ids of Xen disks, which only the instance's mapping shows."""
    identities, instance = surveyed.identities, surveyed.instance
    disks = [disk for identity in identities.values() for disk in identity.stack.disks]
    if instance is None or not any(disk.sort is Sort.XEN for disk in disks):
        return identities
    mapping = questions.ask(
        "tell which volumes the Xen disks are", lambda: describe.device_mapping(api, instance.instance_id)
    )
    return {arm: with_mapping(identity, mapping or {}) for arm, identity in identities.items()}


def _described(result: Survey, api: Api, questions: _Questions) -> Survey:
    ids = list(dict.fromkeys(v for identity in result.identities.values() for v in identity.volume_ids))
    file_systems = {i.file_system_id for i in result.identities.values() if i.file_system_id}
    instance = result.instance
    return replace(
        result,
        volumes=_volumes(api, ids, questions) if ids else {},
        file_systems=_file_systems(api, sorted(file_systems), questions),
        limits=questions.ask(
            "tell the instance's limits", lambda: describe.describe_instance_type(api, instance.instance_type)
        )
        if instance and instance.instance_type
        else None,
    )


def _volumes(api: Api, ids: Sequence[str], questions: _Questions) -> dict[str, EbsVolume]:
    volumes = questions.ask(
        "tell type, size, IOPS and state of the volumes", lambda: describe.describe_volumes(api, ids)
    )
    if not volumes:
        return {}
    changes = questions.ask(
        "tell whether the volumes are being modified", lambda: describe.describe_modifications(api, ids)
    )
    restored = [id_ for id_, volume in volumes.items() if volume.snapshot_id]
    fractions: Mapping[str, float] | None = None
    if restored:
        fractions = questions.ask(
            "tell whether volumes made from snapshots are initialised",
            lambda: describe.describe_initialisation(api, restored),
        )
    for id_, volume in volumes.items():
        state, progress = (None, None) if changes is None else changes.get(id_, ("", None))
        volumes[id_] = replace(
            volume, initialised=(fractions or {}).get(id_), modification=state, modified=progress
        )
    return volumes


def _file_systems(api: Api, ids: Sequence[str], questions: _Questions) -> dict[str, FileSystem]:
    systems = {
        id_: questions.ask(f"tell what {id_} is", partial(describe.describe_file_system, api, id_))
        for id_ in ids
    }
    return {id_: system for id_, system in systems.items() if system is not None}
