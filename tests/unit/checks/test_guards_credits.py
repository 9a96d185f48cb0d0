"""The guard on burst credits, and what a plan is reckoned to spend of them."""

from dataclasses import replace
from typing import Any

import pytest
from facts_of_arms import ALIKE, ARMS, GIB, KIB, MIB, arm, check_of, efs, fine, gp2, stopped

from esrally_ebs.checks.facts import ArmFacts
from esrally_ebs.checks.volume_state import demand
from esrally_ebs.model import Kind, Severity
from esrally_ebs.plan import Plan, parse_plan


def job_plan(**job: Any) -> Plan:  # noqa: ANN401
    keys = {"name": '"j"', "rw": '"randread"', "bs": '"16k"', "size": '"1g"', **job}
    text = "\n".join(f"{key} = {value}" for key, value in keys.items())
    return parse_plan(f'name = "p"\n{ARMS}[[baseline]]\n{text}\n', "p.toml")


# 1 GiB of 16 KiB is 65,536 I/Os; laid out as 4,096 of 256 KiB. A gp2 of 100 GiB bursts to 3000 and earns 300
# a second, so 90 % of what is done at 3000 IOPS is spent. The layout goes at 128 MiB/s = 512 I/Os a second.
LAYOUT = 4096 * (1 - 300 / 512)
READS = 65_536 * 0.9


def test_what_the_jobs_of_a_plan_spend_is_what_goes_beyond_the_baseline() -> None:
    model = arm("a", gp2(gib=100)).models[0]
    needed = demand(job_plan(), model)
    assert needed is not None
    assert needed.jobs == pytest.approx(LAYOUT + READS)
    assert (needed.copy, needed.race) == (0, 0)
    timed = demand(job_plan(runtime='"60s"', repeat="true"), model)
    assert timed is not None
    assert timed.jobs == pytest.approx(2 * (LAYOUT + 60 * (3000 - 300)))
    # what fio does not count is spent all the same
    assert demand(job_plan(ramp_time='"20s"', runtime='"40s"', repeat="true"), model) == timed
    assert demand(job_plan(), ALIKE[0].models[0]) is None  # gp3 has no credits


@pytest.mark.parametrize("table", ['[race]\ntrack = "mine"\n', '[race]\n[dataset]\ndata = "/data"\n'])
def test_of_an_index_that_is_not_known_only_the_jobs_are_counted(table: str) -> None:
    model = arm("a", gp2(gib=100)).models[0]
    known, unknown = (
        demand(parse_plan(f'name = "p"\n{ARMS}{race}', "p.toml"), model) for race in ("[race]\n", table)
    )
    assert known is not None
    assert unknown is not None
    assert min(known.copy, known.race) > 0
    assert unknown.total == 0


def test_a_race_reads_by_the_size_of_its_index_in_every_request_that_is_cold() -> None:
    def spent(documents: int, cache: str = "cold") -> float:
        text = f'[race]\niterations = 4\n[design]\nrounds = 10\n[cache]\nmode = "{cache}"\n'
        plan = parse_plan(f'name = "p"\n{ARMS}{text}[dataset]\ndocuments = {documents}\n', "p.toml")
        needed = demand(plan, arm("a", gp2(gib=100)).models[0])
        assert needed is not None
        return needed.race

    # 140 reads by each of 8 x 10 x 4 requests for a GiB, which is 1,966,560 documents of 546 bytes; reads are
    # of 107 KiB, so that 128 MiB/s let 1,225 a second through, while 300 are earned
    kept = 1 - 300 * 107 / (128 * 1024)
    assert spent(1_966_560) == pytest.approx(140 * 320 * kept, rel=1e-3)
    assert spent(2 * 1_966_560) == pytest.approx(2 * spent(1_966_560))
    assert spent(1_966_560, "warm") == pytest.approx(spent(1_966_560) / 4)  # once in each round
    assert spent(10) == pytest.approx(42 * 320 * kept)  # no index is read less


def test_too_few_credits_for_the_plan_are_stopped_with_the_sum() -> None:
    poor = arm("a", gp2(gib=100), balances={gp2().volume_id: 0.01})  # 1 % of 5.4 million is 54,000
    text = stopped("burst-balance", poor, plan=job_plan())
    assert f"has 54,000 credits, the plan spends {LAYOUT + READS:,.0f} ({LAYOUT + READS:,.0f} by fio)" in text
    assert fine("burst-balance", replace(poor, balances={gp2().volume_id: 0.02}), plan=job_plan())


def test_every_pass_before_a_change_in_place_spends_what_the_jobs_spend() -> None:
    text = '[[baseline]]\nname = "j"\nrw = "randread"\nbs = "16k"\nsize = "1g"\nrepeat = true\n'
    modified = '[modify]\narm = "a"\ntype = "gp3"\npasses = 5\n'
    plan = parse_plan(f'name = "p"\n{ARMS}{text}{modified}', "p.toml")
    needed = demand(plan, arm("a", gp2(gib=100)).models[0], arm="a")
    assert needed is not None
    assert needed.jobs == pytest.approx(5 * (LAYOUT + READS))


def test_the_credits_of_a_disk_type_are_bytes_and_small_random_reads_cost_a_mebibyte() -> None:
    st1 = gp2(type="st1", gib=1024, iops=None)
    needed = demand(job_plan(), arm("a", st1).models[0])
    assert needed is not None
    # each of 65,536 reads costs 1 MiB, at 250 MiB/s of which 40 are earned; layout is 1 GiB at that rate
    assert needed.jobs == pytest.approx((65_536 + 1024) * MIB * (1 - 40 / 250))


def test_the_members_of_a_stripe_share_what_the_plan_spends() -> None:
    both = (gp2(1, gib=100), gp2(2, gib=100))
    half = {both[0].volume_id: 0.006, both[1].volume_id: 0.006}  # 32,400 each: half of 60,677 is 30,338
    assert fine("burst-balance", arm("a", *both, balances=half), plan=job_plan())


def test_credits_that_cloudwatch_does_not_tell_are_unknown() -> None:
    text = stopped("burst-balance", arm("a", gp2()), plan=job_plan(), severity=Severity.UNKNOWN)
    assert "does not tell the burst balance of vol-" in text
    assert check_of("burst-balance", arm("a", gp2(gib=2000)), plan=job_plan()) is None  # never bursts


def test_an_empty_bucket_is_not_hidden_by_one_that_is_unknown() -> None:
    empty = arm("b", gp2(2, gib=100), balances={gp2(2).volume_id: 0.0})
    assert "b vol-00000000000000002 has 0 credits" in stopped(
        "burst-balance", arm("a", gp2()), empty, plan=job_plan()
    )


# An EFS file system of 1 TiB earns 50 MiB/s and moves 100, so half of what is metered is spent: all of the
# 1 GiB that is laid out, and a third of the 1 GiB that is read.
EFS_LAYOUT = GIB / 2
EFS_READS = GIB / 3 / 2


def on_efs(credit_bytes: float | None, **of_system: Any) -> ArmFacts:  # noqa: ANN401
    return arm("efs", kind=Kind.EFS, file_system=efs(**of_system), credit_bytes=credit_bytes)


def spent_on_efs(plan: Plan, **of_system: Any) -> float:  # noqa: ANN401
    model = on_efs(None, **of_system).bursting
    assert model is not None
    needed = demand(plan, model)
    assert needed is not None
    return needed.total


def test_a_byte_read_of_efs_costs_a_third_of_one_that_is_written() -> None:
    assert spent_on_efs(job_plan()) == pytest.approx(EFS_LAYOUT + EFS_READS)
    assert spent_on_efs(job_plan(rw='"randwrite"')) == pytest.approx(EFS_LAYOUT + GIB / 2)
    mixed = job_plan(rw='"randrw"', rwmixread=75)  # 3/4 of it at a third, and 1/4
    assert spent_on_efs(mixed) == pytest.approx(EFS_LAYOUT + GIB / 2 / 2)


def test_an_empty_efs_earns_one_mebibyte_a_second_and_counts_four_kib_at_least() -> None:
    # 1 GiB written at 100 MiB/s; a million reads count 4 KiB each, at 35,000 a second
    count = 1024**2
    layout, reads = GIB * 0.99, count * 4 * KIB / 3 - count / 35_000 * MIB
    assert spent_on_efs(job_plan(bs='"1k"'), gib=0) == pytest.approx(layout + reads)


def test_an_efs_in_bursting_mode_with_too_few_credits_is_stopped_and_elastic_mends_it() -> None:
    text = stopped("burst-balance", on_efs(600 * MIB), plan=job_plan())
    assert "efs fs-1 has 600.0 MiB credits, the plan spends 682.7 MiB (682.7 MiB by fio)" in text
    assert "--throughput-mode elastic" in text
    assert fine("burst-balance", on_efs(700 * MIB), plan=job_plan())


def test_credits_of_efs_that_cloudwatch_does_not_tell_are_unknown() -> None:
    text = stopped("burst-balance", on_efs(None), plan=job_plan(), severity=Severity.UNKNOWN)
    assert "does not tell the burst balance of fs-1" in text


@pytest.mark.parametrize("mode", ["elastic", "provisioned"])
def test_an_efs_that_does_not_live_on_credits_is_not_asked_for_them(mode: str) -> None:
    assert check_of("burst-balance", on_efs(0.0, mode=mode), plan=job_plan()) is None
