"""What is said with an advice of its recording, its prices and its instance."""

from dataclasses import replace

import numpy as np
import pytest
from recorded_requests import GP3, IOS, REQUESTS, of_computing, recorded
from sample_rows import row, table
from small_plan import small_plan

from esrally_ebs.advice.advice import advise
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.recording import recording_of
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Bound, Event, State, VolumeSpec

LOOSE = Bound(percentile=90, seconds=1.0)


@pytest.mark.parametrize(("at_first", "said"), [(1.15, True), (1.02, False), (0.9, False)])
def test_a_node_that_was_still_warming_up_is_a_warning(at_first: float, said: bool) -> None:
    """Of a fresh node: those recorded took 9 % longer than the same ones in races that went on for longer."""
    count = 96
    of = of_computing(0.03 * np.where(np.arange(count) < count // 2, at_first, 1.0), rounds=4)
    made = Predictor(of, thread_of(of))
    advice = advise(made, GP3, Bound(percentile=99, seconds=1.0), region="us-east-1", types=["gp3"])
    warnings = build_advice(recorded(), advice, made).warnings
    of_warming_up = [text for text in warnings if "13% less in the second half" in text]
    assert len(of_warming_up) == said
    assert all("Raise race.warmup_iterations" in text for text in of_warming_up)


def test_requests_of_which_the_volume_kept_no_ios_are_said_to_be_left_out() -> None:
    """A quarter of them, in a long race even whole tasks, were missing without a word."""
    made, first = recorded(), REQUESTS // 4
    trace = made.telemetry.slice(first * IOS - 1)
    note = Event(at_s=0.0, kind="trace", arm="a", fields={"ios": trace.num_rows, "lost": first * IOS - 1})
    of = recording_of(replace(made, events=(note,)), trace, "a")
    predictor = Predictor(of, thread_of(of))
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    warnings = build_advice(made, advice, predictor).warnings
    assert warnings[0].startswith("12 requests came before the oldest I/O that the volume had room for")
    assert "predicted are the 36 after them alone" in warnings[0]


def test_types_without_a_price_in_a_region_are_left_out_and_said(predictor: Predictor) -> None:
    advice = advise(predictor, GP3, LOOSE, region="us-east-2", types=["gp3", "io2", "gp2", "st1"])
    assert advice.best is not None
    assert advice.unpriced == ("io2", "st1")
    assert {option.spec.type for option in advice.options} == {"gp2", "gp3"}
    warnings = build_advice(recorded(), advice, predictor).warnings
    assert warnings[0].startswith("Settings of io2, st1 were left out")
    assert warnings[1] == (
        "Prices in us-east-2 that were not verified against AWS's price list: storage, throughput, IOPS."
    )
    with pytest.raises(PlanError, match=r"price of gp2 gb in mars: not known"):
        advise(predictor, GP3, LOOSE, region="mars")


def test_reads_that_a_plan_made_slower_are_as_slow_on_every_setting(predictor: Predictor) -> None:
    """The cheapest that kept a bound was "that of today", which by the next line did not keep it."""
    slow = replace(GP3, read_latency=2.0)
    advice = advise(predictor, slow, LOOSE, region="us-east-1", types=["gp3"])
    assert {option.spec.read_latency for option in advice.options} == {2.0}
    said = "Reads of the recorded volume take 2 times as long as in its type's model, which is taken to be so"
    assert said in " ".join(build_advice(recorded(), advice, predictor).warnings)


def test_a_volume_of_a_day_in_the_past_is_said_to_be_compared_with_those_of_that_day(
    predictor: Predictor,
) -> None:
    """No gp3 was looked at beside a gp2 of 2019, and no line said so."""
    gp2 = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None, date="2019-06")
    advice = advise(predictor, gp2, LOOSE, region="us-east-1")
    assert {option.spec.type for option in advice.options} == {"gp2", "st1"}
    said = "Settings are those that were sold as of 2019-06, the recorded arm's date"
    assert said in " ".join(build_advice(recorded(), advice, predictor).warnings)
    with pytest.raises(PlanError, match=r"^--types gp3: none is sold for 100 GiB as of 2019-06; name others"):
        advise(predictor, gp2, LOOSE, region="us-east-1", types=["gp3"])


@pytest.mark.parametrize(
    ("spec", "cost", "said"),
    [
        (VolumeSpec(name="a", type="efs", mode="elastic"), {}, True),
        (VolumeSpec(name="a", type="efs", mode="elastic"), {"read": "1TiB"}, False),
        (GP3, {}, False),
    ],
)
def test_what_is_paid_by_use_of_todays_volume_besides_is_said(
    predictor: Predictor, spec: VolumeSpec, cost: dict[str, str], said: bool
) -> None:
    """An EFS that is read from all day was there for what it stores, and kept the bound for that."""
    advice = advise(predictor, spec, LOOSE, region="us-east-1", types=["gp3"])
    made = replace(recorded(), plan=small_plan(race={}, cost=cost))
    warnings = build_advice(made, advice, predictor).warnings
    assert any("EFS Elastic asks for each GiB" in warning for warning in warnings) is said


def test_what_must_be_known_of_a_recording_is_said_with_its_advice(predictor: Predictor) -> None:
    """One that was broken off, or of a log some of which is missing, gave advice as any other."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    made = replace(recorded(), state=State.CANCELLED, reason="by the user", warnings=("--log: cut",))
    warnings = build_advice(made, advice, predictor).warnings
    assert warnings[0].startswith("Session 0123 is cancelled (by the user): predicted are")
    assert warnings[1] == "--log: cut"
    warnings = build_advice(recorded(), advice, predictor).warnings
    assert not [one for one in warnings if "0123" in one]
    assert [one for one in warnings if "those of io1, io2, st1 and sc1 are assumed from what AWS says" in one]


@pytest.mark.parametrize(
    ("instance", "said"), [("m5.large", "3,600 IOPS and 77 MiB/s"), ("m5.8xlarge", ""), (None, "")]
)
def test_what_an_instance_lets_through_for_good_is_said(
    predictor: Predictor, instance: str | None, said: str
) -> None:
    """Volumes are predicted without their burst, the instance with it; nobody said so."""
    today = replace(GP3, instance=instance)
    advice = advise(predictor, today, LOOSE, region="us-east-1", types=["gp3"])
    warnings = build_advice(recorded(), advice, predictor).warnings
    lines = [one for one in warnings if "Under a load that lasts it lets" in one]
    assert [said in one for one in lines] == ([True] if said else [])


def test_requests_that_failed_are_said_with_the_advice(predictor: Predictor) -> None:
    """The report of the same session said so; the advice was of those that were left, without a word."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    rows = [{**one, "success": number > 2} for number, one in enumerate(recorded().samples.to_pylist())]
    bulk = row(task="index", round=0, success=False)
    made = replace(recorded(), samples=table(*rows, row(arm="b", success=False), bulk))
    warnings = build_advice(made, advice, predictor).warnings
    assert warnings[0] == "3 of 48 requests failed while recorded: those are left out."


def test_how_long_the_burst_of_an_instance_lasts_is_said(predictor: Predictor) -> None:
    advice = advise(predictor, replace(GP3, instance="t3.nano"), LOOSE, region="us-east-1", types=["gp3"])
    used = {**predictor.check.used, "instance-iops-credits": 3.0, "instance-throughput-credits": 0.1}
    today = replace(advice.today, prediction=replace(advice.today.prediction, used=used))
    advice = replace(advice, today=today)
    warnings = build_advice(recorded(), advice, predictor).warnings
    (line,) = (one for one in warnings if "t3.nano" in one)
    hours = (11_800 - 250) * 1800 / (2 * 250) / 3600  # 500 more a second are taken than come back
    assert f"with requests as on today's volume that lasts {hours:,.2f} h. Under a load" in line
