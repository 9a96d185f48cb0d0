"""Track parameters, cars and test mode over a plan."""

from pathlib import Path

import pytest
from esrally.utils import opts

from esrally_ebs.errors import PlanError
from esrally_ebs.plan import Plan
from esrally_ebs.rally.settings import plan_for


def test_without_parameters_the_default_plan_is_used() -> None:
    assert plan_for({}).name == "gp2-vs-gp3"


def test_track_parameters_are_laid_over_the_plan() -> None:
    plan = plan_for(
        {"rounds": "3", "iterations": 2, "warmup_iterations": "9", "documents": "5000", "cache": "warm"}
    )
    assert plan.race is not None
    assert (plan.design.rounds, plan.race.iterations, plan.race.warmup_iterations) == (3, 2, 9)
    assert (plan.dataset.documents, plan.cache.mode) == (5000, "warm")


@pytest.mark.parametrize("given", ["a;b", ["a", "b"]])
def test_indices_of_ones_own_are_named_in_either_form_that_rally_reads(given: object) -> None:
    plan = plan_for({"data": "/data", "indices": given}).dataset
    assert (plan.data, plan.indices) == (Path("/data"), ("a", "b"))


@pytest.mark.parametrize(
    ("key", "given", "says"),
    [
        *(
            ("documents", count, r"dataset\.documents: .* is neither a whole")
            for count in ("\u00b2", "\u0663x", 10**15)
        ),
        ("data", "s3://bucket/snap", "dataset.data: 's3:/bucket/snap' is no path; restore what is elsewhere"),
        ("snapshot", "gs://bucket/snap", "'gs:/bucket/snap' is no path; restore what is elsewhere"),
        ("snapshot", "s3://bucket", "names none in a bucket; give s3://BUCKET/BASE_PATH/SNAPSHOT"),
        ("snapshot", "s3://", "dataset.snapshot: names none in a bucket; give s3://BUCKET/"),
        *(("set", given, "set: .* is no table; write for") for given in (3, "design.rounds=3", ["x"])),
        *(("volumes", text, "is not name=/mount") for text in ("/mnt/gp2", "gp2=mnt", "gp2=", "")),
        ("volumes", "a=/x,a=/y", "used twice"),
        *(
            (name, given, f"^track parameter {name}: .* is no text; write for example '{name}:")
            for name in ("volumes", "accept")
            for given in ({"gp2": "/mnt/gp2"}, [1], 7, None)
        ),
        *(
            ("plan", name, "^plan '.*': there is none of that name; choose one of aa, .*smoke")
            for name in ("gp4", "", "../pipelines/aa", "/etc/passwd", "GP2-vs-gp3")
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(key: str, given: object, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        plan_for({key: given})


def test_mounts_of_several_volumes_of_a_type_are_given_in_the_plan() -> None:
    with pytest.raises(PlanError, match=r"design\.volumes: arm a has one mount; write mounts = "):
        plan_for({"volumes": "a=/x;b=/y", "set": {"design.volumes": 3}})


def test_a_snapshot_may_be_in_s3() -> None:
    assert plan_for({"snapshot": "s3://bucket/base/snap"}).dataset.snapshot == Path("s3:/bucket/base/snap")


def test_full_stands_for_the_official_corpus() -> None:
    assert plan_for({"documents": "full"}).dataset.documents == "full"


@pytest.mark.parametrize(
    "words",
    [
        "volumes:gp2=/mnt/gp2;gp3=/mnt/gp3",
        '{"volumes": "gp2=/mnt/gp2, gp3=/mnt/gp3"}',
        '{"volumes": ["gp2=/mnt/gp2", "gp3=/mnt/gp3"]}',
    ],
)
def test_real_mounts_replace_the_plans_arms_in_every_form_that_rally_reads(words: str) -> None:
    plan = plan_for(opts.to_dict(words))
    assert [(arm.name, arm.type, arm.mount) for arm in plan.arm] == [
        ("gp2", "mounted", Path("/mnt/gp2")),
        ("gp3", "mounted", Path("/mnt/gp3")),
    ]


def test_real_mounts_must_go_with_the_rest_of_the_plan() -> None:
    mounts = {"volumes": "old=/mnt/old;new=/mnt/new"}
    assert plan_for({**mounts, "set": {"design.reference": "new"}}).design.reference == "new"
    # session.json keeps the plan, and none is read whose reference is no arm
    with pytest.raises(PlanError, match=r"design\.reference: no arm is named 'gp2'; write one of old, new"):
        plan_for({**mounts, "set": {"design.reference": "gp2"}})


@pytest.mark.parametrize("given", ["readahead;other-io", "readahead,other-io", ["readahead", "other-io"]])
def test_checks_are_accepted_by_name(given: object) -> None:
    assert plan_for({"accept": given}).accept == ("readahead", "other-io")


def test_test_mode_makes_everything_short_and_keeps_every_kind_of_step() -> None:
    plan = plan_for({}, test_mode=True)
    assert plan.race is not None
    assert (plan.dataset.documents, plan.design.rounds, plan.race.iterations) == (1000, 2, 1)
    assert {job.name for job in plan.baseline} == {job.name for job in plan_for({}).baseline}
    often = plan_for({"set": {"design.rounds": 20, "design.starts": 5}}, test_mode=True).design
    assert (often.rounds, often.rounds_of_starts) == (3, (range(1, 2), range(2, 3), range(3, 4)))
    knee = plan_for({"set": {"design.knee": "p99=1s", "cache.mode": "warm"}}, test_mode=True).design
    assert (knee.step, knee.steps) == (10, 6)


def test_test_mode_leaves_a_plan_that_perturbs_its_rounds(tmp_path: Path) -> None:
    file = tmp_path / "perturbed.toml"
    file.write_text(
        'name = "p"\ntrace = "perturb"\nrace = {}\ndesign = { rounds = 16 }\n'
        '[[arm]]\nname = "a"\ntype = "gp3"\n'
    )
    plan = plan_for({"plan": str(file)}, test_mode=True)
    assert Plan.model_validate(plan.model_dump(by_alias=True)).design.rounds == 8


def test_test_mode_leaves_no_ramp_before_the_short_runtime(tmp_path: Path) -> None:
    file = tmp_path / "ramped.toml"
    file.write_text(
        'name = "ramped"\n[race]\n[[arm]]\nname = "a"\ntype = "gp3"\n'
        '[[baseline]]\nname = "j"\nrw = "randread"\nbs = "4k"\nruntime = "60s"\nramp_time = "60s"\n'
    )
    (job,) = plan_for({"plan": str(file)}, test_mode=True).baseline
    assert job.lasts_s == 0.5
