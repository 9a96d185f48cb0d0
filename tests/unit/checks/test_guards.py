"""Guards: each looks at plain facts and says what is wrong, how bad that is, and how it is mended."""

from dataclasses import replace
from typing import Any

import pytest
from facts_of_arms import ALIKE, ARMS, GIB, KIB, MIB, PLAN, arm, check_of, efs, fine, gp2, stopped, volume

from esrally_ebs.aws.describe import InstanceLimits
from esrally_ebs.checks.facts import Activity, ClockFacts, Facts, InstanceFacts
from esrally_ebs.checks.guards import guard
from esrally_ebs.model import Kind, Severity, VolumeSpec
from esrally_ebs.plan import parse_plan


def test_two_volumes_that_are_alike_are_stopped_by_nothing() -> None:
    checks = guard(Facts(plan=PLAN, arms=ALIKE, clock=ClockFacts(synchronised=True)))
    assert [check.name for check in checks if not check.ok] == []
    assert {"size", "filesystem", "encryption", "modification", "root-device"} <= {c.name for c in checks}


def test_an_arm_on_the_systems_disk_is_stopped() -> None:
    assert "own disk: a (nvmean1)" in stopped("root-device", arm("a", root=True), ALIKE[1])


def test_btrfs_on_the_systems_disk_is_stopped_though_it_has_no_single_device() -> None:
    on_root = arm("a", root=True, device=None, filesystem="btrfs")
    assert "own disk: a (btrfs)" in stopped("root-device", on_root)
    assert fine("root-device", arm("a", device=None, filesystem="btrfs"))
    inside = arm("a", root=None, device=None, filesystem="btrfs")  # a container
    assert "not known whether a is" in stopped("root-device", inside, severity=Severity.UNKNOWN)


def test_a_cache_below_the_file_system_stops_a_cold_session_and_is_warned_of_in_a_warm_one() -> None:
    cached = arm("a", volume(0), caches=("loop1 reads /x through the page cache (direct I/O is off)",))
    assert "a: loop1 reads /x" in stopped("caches-below", cached, ALIKE[1])
    warm = parse_plan(f'name = "p"\n[cache]\nmode = "warm"\n{ARMS}', "p.toml")
    assert "--direct-io=on" in stopped("caches-below", cached, severity=Severity.WARN, plan=warm)
    assert fine("caches-below", *ALIKE)
    pool = arm("a", caches=("/tank: ZFS keeps blocks in its own cache (ARC)",), device=None)
    assert "ARC" in stopped("caches-below", pool)


@pytest.mark.parametrize(
    ("name", "other", "text"),
    [
        ("filesystem", {"filesystem": "ext4"}, "a xfs, b ext4"),
        ("mount-options", {"mount_options": "rw,relatime"}, "b relatime, rw"),
        ("readahead", {"readahead_bytes": 4096 * KIB}, "a 128 KiB, b 4096 KiB"),
        ("scheduler", {"scheduler": "mq-deadline"}, "a none, b mq-deadline"),
    ],
)
def test_arms_that_differ_in_what_is_not_compared_are_stopped(
    name: str, other: dict[str, Any], text: str
) -> None:
    assert text in stopped(name, ALIKE[0], arm("b", volume(1), **other))
    assert fine(name, *ALIKE)


def test_options_that_are_each_mounts_own_do_not_count() -> None:
    alone = arm("a", volume(0), mount_options="rw,noatime,logbufs=8,logbsize=32k,noquota")
    of_chunks = "rw,noatime,logbufs=8,logbsize=64k,sunit=128,swidth=256,noquota"  # of 64 KiB, as LVM's are
    assert fine("mount-options", alone, arm("b", volume(1), mount_options=of_chunks))


def test_one_encrypted_arm_beside_a_plain_one_is_stopped() -> None:
    assert "a yes, b no" in stopped("encryption", ALIKE[0], arm("b", volume(1, encrypted=False)))
    mixed = arm("b", volume(1), volume(2, encrypted=False))
    assert "b in part" in stopped("encryption", ALIKE[0], mixed)
    assert check_of("encryption", ALIKE[0], replace(ALIKE[1], members=())) is None  # nobody could tell


def test_an_arm_that_does_not_tell_hides_no_difference_of_the_others() -> None:
    untold = arm("c", volume(2), scheduler=None)
    assert "a none, b bfq" in stopped("scheduler", ALIKE[0], arm("b", volume(1), scheduler="bfq"), untold)
    assert "not known whether c has the same scheduler" in stopped(
        "scheduler", *ALIKE, untold, severity=Severity.UNKNOWN
    )
    plain = arm("b", volume(1, encrypted=False))
    assert "a yes, b no" in stopped("encryption", ALIKE[0], plain, replace(untold, members=()))


def test_sizes_that_differ_are_a_warning_and_what_file_systems_keep_does_not_count() -> None:
    assert "a 100.0 GiB, b 500.0 GiB" in stopped("size", ALIKE[0], arm("b", gp2()), severity=Severity.WARN)
    kept = VolumeSpec(name="b", type="mounted", size_bytes=99 * GIB)
    assert fine("size", arm("a"), arm("b", spec=kept))
    half = VolumeSpec(name="b", type="mounted", size_bytes=50 * GIB, stripes=2)  # as the plan says of each
    assert fine("size", ALIKE[0], arm("b", spec=half))


def test_efs_is_held_to_amazons_readahead_and_not_to_that_of_disks() -> None:
    slow = arm("efs", kind=Kind.EFS, filesystem="nfs4", readahead_bytes=128 * KIB)
    text = stopped("readahead", ALIKE[0], slow, severity=Severity.WARN)
    assert "reads ahead 128 KiB, Amazon Linux sets 15360" in text
    other = arm("b", volume(1), readahead_bytes=4096 * KIB)
    assert "a 128 KiB, b 4096 KiB" in stopped("readahead", ALIKE[0], other, slow)
    ruled = arm("efs", kind=Kind.EFS, filesystem="nfs4", readahead_bytes=15_360 * KIB)
    assert fine("readahead", *ALIKE, ruled)
    assert fine("filesystem", *ALIKE, ruled)  # a file system over the network is what is compared


def test_a_gp3_beyond_the_catalog_is_judged_by_what_aws_tells_of_it() -> None:
    beyond = volume(iops=1_000_000)
    assert arm("new", beyond).models == ()
    assert "new (gp3) has 125 MiB/s" in stopped("gp3-throughput", arm("old", gp2()), arm("new", beyond))
    untold = arm("new", replace(beyond, throughput_bytes_per_s=None))
    assert stopped("gp3-throughput", arm("old", gp2()), untold, severity=Severity.UNKNOWN)


@pytest.mark.parametrize("name", ["instance-limit", "instance-burst"])
def test_an_arm_of_which_nothing_is_known_is_not_said_to_fit_the_instance(name: str) -> None:
    untold = replace(ALIKE[1], members=())
    lent = instance(base_mib=300)
    assert "what b can do" in stopped(name, ALIKE[0], untold, instance=lent, severity=Severity.UNKNOWN)
    assert fine(name, *ALIKE, instance=lent)


def test_where_the_systems_disk_is_not_known_nobody_says_that_the_arm_is_on_another() -> None:
    inside = arm("a", root=None)
    assert "not known whether a is" in stopped("root-device", inside, severity=Severity.UNKNOWN)


def test_a_gp3_left_at_125_beside_a_gp2_of_250_is_stopped() -> None:
    text = stopped("gp3-throughput", arm("old", gp2()), arm("new", volume(size_bytes=500 * GIB)))
    assert "new (gp3) has 125 MiB/s, old (gp2) reaches 250" in text
    raised = arm("new", volume(throughput_bytes_per_s=250 * MIB))
    assert fine("gp3-throughput", arm("old", gp2()), raised)
    striped = arm("new", volume(0), volume(2))  # twice 125
    assert fine("gp3-throughput", arm("old", gp2()), striped)


def test_a_volume_that_is_not_all_read_from_its_snapshot_is_stopped() -> None:
    made = volume(snapshot_id="snap-1", initialised=0.4)
    assert f"a {made.volume_id} 40%" in stopped("initialised", arm("a", made))
    assert fine("initialised", arm("a", replace(made, initialised=1.0)))
    assert fine("initialised", arm("a", replace(made, fast_restored=True)))
    untold = arm("a", replace(made, initialised=None))
    assert "does not say" in stopped("initialised", untold, severity=Severity.UNKNOWN)


@pytest.mark.parametrize("state", ["modifying", "optimizing"])
def test_a_volume_in_change_is_stopped(state: str) -> None:
    assert f"{state} (30%)" in stopped("modification", arm("a", volume(modification=state, modified=0.3)))
    assert fine("modification", arm("a", volume(modification="completed")))
    untold = arm("a", volume(modification=None))
    assert "not told" in stopped("modification", untold, severity=Severity.UNKNOWN)


def instance(base_iops: int = 3600, base_mib: int = 80, top_iops: int = 18_750, top_mib: int = 600) -> Any:  # noqa: ANN401
    limits = InstanceLimits(
        instance_type="r5.large",
        baseline_iops=base_iops,
        baseline_bytes_per_s=base_mib * MIB,
        maximum_iops=top_iops,
        maximum_bytes_per_s=top_mib * MIB,
    )
    return InstanceFacts(limits=limits)


def test_an_instance_that_one_arm_alone_saturates_is_stopped_and_all_together_a_warning() -> None:
    big = volume(iops=16_000, throughput_bytes_per_s=1000 * MIB)
    assert "a 1,000 MiB/s of 600 MiB/s" in stopped("instance-limit", arm("a", big), instance=instance())
    both = (arm("a", volume(0, iops=10_000)), arm("b", volume(1, iops=10_000)))
    text = stopped("instance-limit", *both, instance=instance(), severity=Severity.WARN)
    assert "20,000 IOPS of 18,750 IOPS" in text
    assert fine("instance-limit", *ALIKE, instance=instance())


def test_arms_that_live_on_the_instances_burst_are_a_warning_and_without_its_credits_stopped() -> None:
    text = stopped("instance-burst", ALIKE[0], instance=instance(), severity=Severity.WARN)
    assert "a 125 MiB/s of 80 MiB/s" in text
    used = replace(instance(), byte_balance=0.6)
    assert "60% of its credits are left" in stopped("instance-burst", ALIKE[0], instance=used)
    assert fine("instance-burst", ALIKE[0], instance=instance(base_mib=600, base_iops=18_750))


def test_other_requests_on_the_device_are_a_warning_and_many_are_stopped() -> None:
    some = arm("a", activity=Activity(seconds=1.0, requests=20, bytes=80 * KIB))
    assert "a 20 requests/s" in stopped("other-io", some, severity=Severity.WARN)
    many = arm("a", activity=Activity(seconds=2.0, requests=10, bytes=40 * MIB))
    assert "20.0 MiB/s" in stopped("other-io", many)
    assert fine("other-io", arm("a", activity=Activity(seconds=1.0, requests=2, bytes=8 * KIB)))


def test_what_could_not_be_found_out_is_said() -> None:
    reason = "could not ask AWS: no credentials"
    assert reason in stopped("identity", ALIKE[0], unknown=(reason,), severity=Severity.UNKNOWN)
    check = check_of("identity", ALIKE[0], arm("efs", kind=Kind.EFS, file_system=efs("elastic")))
    assert check is not None
    assert "efs is fs-1 (EFS, elastic)" in check.text


def test_an_accepted_check_is_on_record_and_stops_nothing() -> None:
    plan = PLAN.model_copy(update={"accept": ("scheduler",)})
    check = check_of("scheduler", ALIKE[0], arm("b", volume(1), scheduler="bfq"), plan=plan)
    assert check is not None
    assert (check.ok, check.accepted, check.forbids, check.mark) == (False, True, False, "accepted")
    good = check_of("filesystem", *ALIKE, plan=plan.model_copy(update={"accept": ("filesystem",)}))
    assert good is not None
    assert not good.accepted  # there was nothing to accept
