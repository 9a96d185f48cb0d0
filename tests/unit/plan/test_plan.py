"""Plans: what is accepted, and what a wrong one is told."""

from pathlib import Path

import pytest

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Backend
from esrally_ebs.plan import Plan, load_plan, parse_plan

SMALLEST = 'name = "x"\n[[arm]]\nname = "a"\ntype = "gp3"\n'
JOB = '[[baseline]]\nname = "j"\nrw = "read"\nbs = "16k"\n'


def test_the_smallest_plan_is_one_arm() -> None:
    assert parse_plan(SMALLEST, "x.toml").arm[0].size_bytes == 100 * 1024**3


def test_sizes_rates_and_times_may_be_written_with_units() -> None:
    text = f'{SMALLEST}size = "1TiB"\nthroughput = "500MiB/s"\n{JOB}runtime = "3s"\n'
    plan = parse_plan(text, "x.toml")
    assert plan.arm[0].size_bytes == 1024**4
    assert plan.arm[0].throughput_bytes_per_s == 500 * 1024**2
    assert (plan.baseline[0].bs, plan.baseline[0].runtime) == (16384, 3.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\n', "x.toml: arm: "),
        (SMALLEST + "[design]\nseed = -1\n", "x.toml: design.seed: "),
        (SMALLEST + '[dataset]\ndata = "here"\n', "x.toml: dataset.data: 'here' does not begin with '/'"),
        (
            SMALLEST + '[dataset]\nsnapshot = "r/s"\n',
            "x.toml: dataset.snapshot: 'r/s' does not begin with '/'",
        ),
        (
            SMALLEST + '[dataset]\ndata = "/d"\nsnapshot = "/r/s"\n',
            "x.toml: dataset.snapshot: indices are taken from data as well; leave one of them out",
        ),
        (SMALLEST + '[dataset]\nindices = ["a"]\n', "x.toml: dataset.indices: .* none is named; give data"),
        (SMALLEST + f'size = "{"9" * 400}"\n', "x.toml: arm.0.size: more than"),
        (SMALLEST + f"size = {'9' * 400}\n", "x.toml: arm.0.size: .*less than or equal"),
        (SMALLEST + f'throughput = "{"9" * 400}MiB/s"\n', "x.toml: arm.0.throughput: more than"),
        (f"{SMALLEST}{JOB}rest = inf\n", "x.toml: baseline.0.rest: .*finite"),
        (f'{SMALLEST}{JOB}rest = "{"9" * 400}h"\n', "x.toml: baseline.0.rest: more seconds"),
        (f"{SMALLEST}size = {'9' * 5001}\n", "x.toml: not TOML"),
        ("a = " + "[" * 5000, "x.toml: .*nested too deeply"),
        (f"{SMALLEST}{JOB}runtime = 1e300\n", "x.toml: baseline.0.runtime: .*less than or equal to 31622400"),
        (f"{SMALLEST}{JOB}randseed = {10**30}\n", "x.toml: baseline.0.randseed: .*less than or equal"),
        (
            SMALLEST + "[design]\nrounds = 1000000000\n",
            "x.toml: design.rounds: 1000000000 is neither a whole number from 1 to 1,000 nor 'auto'$",
        ),
        (SMALLEST + "[design]\nrounds = nan\n", "x.toml: design.rounds: nan is neither"),
        (SMALLEST + "[design]\nrounds = 2.5\n", "x.toml: design.rounds: 2.5 is no whole number$"),
        (SMALLEST + "[design]\nrounds = true\n", "x.toml: design.rounds: True is neither"),
        (SMALLEST + "[design]\nmax_rounds = 1000000000\n", "x.toml: design.max_rounds: .*equal to 1000"),
        (SMALLEST + "[dataset]\ndocuments = 0\n", "x.toml: dataset.documents: 0 is neither"),
        (SMALLEST + f"[dataset]\ndocuments = {10**15}\n", "to 2,147,483,519 nor 'full'$"),
        (SMALLEST + '[dataset]\ndocuments = "all"\n', "x.toml: dataset.documents: 'all' is neither"),
        (SMALLEST + "[race]\niterations = 1000000000\n", "x.toml: race.iterations: .*equal to 1000000"),
        (SMALLEST + "[race]\nwarmup_iterations = 1000000000\n", "x.toml: race.warmup_iterations: "),
        (SMALLEST + "[node]\nparams = {cpus = [1]}\n", r"x.toml: node.params.cpus: \[1\] is neither text"),
        (SMALLEST + "node = 3\n", "x.toml: arm.0.node: unknown key"),
        ('trace = "all"\n' + SMALLEST, "x.toml: trace: 'all' is none of true, false and 'perturb'$"),
        ('trace = "perturb"\n' + SMALLEST, "trace: 'perturb' is of requests, and the plan has none"),
        ('trace = "perturb"\nrace = {}\n' + SMALLEST, "trace: 'perturb' takes 8 rounds or more"),
        (
            'trace = "perturb"\nrace = {}\n' + SMALLEST + '[[arm]]\nname = "b"\ntype = "gp2"\n',
            "trace: 'perturb' changes an arm from round to round",
        ),
        (
            'trace = "perturb"\nrace = {}\n' + SMALLEST.replace("gp3", "directory"),
            "trace: 'perturb' makes reads slower, as only emulated",
        ),
        ("node = 3\n" + SMALLEST, "x.toml: node: is not a table"),
        ("", r"x.toml: name: is required; see docs/plans.md \(and 1 more\)"),
    ],
)
def test_a_wrong_plan_is_told_file_key_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as raised:
        parse_plan(text, "x.toml")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("given", [9, "9", 9.0], ids=["number", "text", "of JSON"])
def test_a_count_may_come_as_the_text_of_a_command_line(given: object) -> None:
    plan = parse_plan(SMALLEST, "x.toml", {"design.rounds": given, "dataset.documents": given})
    assert (plan.design.rounds, plan.dataset.documents) == (9, 9)


def test_a_file_may_begin_with_the_mark_of_an_editor(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(SMALLEST, encoding="utf-8-sig")
    assert load_plan(tmp_path / "p.toml").name == parse_plan(SMALLEST, "p.toml").name


def test_a_file_that_is_not_utf_8_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(f"# caf\u00e9\n{SMALLEST}".encode("latin-1"))
    with pytest.raises(PlanError, match=r"plan.toml: not UTF-8 at byte 5"):
        load_plan(path)


def test_arms_of_one_instance_have_one_time_scale() -> None:
    text = 'name = "p"\n' + "".join(
        f'[[arm]]\nname = "{name}"\ntype = "gp3"\ninstance = "{instance}"\ntime_scale = {times}\n'
        for name, instance, times in (("a", "m5.large", 1), ("b", "{}", 10))
    )

    with pytest.raises(PlanError, match=r"p\.toml: arm\.1\.time_scale: 'b' shares the limits of 'm5.large'"):
        parse_plan(text.format("m5.large"), "p.toml")
    assert parse_plan(text.format("m5.large#2"), "p.toml").arm[1].time_scale == 10


def test_each_node_of_an_arm_has_a_volume_a_mount_and_an_instance_of_its_own() -> None:
    text = f'{SMALLEST}instance = "m5.large"\nmounts = ["/x", "/y"]\n[node]\ncount = 2\n[race]\n'
    plan = parse_plan(text, "x.toml")
    volumes = plan.volumes_of(plan.arm[0])
    assert [(v.name, str(v.mount), v.instance) for v in volumes] == [
        ("a-1", "/x", "m5.large#1"),
        ("a-2", "/y", "m5.large#2"),
    ]
    assert {v.backend for v in volumes} == {Backend.MOUNTED}
    assert plan.node_names("a") == ("a-1", "a-2")


def test_the_volume_of_an_arm_of_one_node_is_the_arms() -> None:
    plan = parse_plan(SMALLEST, "x.toml")
    assert plan.volumes_of(plan.arm[0]) == plan.arm


TYPES = """name = "x"
[[arm]]
name = "gp2"
type = "gp2"
[[arm]]
name = "own"
type = "mounted"
mounts = ["/mnt/a", "/mnt/b", "/mnt/c"]
[race]
[design]
volumes = 3
reference = "own"
"""


def test_several_volumes_of_a_type_are_arms_of_its_name() -> None:
    plan = parse_plan(TYPES, "x.toml")
    assert plan.types == {"gp2": ("gp2-1", "gp2-2", "gp2-3"), "own": ("own-1", "own-2", "own-3")}
    assert [arm.name for arm in plan.arm] == [name for names in plan.types.values() for name in names]
    assert [str(arm.mount) for arm in plan.arm[3:]] == ["/mnt/a", "/mnt/b", "/mnt/c"]
    assert {arm.read_latency for arm in plan.arm} == {1.0}
    recorded = Plan.model_validate(plan.record())
    assert (recorded.arm, recorded.types) == (plan.arm, plan.types)


def test_what_volumes_of_a_type_differ_by_goes_with_the_seed() -> None:
    text = TYPES.replace('type = "gp2"\n', 'type = "gp2"\nread_latency = 2.0\nspread = 0.02\n')
    drawn = [
        [arm.read_latency for arm in parse_plan(text, "x.toml", {"design.seed": seed}).arm[:3]]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1]
    assert len({*drawn[0], *drawn[2]}) == 6
    assert all(1.8 < factor < 2.2 for factor in drawn[0])


@pytest.mark.parametrize("region", ["eu-west-1", "us-gov-west-1", "eusc-de-east-1", "us-isob-east-1"])
def test_a_region_may_be_of_any_partition_of_aws(region: str) -> None:
    text = f'name = "p"\n[cost]\nregion = "{region}"\n[[arm]]\nname = "a"\ntype = "gp3"\n'
    assert parse_plan(text, "x.toml").cost.region == region
