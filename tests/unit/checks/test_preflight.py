"""What a plan needs of the machine: root only for what really needs it."""

import re

import pytest
from small_plan import small_plan

from esrally_ebs.checks import preflight
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.plan import parse_plan

ARM = '[[arm]]\nname = "a"\ntype = "gp3"\n'


@pytest.fixture(autouse=True)
def _not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "is_root", lambda: False)


@pytest.mark.parametrize(
    "more", ['mount = "/mnt/gp3"\n', '[aws]\nregion = "eu-west-1"\n'], ids=["a mount", "made on AWS"]
)
def test_only_an_emulated_volume_needs_root(more: str) -> None:
    warm = '[cache]\nmode = "warm"\n'
    preflight.require(parse_plan(f'name = "p"\n{ARM}{more}{warm}', "p.toml"), with_nodes=True)


def test_an_emulated_volume_needs_root() -> None:
    with pytest.raises(SetupError, match=r"arm a: an emulated volume needs root; .*: mount = in the plan, "):
        preflight.require(parse_plan(f'name = "p"\n{ARM}', "p.toml"), with_nodes=False)


@pytest.mark.parametrize("more", ["", '[cache]\nmode = "steady"\n'], ids=["cold", "steady"])
def test_what_to_do_without_root_is_said_for_each_command(more: str) -> None:
    plan = parse_plan(f'name = "p"\n{ARM}mount = "/mnt/gp3"\n{more}', "p.toml")
    with pytest.raises(SetupError, match=r"set cache.mode = 'warm', of esrally race --track-params=cache"):
        preflight.require(plan, with_nodes=True)


@pytest.mark.parametrize(
    ("design", "searches", "message"),
    [
        ({"rounds": 6}, 30, r"design.rounds: 6 rounds can tell no .* on 30 tasks .*; 7 .*: set rounds = 7"),
        ({"rounds": 6, "confidence": 0.99}, 8, r"at 0.99; 7 are needed"),
        ({"rounds": "auto", "max_rounds": 7}, 90, r"set max_rounds = 8"),
    ],
)
def test_rounds_that_can_tell_no_difference_are_refused_with_the_number_needed(
    design: dict[str, object], searches: int, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        preflight.require_rounds(small_plan(design=design), searches)


@pytest.mark.parametrize(
    ("design", "searches"), [({"rounds": 6}, 8), ({"rounds": 7}, 30), ({"rounds": 2}, 8), ({"rounds": 6}, 0)]
)
def test_rounds_that_can_and_rehearsals_pass(design: dict[str, object], searches: int) -> None:
    preflight.require_rounds(small_plan(design=design), searches)


@pytest.mark.parametrize(
    ("aws", "change", "says"),
    [
        ("", 'type = "gp2"', r"modify\.arm: only one EBS volume is changed in place, and a is none; make"),
        ("[aws]\n", 'type = "gp33"', r"modify\.type: EBS has no type 'gp33'; use one of"),
        ("[aws]\n", "iops = 90000", r"modify\.iops: gp3 volume 'target': 90,000 IOPS is outside"),
        ("[aws]\n", 'size = "10GiB"', "modify: size: a volume cannot shrink from 100 to 10 GiB"),
    ],
)
def test_a_change_that_the_arm_cannot_have_is_refused_before_it_is_made(
    aws: str, change: str, says: str
) -> None:
    job = '[[baseline]]\nname = "j"\nrw = "read"\nbs = "4k"\n'
    plan = parse_plan(f'name = "p"\n{ARM}{job}{aws}[modify]\narm = "a"\n{change}\n', "p.toml")
    with pytest.raises(PlanError, match=rf"^p\.toml: {says}"):
        preflight.check_plan(plan)


def test_an_arm_that_a_plan_calls_by_another_name_than_aws_keeps_what_it_has() -> None:
    arm = '[[arm]]\nname = "a"\ntype = "io2-block-express"\nsize = "100GiB"\niops = 5000\n'
    job = '[[baseline]]\nname = "j"\nrw = "randread"\nbs = "16k"\n'
    modify = '[aws]\n[modify]\narm = "a"\nsize = "200GiB"\n'
    preflight.check_plan(parse_plan(f'name = "p"\n{arm}{job}{modify}', "p.toml"))


def test_a_place_that_records_and_containers_cannot_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    says = r": /h.* is not UTF-8; set it to a folder whose path is$"
    monkeypatch.setenv("ESRALLY_EBS_HOME", "/h\udcff")
    with pytest.raises(SetupError, match=f"^ESRALLY_EBS_HOME{says}"):
        preflight.require(parse_plan(f'name = "p"\n{ARM}', "p.toml"), with_nodes=False)
    monkeypatch.setenv("ESRALLY_EBS_RUN", "/h\udcff")
    with pytest.raises(SetupError, match=f"^ESRALLY_EBS_RUN{says}"):
        run_dir()


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        ("p99=40s", 'p99=40s: a step of 30 s ends before a query is late; set design.step = "10m"'),
        ("p99=1h", "p99=1h: a step of 30 s ends before a query is late; no step is that long"),
    ],
)
def test_a_bound_that_is_longer_than_a_step_is_refused(bound: str, text: str) -> None:
    plan = small_plan(race={}, cache={"mode": "warm"}, design={"knee": bound})
    with pytest.raises(PlanError, match=re.escape(text)):
        preflight.check_plan(plan)
    preflight.check_plan(small_plan(race={}, cache={"mode": "warm"}, design={"knee": "p99=30s"}))
