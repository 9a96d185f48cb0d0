"""The IAM policies for making and changing volumes allow exactly what is called, and only on what is ours.

The policies are judged by the rules that IAM documents: a statement counts when its action, resource and
condition fit, and what no statement allows is denied. Every call of every kind of arm is recorded and judged.
"""

import fnmatch
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aws_world import GOALS, World
from killed_world import PLANS, Instance

from esrally_ebs.aws.clients import AwsError, action_of
from esrally_ebs.aws.modify import Settings, begin, progress_of, settings_of
from esrally_ebs.aws.provision.goal import TAG_RUN, Goal, tags_of
from esrally_ebs.volumes import aws as backend

POLICIES = Path(__file__).parents[3] / "esrally_ebs" / "aws" / "policies"
VOLUME = "arn:aws:ec2:us-east-1:123456789012:volume/v"
INSTANCE, SNAPSHOT = "arn:aws:ec2:us-east-1:123456789012:instance/i", "arn:aws:ec2:us-east-1::snapshot/s"
SYSTEM = "arn:aws:elasticfilesystem:us-east-1:123456789012:file-system/f"
# What IAM checks besides the call itself, when tags are given or EFS makes a network interface.
IMPLIED = {"ec2:CreateTags", "elasticfilesystem:TagResource"}
IMPLIED |= {f"ec2:{name}" for name in ("CreateNetworkInterface", "DeleteNetworkInterface")}
IMPLIED |= {"ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"}

Context = Mapping[str, Any]


class Commanded(NamedTuple):
    """The calls of ``volumes up`` and ``down``, and those of ``clean`` when it has tags alone to go by."""

    up_and_down: list[tuple[str, str, Context]]
    clean: list[tuple[str, str, Context]]


def statements(*names: str) -> list[Mapping[str, Any]]:
    return [s for name in names for s in json.loads((POLICIES / f"{name}.json").read_text())["Statement"]]


def listed(value: Any) -> list[str]:  # noqa: ANN401 - JSON
    return [value] if isinstance(value, str) else list(value)


def allows(policy: list[Mapping[str, Any]], action: str, resource: str, context: Context) -> bool:
    """Whether any statement allows an action on one resource."""
    return any(
        action in listed(s["Action"])
        and any(fnmatch.fnmatchcase(resource, pattern) for pattern in listed(s["Resource"]))
        and all(fits(kind, keys, context) for kind, keys in s.get("Condition", {}).items())
        for s in policy
    )


def fits(kind: str, keys: Mapping[str, Any], context: Context) -> bool:
    """One operator of a condition, by the rules of IAM; KeyError for one that this test does not know."""
    return {
        "Null": lambda key, want: (key in context) is (want == "false"),
        "StringEquals": lambda key, want: context.get(key) in listed(want),
        "ForAllValues:StringEquals": lambda key, want: set(context.get(key, ())) <= set(want),
    }[kind](*next(iter(keys.items()))) and len(keys) == 1


class Recorded:
    """A world whose calls are written down with what IAM would know of each: resources and tags."""

    def __init__(self, world: World | Instance) -> None:
        self._world = world
        self.calls: list[tuple[str, str, Context]] = []

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        self.calls += self._judged(action_of(service, operation), params)
        return self._world.aws.call(service, operation, **params)

    def _judged(self, action: str, params: Mapping[str, Any]) -> Iterator[tuple[str, str, Context]]:
        given = (
            params["TagSpecifications"][0]["Tags"] if "TagSpecifications" in params else params.get("Tags")
        )
        context: dict[str, Any] = {f"aws:RequestTag/{k}": v for k, v in tags_of(given).items()}
        context |= {"aws:TagKeys": list(tags_of(given))} if given else {}
        volume = self._world.aws.volumes.get(params.get("VolumeId", ""))
        system = self._world.aws.efs.file_systems.get(
            params.get("FileSystemId", params.get("MountTargetId", "")).removeprefix("fsmt-")
        )
        resource = volume or system
        context |= {f"aws:ResourceTag/{k}": v for k, v in tags_of(resource.tags).items()} if resource else {}
        if ":Describe" in action:
            yield action, "*", context
            return
        if action == "ec2:ModifyInstanceAttribute":
            yield action, INSTANCE, {}
            return
        yield action, SYSTEM if action.startswith("elastic") else VOLUME, context
        if "InstanceId" in params:
            yield action, INSTANCE, {}
        if "SnapshotId" in params:
            yield action, SNAPSHOT, {}
        if given:
            made = {f"{action.split(':')[0]}:CreateAction": action.split(":")[1], **context}
            tagging = (
                ("ec2:CreateTags", VOLUME) if "ec2" in action else ("elasticfilesystem:TagResource", SYSTEM)
            )
            yield *tagging, made


class Enforced(Recorded):
    """The same, and what the policy does not allow is denied."""

    def __init__(self, world: World | Instance, policy: list[Mapping[str, Any]]) -> None:
        super().__init__(world)
        self._policy = policy

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        action = action_of(service, operation)
        if all(allows(self._policy, *judged) for judged in self._judged(action, params)):
            return super().call(service, operation, **params)
        raise AwsError(action, "AccessDeniedException", "not allowed")


def calls_of(goal: Goal, directory: Path) -> list[tuple[str, str, Context]]:
    world = World(directory, goal)
    world.start()
    executor = world.executor()
    recorded = Recorded(world)
    object.__setattr__(executor, "api", recorded)
    executor.up()
    executor.down()
    return recorded.calls


@pytest.mark.parametrize("goal", GOALS.values(), ids=GOALS.keys())
def test_every_call_of_up_and_down_is_allowed(goal: Goal, tmp_path: Path) -> None:
    policy = statements(*(["provisioning-efs"] if goal.sort == "efs" else ["provisioning", "termination"]))
    denied = [call for call in calls_of(goal, tmp_path) if not allows(policy, *call)]
    assert denied == []


def command_all(instance: Instance, api: Recorded, patch: pytest.MonkeyPatch) -> Commanded:
    """Up and down, and an up whose session is forgotten by a reboot and cleaned up."""
    patch.setattr(backend, "Aws", lambda region: api)
    for words in (("up", "PLAN"), ("down",), ("up", "PLAN")):
        assert instance.command("volumes", *words) == 0
    shutil.rmtree(instance.root / "run")
    instance.reboot()
    before, api.calls = api.calls, []
    assert instance.command("clean") == 0
    assert instance.left() == []
    return Commanded(before, api.calls)


@pytest.fixture
def commanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commanded:
    """What the commands themselves call, for every kind of arm."""
    every = Commanded([], [])
    for name, plan in PLANS.items():
        (tmp_path / name).mkdir()
        instance = Instance(tmp_path / name, plan, monkeypatch)
        for all_calls, calls in zip(
            every, command_all(instance, Recorded(instance), monkeypatch), strict=True
        ):
            all_calls.extend(calls)
    return every


@pytest.mark.parametrize("name", [name for name in PLANS if name != "EFS"])
def test_without_efs_arms_the_commands_need_one_policy_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = Instance(tmp_path, PLANS[name], monkeypatch)
    calls = command_all(instance, Enforced(instance, statements("provisioning")), monkeypatch)
    assert "EFS was not asked for what killed sessions left there" in capsys.readouterr().out
    if "instance-store" not in PLANS[name]:
        allowed = {action for s in statements("provisioning") for action in listed(s["Action"])}
        assert actions_of([*calls.up_and_down, *calls.clean]) == allowed


def actions_of(calls: list[tuple[str, str, Context]]) -> set[str]:
    return {action for action, _, _ in calls}


def test_clean_finds_and_removes_with_what_the_policies_allow(commanded: Commanded) -> None:
    policy = statements("provisioning", "provisioning-efs")
    assert [call for call in commanded.clean if not allows(policy, *call)] == []
    assert actions_of(commanded.clean) == {
        "ec2:DescribeVolumes",
        "ec2:DescribeInstances",  # which instance this is, and whether an owner's instance is gone
        "ec2:DetachVolume",
        "ec2:DeleteVolume",
        "elasticfilesystem:DescribeFileSystems",
        "elasticfilesystem:DescribeMountTargets",
        "elasticfilesystem:DeleteMountTarget",
        "elasticfilesystem:DeleteFileSystem",
    }


def test_the_policies_allow_the_calls_of_the_commands_and_no_others(commanded: Commanded) -> None:
    policy = statements("provisioning", "provisioning-efs", "termination")
    called = [*commanded.up_and_down, *commanded.clean]
    assert [call for call in called if not allows(policy, *call)] == []
    assert {action for s in policy for action in listed(s["Action"])} == actions_of(called) | IMPLIED


@pytest.mark.parametrize(
    "action", ["ec2:AttachVolume", "ec2:DetachVolume", "ec2:DeleteVolume", "ec2:ModifyVolume"]
)
def test_a_volume_without_our_tag_is_out_of_reach(action: str) -> None:
    policy = statements("provisioning", "provisioning-efs", "modify")
    theirs = {"aws:ResourceTag/Name": "production"}
    assert not allows(policy, action, VOLUME, theirs)
    assert allows(policy, action, VOLUME, theirs | {f"aws:ResourceTag/{TAG_RUN}": "1"})


@pytest.mark.parametrize("action", ["DeleteFileSystem", "DeleteMountTarget", "CreateMountTarget"])
def test_a_file_system_without_our_tag_is_out_of_reach(action: str) -> None:
    policy = statements("provisioning", "provisioning-efs")
    assert not allows(policy, f"elasticfilesystem:{action}", SYSTEM, {})
    assert allows(policy, f"elasticfilesystem:{action}", SYSTEM, {f"aws:ResourceTag/{TAG_RUN}": "1"})


def test_a_volume_cannot_be_made_without_our_tag_or_with_others() -> None:
    policy = statements("provisioning")
    assert not allows(policy, "ec2:CreateVolume", VOLUME, {})
    ours = {f"aws:RequestTag/{TAG_RUN}": "1", "aws:TagKeys": [TAG_RUN]}
    assert allows(policy, "ec2:CreateVolume", VOLUME, ours)
    assert not allows(policy, "ec2:CreateVolume", VOLUME, ours | {"aws:TagKeys": [TAG_RUN, "team"]})


def test_nothing_that_exists_can_be_tagged_as_ours() -> None:
    policy = statements("provisioning", "provisioning-efs", "modify")
    assert not allows(policy, "ec2:CreateTags", VOLUME, {f"aws:RequestTag/{TAG_RUN}": "1"})
    assert not allows(policy, "elasticfilesystem:TagResource", SYSTEM, {f"aws:RequestTag/{TAG_RUN}": "1"})
    assert allows(policy, "ec2:CreateTags", VOLUME, {"ec2:CreateAction": "CreateVolume"})


def test_a_change_in_place_needs_no_more_than_its_policy(tmp_path: Path) -> None:
    world = World(tmp_path, GOALS["one volume"])
    recorded = Recorded(world)
    theirs = "vol-00000000000000001"
    now, ours = settings_of(recorded, theirs, None)
    begin(recorded, theirs, now, Settings(type="gp3", size_gib=8, iops=3000))
    progress_of(recorded, theirs)
    policy = statements("modify")
    assert not ours
    assert {action for action, _, _ in recorded.calls} == {a for s in policy for a in listed(s["Action"])}
    marked = {"aws:ResourceTag/esrally-ebs:modify": "allowed"}
    assert not allows(policy, "ec2:ModifyVolume", VOLUME, {})
    assert allows(policy, "ec2:ModifyVolume", VOLUME, marked)


def test_no_policy_has_a_wildcard_action() -> None:
    for path in POLICIES.glob("*.json"):
        assert not [
            a for s in json.loads(path.read_text())["Statement"] for a in listed(s["Action"]) if "*" in a
        ]
