"""Doing the steps of an arm and writing them down: the journal, refusals, and AWS that puts one off."""

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_world import GOALS, World, ebs

from esrally_ebs.aws.clients import AwsError
from esrally_ebs.aws.provision.efs import create_parameters
from esrally_ebs.aws.provision.host import DeviceQuery, HostState
from esrally_ebs.aws.provision.journal import History, Journal, JournalEntry
from esrally_ebs.errors import CommandError, FormatError, SetupError


def entry(key: str, state: Any, **fields: Any) -> JournalEntry:  # noqa: ANN401
    return JournalEntry(key=key, state=state, at_s=1.0, fields=fields)


class Refusing:
    """AWS that answers an operation with a refusal, always or the first few times."""

    def __init__(self, world: World, operation: str, code: str, most: float = float("inf")) -> None:
        self._world, self._operation, self._code, self._most, self.times = world, operation, code, most, 0

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        if operation == self._operation and self.times < self._most and "DryRun" not in params:
            self.times += 1
            raise AwsError(f"{service}:{operation}", self._code, f"{self._code}: not here")
        return self._world.aws.call(service, operation, **params)


def test_a_refusal_that_stays_is_told_in_the_words_of_aws(tmp_path: Path) -> None:
    world = World(tmp_path, ebs())
    world.start()
    executor, refusing = world.executor(), Refusing(world, "AttachVolume", "InvalidParameterValue")
    with pytest.raises(AwsError, match="not here"):
        replace(executor, api=refusing).up()
    assert 1 < refusing.times <= 20
    executor.down()
    assert world.left() == []


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("DescribeVolumes", "RequestLimitExceeded"),
        ("CreateVolume", "RequestLimitExceeded"),
        ("DeleteVolume", "Unavailable"),
        ("AttachVolume", "InvalidVolume.NotFound"),  # listed, but not yet known everywhere
        ("AttachVolume", "InvalidDevice.InUse"),
    ],
)
def test_what_aws_refuses_for_a_while_is_asked_for_again(operation: str, code: str, tmp_path: Path) -> None:
    world = World(tmp_path, ebs())
    world.start()
    refusing = Refusing(world, operation, code, most=5)
    executor = replace(world.executor(), api=refusing)
    executor.up()
    executor.down()
    assert refusing.times == 5
    assert world.left() == []
    assert world.untouched()


def test_aws_that_puts_one_off_for_ten_minutes_is_told_in_its_words(tmp_path: Path) -> None:
    world = World(tmp_path, ebs())
    world.start()
    began = world.now
    with pytest.raises(AwsError, match="RequestLimitExceeded: not here"):
        replace(world.executor(), api=Refusing(world, "CreateVolume", "RequestLimitExceeded")).up()
    assert 600 < world.now - began < 660


def test_a_wait_that_is_too_long_ends_with_what_to_run_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, ebs())
    world.start()
    with monkeypatch.context() as patched:
        patched.setattr(world.aws, "_takes_s", 1e6)
        with pytest.raises(SetupError, match=r" to be created; .*, then run the same command again$"):
            world.executor().up()
    world.executor().up()
    with monkeypatch.context() as patched:
        patched.setattr(world.aws, "_takes_s", 1e6)
        with pytest.raises(SetupError, match=r"detaching; .*, then run 'esrally-ebs clean'; vol-\w+ stays"):
            world.executor().down()
    world.executor().down()
    assert world.left() == []


def test_of_a_stripe_the_price_of_what_is_left_is_told(tmp_path: Path) -> None:
    world = World(tmp_path, GOALS["a stripe of two"])
    world.start()
    world.executor().up()

    class DeletingOne(Refusing):
        def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
            if operation == "DeleteVolume" and self.times == 0:
                self.times += 1
                return self._world.aws.call(service, operation, **params)
            return super().call(service, operation, **params)

    refusing = DeletingOne(world, "DeleteVolume", "ExpiredToken", most=2)
    with pytest.raises(AwsError, match=r"; vol-\w+ stays and goes on costing 0\.0011 USD an hour"):
        replace(world.executor(), api=refusing).down()  # gp3 of 10 GiB: 0.08 USD a month and GiB
    world.executor().down()
    assert world.left() == []


def test_of_a_mount_that_is_in_use_the_volume_that_stays_is_named_with_its_price(tmp_path: Path) -> None:
    world = World(tmp_path, ebs())
    world.start()
    world.executor().up()

    class Busy:
        look = staticmethod(world.machine.look)

        def do(self, operation: str, arguments: Mapping[str, Any]) -> None:
            raise CommandError(f"umount {arguments['point']}: exit code 32: target is busy.")

    with pytest.raises(
        SetupError, match=r"target is busy\.; vol-\w+ stays and goes on costing 0\.0011 USD an"
    ):
        replace(world.executor(), host=Busy()).down()
    world.executor().down()
    assert world.left() == []


def test_of_a_run_directory_without_room_the_volume_that_stays_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, ebs())
    world.start()
    world.executor().up()

    class Full(Journal):
        def append(self, *entries: JournalEntry) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SetupError, match=r"aws-journal\.jsonl: No space left .*; vol-\w+ stays and goes on"):
        replace(world.executor(), journal=Full(tmp_path)).down()
    world.executor().down()
    assert world.left() == []


@pytest.mark.parametrize("name", ["one volume", "a stripe of two"])
def test_a_volume_that_cannot_be_read_any_more_is_taken_down(name: str, tmp_path: Path) -> None:
    world = World(tmp_path, GOALS[name])
    world.start()
    world.executor().up()

    class Failed:
        do = staticmethod(world.machine.do)

        def look(self, query: DeviceQuery) -> HostState:
            if query.sizes and query.contents:
                raise SetupError("/dev/nvme1n1: Input/output error")
            return world.machine.look(query)

    replace(world.executor(), host=Failed()).down()
    assert world.left() == []


def test_what_nobody_allows_is_not_asked_for_again(tmp_path: Path) -> None:
    world = World(tmp_path, ebs())
    world.start()
    denied = Refusing(world, "CreateVolume", "UnauthorizedOperation")
    with pytest.raises(AwsError):
        replace(world.executor(), api=denied).up()
    assert denied.times == 1


class Slow:
    """AWS whose answer to a creation is lost, after the SDK has tried for minutes; the last try was heard."""

    def __init__(self, world: World) -> None:
        self._world = world

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        if not operation.startswith("Create"):
            return self._world.aws.call(service, operation, **params)
        self._world.now += 150
        self._world.aws.call(service, operation, **params)
        raise AwsError(f"{service}:{operation}", "ReadTimeoutError", "no answer")


@pytest.mark.parametrize("name", ["one volume", "EFS"])
def test_what_a_call_of_minutes_has_made_at_its_end_is_waited_for_and_removed(
    name: str, tmp_path: Path
) -> None:
    world = World(tmp_path, GOALS[name])
    world.start()
    with pytest.raises(AwsError, match="no answer"):
        replace(world.executor(), api=Slow(world)).up()
    world.executor().down()
    assert world.left() == []
    assert world.untouched()


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.parametrize(
    ("name", "step"), [("a disk of the instance", "format"), ("a stripe of disks", "stripe")]
)
def test_a_session_that_took_the_same_disks_too_late_takes_down_nothing(
    name: str, step: str, mounted: bool, tmp_path: Path
) -> None:
    world = World(tmp_path / "first", GOALS[name])
    world.start()
    world.executor().up()
    if not mounted:
        del world.machine.mounts[world.goal.point]
    before = world.ids()
    late = replace(world.executor(), journal=Journal(tmp_path / "late", sync=lambda file: None))
    goal = replace(world.goal, run="fedcba9876543210", point=Path("/run/late/mnt"))
    taken = ["AWS2", "AWS3"][: goal.count]
    late.journal.begin(goal, world.now, entry("claim", "done", serials=taken), entry(step, "intent"))
    with pytest.raises(SetupError, match=r"AWS2\) (is not empty|is used by|holds xfs that we did not make)"):
        late.up()
    late.down()
    assert world.ids() == before
    world.executor().down()
    assert world.left() == []


def test_a_line_that_a_crash_cut_swallows_no_later_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.begin(ebs(), 0.0)
    with journal.path.open("a") as file:
        file.write('{"key": "create/0", "state": "inte')
    journal.append(entry("create/1", "intent"))
    history = journal.read()
    assert history is not None
    assert [kept.key for kept in history.entries] == ["create/1"]
    assert history.goal == ebs()


def test_a_journal_without_its_goal_is_not_acted_upon(tmp_path: Path) -> None:
    Journal(tmp_path).append(entry("create/0", "intent"))
    with pytest.raises(FormatError, match="does not begin with a goal"):
        Journal(tmp_path).read()


def test_a_refused_request_is_no_longer_waited_for_but_was_asked() -> None:
    history = History(goal=ebs(), entries=(entry("create/0", "intent"), entry("create/0", "refused")))
    assert not history.pending("create/0")
    assert history.begun("create/0")


def test_what_is_there_already_was_not_refused(tmp_path: Path) -> None:
    world = World(tmp_path, GOALS["EFS"])
    world.start()
    world.aws.call("efs", "CreateFileSystem", **create_parameters(world.goal))  # and we never heard of it
    world.executor().up()
    assert "FileSystemAlreadyExists" not in Journal(tmp_path).path.read_text()
