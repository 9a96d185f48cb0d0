"""What a log says that a volume did, on other volumes' limits."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from usage_logs import IOSTAT, idle

from esrally_ebs.advice.advice import usage_options
from esrally_ebs.advice.usage import Interval, columns_of, parse_usage, replay_usage
from esrally_ebs.advice.usage_tables import build_usage
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli import main
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, KIB, MIB

GP3 = VolumeSpec(name="a", type="gp3", size_bytes=500 * GIB, iops=16_000, throughput_bytes_per_s=1000 * MIB)
QUIET = Interval(seconds=60, reads=60_000, read_bytes=60_000 * 16 * KIB, writes=0, written_bytes=0)
BUSY = replace(QUIET, reads=60 * 5000, read_bytes=60 * 5000 * 16 * KIB)


@pytest.fixture
def iostat(tmp_path: Path) -> Path:
    (path := tmp_path / "iostat.txt").write_text(IOSTAT)
    return path


def test_next_to_no_ios_of_any_size_are_replayed() -> None:
    hardly = replace(QUIET, reads=1e-300, read_bytes=1e300)
    assert replay_usage(columns_of([hardly]), model_for(GP3)).limited_s in (0, 60)


def test_a_limit_is_reached_until_what_is_owed_is_done() -> None:
    """5,000 a second for a minute on 3,000, which had a second of its rate saved, leaves 117,000 owed."""
    gp3 = model_for(replace(GP3, iops=3000, throughput_bytes_per_s=125 * MIB))
    usage = replay_usage(columns_of([QUIET, BUSY, QUIET, QUIET]), gp3)
    assert usage.at_limit_s == {"iops": 60 + 117_000 / 2000, "throughput": 0.0}
    assert usage.limited_s == 118.5
    assert usage.lowest_credits is None


@pytest.mark.parametrize("lengths", [[60] * 60, [3600]])
def test_credits_come_back_while_a_volume_is_idle_however_long_its_reports_are(lengths: list[int]) -> None:
    """What ``iostat -z`` and CloudWatch leave out was no time: nothing came back, and nothing was done."""
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=100 * GIB, iops=None, throughput_bytes_per_s=None))
    usage = replay_usage(columns_of([BUSY] * 20 + [idle(seconds) for seconds in lengths] + [QUIET] * 10), gp2)
    assert usage.at_limit_s["credits"] == 2 * 60 + 240_000 / 300  # used up, and then what is owed


@pytest.mark.parametrize(("share", "limited_s"), [(0.90, 0.0), (0.97, 60.0), (1.0, 60.0)])
def test_who_uses_nearly_all_of_a_limit_is_at_it(share: float, limited_s: float) -> None:
    """A log of a volume that was held back never shows more than its limit."""
    gp3 = model_for(replace(GP3, iops=3000, throughput_bytes_per_s=125 * MIB))
    held = replace(QUIET, read_bytes=60 * share * 125 * MIB)
    assert replay_usage(columns_of([QUIET, held]), gp3).at_limit_s == {"iops": 0.0, "throughput": limited_s}


def test_the_baseline_is_no_limit_while_there_are_credits() -> None:
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=100 * GIB, iops=None, throughput_bytes_per_s=None))
    baseline = replace(QUIET, reads=300 * 60, read_bytes=300 * 60 * 16 * KIB)
    assert replay_usage(columns_of([baseline] * 60), gp2).limited_s == 0
    assert replay_usage(columns_of([baseline] * 60), gp2, credits=0.0).limited_s == 3600


def test_credits_are_used_up_at_the_rate_beyond_the_baseline() -> None:
    """gp2 of 100 GiB has 300 IOPS and 5.4 million credits: 700 beyond it an hour are 2.52 million."""
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=100 * GIB, iops=None, throughput_bytes_per_s=None))
    usage = replay_usage(columns_of([QUIET] * 60), gp2)
    assert usage.lowest_credits == pytest.approx(1 - 2.52 / 5.4)


def test_credits_that_were_left_at_first_are_those_of_every_setting(
    iostat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody could say them: a volume whose balance was used up seemed to burst for half an hour."""
    today = VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB, credits=0.0)
    first, *others = usage_options([QUIET] * 10, today, region="us-east-1", types=["gp2"])[0]
    assert first.usage.at_limit_s["credits"] == 600
    assert others[0].usage == first.usage
    command = ["usage", str(iostat), "--size", "100GiB", "--credits"]
    assert main([*command, "0.25", "--type", "gp2"]) == 0
    assert "Credits were 25% full at the start" in capsys.readouterr().out
    for share, says in (("0.25", "gp3 of this size has no burst"), ("nan", "no share"), ("25", "no share")):
        assert main([*command, share, *([] if "gp3" in says else ["--type", "gp2"])]) == 2
        assert says in capsys.readouterr().err


def test_credits_were_never_lower_than_at_first_where_they_grew() -> None:
    """Of 900 GiB whose balance was half full 52 % were said to be the lowest."""
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=900 * GIB, iops=None, throughput_bytes_per_s=None))
    assert replay_usage(columns_of([QUIET] * 60), gp2, credits=0.5).lowest_credits == 0.5


def test_a_disk_of_the_instance_is_not_for_nothing_without_a_word() -> None:
    """It was the cheapest, for 0.00 USD a month."""
    disk = VolumeSpec(name="a", type="instance-store", size_bytes=500 * GIB, iops=100_000)
    for today, said in ((disk, 1), (GP3, 0)):
        options, _ = usage_options([QUIET] * 10, today, region="us-east-1", types=["gp3"])
        warnings = build_usage("log", [QUIET] * 10, options, region="us-east-1").warnings
        assert len([one for one in warnings if "its data end when that stops" in one]) == said


def test_right_below_the_cheapest_setting_stands_that_latency_was_not_looked_at() -> None:
    """Of a log with little to do that is a disk, whose every I/O takes milliseconds."""
    today = VolumeSpec(name="a", type="gp3", size_bytes=500 * GIB)
    options, _ = usage_options([idle(60)] * 10, today, region="us-east-1", types=["gp3", "st1"])
    report = build_usage("log", [idle(60)] * 10, options, region="us-east-1")
    assert report.verdict.startswith("st1")
    assert any("Nothing is said of the latency of requests" in label for label in report.labels)


@pytest.mark.parametrize(
    ("idle_s", "hours", "named"), [(0, "2.1", "gp2 334"), (60, "7.5", "gp2 167"), (240, None, "gp2 100")]
)
def test_a_volume_that_lives_on_credits_is_not_named_but_how_long_they_last_is_said(
    idle_s: int, hours: str | None, named: str
) -> None:
    """Of a log of minutes it was the cheapest: gp2 of 100 GiB has 300 of the 1,000 IOPS, and full credits."""
    today = VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB)
    log = [QUIET, idle(idle_s)] * 10
    options, _ = usage_options(log, today, region="us-east-1", types=["gp2"])
    report = build_usage("log", log, options, region="us-east-1")
    assert report.verdict.startswith(f"{named} GiB is the cheapest that stays below its limits: ")
    assert report.details == (
        ()
        if hours is None
        else (
            "gp2 100 GiB stays below them only on burst credits: on average more is taken than comes back, so"
            f" they last {hours} hours.",
        )
    )


def test_an_instances_credits_are_its_own() -> None:
    spec = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None, instance="t3.small")
    full, empty = (
        replay_usage(columns_of([BUSY]), model_for(spec), credits=share).at_limit_s for share in (1.0, 0.0)
    )
    assert {name for name in full if full[name] != empty[name]} == {"credits"}


def test_random_ios_cost_a_disk_a_mebibyte_each() -> None:
    """1,000 a second are 1,000 MiB/s to st1, of 125 MB/s at 500 GiB."""
    st1 = model_for(replace(GP3, type="st1", iops=None, throughput_bytes_per_s=None))
    assert replay_usage(columns_of([QUIET]), st1).at_limit_s["throughput"] == 60.0


@pytest.mark.parametrize(("per_s", "kib_per_s"), [("976.56", "250000.00"), ("1000.00", "250.2M")])
def test_ios_of_the_largest_size_are_one_operation_each_though_a_log_rounds(
    per_s: str, kib_per_s: str
) -> None:
    """A byte more than 256 KiB on average counted as two: 1,000 IOPS of a stream were 2,000, credits too."""
    text = IOSTAT.replace("1000.00  16000.00", f"{per_s}  {kib_per_s}")
    (interval,) = parse_usage(text, "log")
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=400 * GIB, iops=None, throughput_bytes_per_s=None))
    usage = replay_usage(columns_of([interval] * 60), gp2)
    assert usage.at_limit_s["iops"] == usage.at_limit_s["credits"] == 0
    assert usage.lowest_credits == 1.0  # 1,200 IOPS come back
    doubled = replace(interval, read_bytes=1.2 * interval.read_bytes)
    assert replay_usage(columns_of([doubled] * 60), gp2).lowest_credits < 1.0


def test_today_comes_first_and_then_the_cheaper_the_longer_at_a_limit() -> None:
    (today, *others), _ = usage_options([QUIET, BUSY], GP3, region="us-east-1", types=["gp3"])
    assert today.spec == GP3
    costs = [one.usd for one in others]
    limited = [one.usage.limited_s for one in others]
    assert costs == sorted(costs)
    assert limited == sorted(limited, reverse=True)
    assert limited[-1] == 0


def test_todays_own_setting_is_one_of_those_that_suffice() -> None:
    """Of 3,500 IOPS 4,000 were said to be the cheapest, for 2.50 USD a month more."""
    today = replace(GP3, iops=3500, throughput_bytes_per_s=None)
    of_3200 = replace(BUSY, reads=60 * 3200, read_bytes=60 * 3200 * 16 * KIB)
    options, _ = usage_options([of_3200], today, region="us-east-1")
    report = build_usage("log", [of_3200], options, region="us-east-1")
    assert report.verdict == (
        "gp3 500 GiB, 3,500 IOPS, 125 MiB/s is the cheapest that stays below its limits: that of today."
    )
    settings = [row.item.removesuffix(" (today)") for row in report.tables[0].rows]
    assert len(settings) == len(set(settings))


@pytest.mark.parametrize(
    ("today", "ios", "cheapest"),
    [
        (VolumeSpec(name="a", type="io2", size_bytes=500 * GIB, iops=256_000), 130_000, {"iops": 136_843}),
        (VolumeSpec(name="a", type="st1", size_bytes=500 * GIB), 100, {"size_bytes": 2695 * GIB}),
        (VolumeSpec(name="a", type="sc1", size_bytes=500 * GIB), 170, {"size_bytes": 15_271 * GIB}),
        (VolumeSpec(name="a", type="gp2", size_bytes=600 * 10**9), 2500, {"size_bytes": 878 * GIB}),
        (replace(GP3, iops=16_000), 5000, {"iops": 5264}),
        (replace(GP3, iops=16_000), 3000, {"iops": 3158}),
    ],
)
def test_the_cheapest_setting_may_lie_between_those_that_are_looked_at(
    today: VolumeSpec, ios: int, cheapest: dict[str, int]
) -> None:
    """Of 256,000 IOPS none were said to be cheaper where 137,000 suffice, 3,800 USD a month less; no sc1
    of more than 12,800 GiB was looked at; and today's 600 GB made a gp2 of 877.79 GiB, which nobody sells.
    """
    log = [Interval(seconds=60, reads=60 * ios, read_bytes=60 * ios * 4096, writes=0, written_bytes=0)] * 60
    today = replace(today, credits=0.0)
    options, _ = usage_options(log, today, region="us-east-1", types=[today.type])
    assert options[-1].spec == replace(options[-1].spec, type=today.type, **cheapest)
    assert options[-1].keeps


@pytest.mark.parametrize(
    ("type_", "iops", "ios", "region", "types"),
    [
        ("sc1", None, 1, "us-east-1", ["gp3"]),  # 50 USD a month more were asked for
        ("io1", 20_000, 18_000, "us-east-1", ["gp2"]),  # none was said to stay below its limits
        ("io1", 20_000, 18_000, "us-east-2", ["gp2"]),  # where its price is not known
    ],
)
def test_a_volume_of_today_that_suffices_is_among_those_that_do(
    type_: str, iops: int | None, ios: int, region: str, types: list[str]
) -> None:
    today = VolumeSpec(name="a", type=type_, size_bytes=500 * GIB, iops=iops)
    log = [Interval(seconds=60, reads=60 * ios, read_bytes=60 * ios * KIB, writes=0, written_bytes=0)]
    options, _ = usage_options(log, today, region=region, types=types)
    verdict = build_usage("log", log, options, region=region).verdict
    assert verdict.startswith(f"{type_} 500 GiB")
    assert verdict.endswith("is the cheapest that stays below its limits: that of today.")


@pytest.mark.parametrize(
    ("today", "log", "usd"),
    [
        (VolumeSpec(name="a", type="standard"), QUIET, 5 + 0.05 * 2628),
        (VolumeSpec(name="a", type="efs", mode="elastic"), QUIET, 30 + 0.03 * 40_100.1),
        (VolumeSpec(name="a", type="standard"), replace(QUIET, reads=1e300), 5 + 0.05 * 2**62 / 1e6),
    ],
)
def test_what_is_paid_by_use_is_that_of_the_log(today: VolumeSpec, log: Interval, usd: float) -> None:
    """A magnetic volume of 1,000 I/Os a second was cheaper than the gp3 that costs a quarter of it."""
    first = usage_options([log] * 2, today, region="us-east-1", types=["gp3"])[0][0]
    assert first.usd == pytest.approx(usd, rel=1e-4)


def test_settings_without_a_price_in_a_region_are_left_out_and_said(
    iostat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of us-east-2 two types' prices are not known: all were refused, naming an option that there is not."""
    command = ["usage", str(iostat), "--size", "500GiB", "--region", "us-east-2"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "Settings of io2, st1 were left out, as prices of theirs in us-east-2" in out
    assert "Prices in us-east-2 that were not verified against AWS's price list: storage" in out
    assert main([*command, "--type", "io2", "--iops", "8000"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"io2 500 GiB, 8,000 IOPS \(today\) +- +- +never", out)
    assert (
        "gp3 500 GiB, 3,000 IOPS, 125 MiB/s is the cheapest that stays below its limits: 40.00 USD a month."
        in out
    )
    assert main([*command, "--type", "sc1", "--types", "gp3"]) == 0
    assert "Settings of sc1 were left out, as prices of theirs in us-east-2" in capsys.readouterr().out
    assert main([*command, "--types", "io2"]) == 2
    assert capsys.readouterr().err.endswith(
        "name a file with it in ESRALLY_EBS_PRICES, see docs/studies.md\n"
    )


def test_types_that_are_not_sold_in_a_size_are_named_with_it(
    iostat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was not said that it is the size: "no setting of these types is sold; name others"."""
    assert main(["usage", str(iostat), "--size", "20TiB", "--types", "st1,sc1"]) == 2
    said = "--types st1,sc1: none is sold for 20480 GiB; name others\n"
    assert capsys.readouterr().err.endswith(said)


def test_what_a_month_of_reports_lacks_is_said_to_count_as_idle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten days without reports filled up the credits without a word, and a month was 2678400 s."""
    line = "h;600;2026-11-{0:02} {1:02}:10:0{2} UTC;nvme1n1;3000.00;30000.00;0.00;16.00\n"
    days = [line.format(day, hour, 0) for day in (1, 12) for hour in range(3)]
    (log := tmp_path / "sadf.txt").write_text(
        "# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;areq-sz\n" + "".join(days)
    )
    assert main(["usage", str(log), "--size", "500GiB"]) == 0
    out = capsys.readouterr().out
    assert "11 intervals, 266.2 h, prices of us-east-1" in out
    assert "60 min" in out  # at the limit
    assert "The log has nothing of 265.2 h (5 gaps), which count as idle" in out
    log.write_text(
        "# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;areq-sz\n"
        + line.format(1, 0, 0)
        + line.format(1, 0, 1).replace(":10:01", ":20:01")  # the timer of sysstat is a second late
    )
    assert main(["usage", str(log), "--size", "500GiB"]) == 0
    assert "which count as idle" not in capsys.readouterr().out


def test_the_command_says_what_it_cannot(iostat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["usage", str(iostat), "--size", "500GiB", "--iops", "16000", "--throughput", "1000MiB/s"]) == 0
    )
    out = capsys.readouterr().out
    assert "gp3 500 GiB, 3,000 IOPS, 160 MiB/s" in out or "less than today" in out
    assert "nothing is said of the latency" in out.lower()
