"""Warnings to read before following an Advice: about its recording, prices and models."""

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import pyarrow.compute as pc

from esrally_ebs.advice.advice import Advice, Option, UsageOption
from esrally_ebs.advice.cells import hours_text, setting_text
from esrally_ebs.advice.prediction import Prediction, Predictor
from esrally_ebs.advice.recording import Recording, requests_of
from esrally_ebs.catalog.cost import PRICES_VARIABLE
from esrally_ebs.catalog.limits import CREDITS
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.model import State
from esrally_ebs.report.bottleneck import NAMES
from esrally_ebs.report.costs import OF_INSTANCE, by_use, own_prices
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB

MODELS = "of volume models: nobody knows whether AWS does the same until it is raced there"
_QUICKENING = 0.05  # if the second half's requests take this share less, the node is still warming up
_UNKNOWN = (
    "The models know limits, credits and usual latencies; they do not know rare slow I/Os, a busy neighbour,"
    " or the instance's own limits unless the plan names the instance.",
    "Latencies of gp2 and gp3 are fitted to published runs; those of io1, io2, st1 and sc1 are assumed from"
    " what AWS says, also where a race emulates them.",
    "gp2, st1 and sc1 are predicted without burst credits, as they serve under a load that lasts; today's"
    " volume with those that it had.",
)
_SEEN = "What requests wait for was seen: the kernel's scheduler said which thread slept for which I/O."
_INFERRED = "What requests wait for is inferred from when, and where, I/Os came and were done."
_ONE_BY_ONE = (
    "A request that was recorded with caches dropped begins on full buckets on each setting, too; what"
    " becomes of so many a second is predicted with --rate."
)
_AT_A_RATE = (
    "Each request reads what it read when it was recorded: where caches were dropped, all of it. While it"
    " computes it has a processor to itself. The self-check is of requests one after the other."
)


def caveats(session: Session, advice: Advice, predictor: Predictor) -> tuple[str, ...]:
    """The warnings of an advice."""
    recording = predictor.recording
    return (
        *_unfinished(session),
        *_failed(session, predictor.check.spec.name),
        *session.warnings,
        *_of_recording(session, recording, advice.recorded.read_latency),
        *price_warnings((*advice.options, advice.today), advice.unpriced, advice.region),
        *_own_prices(session),
        *by_use([advice.recorded], session),
        *_dated(advice.recorded.date),
        *_instance_burst(advice.today.prediction),
        *_queues(advice),
        _SEEN if recording.waits_seen else _INFERRED,
        *_UNKNOWN,
        _ONE_BY_ONE if advice.load is None else _AT_A_RATE,
    )


def _unfinished(session: Session) -> Iterator[str]:
    """A warning if the recording did not end properly."""
    reason = f" ({session.reason})" if session.reason else ""
    if session.state is not State.COMPLETE:
        yield (
            f"Session {session.id} is {session.state}{reason}: predicted are the requests that it has."
            " Record again for as many as were planned."
        )


def _failed(session: Session, arm: str) -> Iterator[str]:
    """A warning if requests of the arm failed."""
    measured = requests_of(session, arm)
    failed = measured.filter(pc.invert(measured["success"])).num_rows
    if failed:
        yield f"{failed:,} of {measured.num_rows:,} requests failed while recorded: those are left out."


def _of_recording(session: Session, recording: Recording, times: float) -> Iterator[str]:
    """Warnings about requests and I/Os that it lacks, a node that warmed up, and a foreign volume."""
    if recording.earlier:
        yield (
            f"{recording.earlier:,} requests came before the oldest I/O that the volume had room for:"
            f" predicted are the {recording.requests:,} after them alone. Record fewer rounds, or fewer"
            " tasks, for all of them."
        )
    if recording.halves:
        yield (
            f"Of {recording.halves:,} I/Os the trace has no issue or no completion: they are left out, so"
            " requests seem to compute meanwhile."
        )
    if recording.quickening >= _QUICKENING:
        again = "Raise race.warmup_iterations" if session.plan.race else "Record again later, or for longer"
        yield (
            f"Requests took {recording.quickening:.0%} less in the second half of the recording: its node was"
            " still warming up, and what requests compute is predicted as it was recorded, so too long."
            f" {again}."
        )
    slower_s = recording.slower_s
    if slower_s or times != 1:
        way = f"{abs(slower_s) * 1e3:.2f} ms {'longer' if slower_s > 0 else 'less'} than"
        off = f"{times:g} times as long as in" if times != 1 else way
        yield (
            f"Reads of the recorded volume take {off} its type's model, which is taken to be so on every"
            " setting."
        )


def _own_prices(session: Session) -> Iterator[str]:
    """A warning if prices are the user's."""
    if own := own_prices(session):
        yield f"Prices of {Path(own).name} go before ours."


def _dated(date: str | None) -> Iterator[str]:
    """A warning if the recorded volume has the limits of a day in the past."""
    if date:
        yield (
            f"Settings are those that were sold as of {date}, the recorded arm's date: what came later, and"
            " higher limits since, are not looked at."
        )


def _instance_burst(today: Prediction) -> Iterator[str]:
    """A warning if the instance allows less under a lasting load."""
    spec = today.spec
    rates = {limit.counts: limit.rate for limit in model_for(spec).instance_limits if limit.of_credits}
    texts = [f"{rates['operations']:,.0f} IOPS"] if "operations" in rates else []
    texts += [f"{rates['bytes'] / MIB:,.0f} MiB/s"] if "bytes" in rates else []
    if not texts:
        return
    last_s = min(seconds for name, seconds in today.credits_last_s.items() if name != CREDITS)
    lasts = "for good" if math.isinf(last_s) else hours_text(last_s)
    yield (
        f"{spec.instance} is predicted with all of its burst left, on each setting; with requests as on"
        f" today's volume that lasts {lasts}. Under a load that lasts it lets {' and '.join(texts)} through,"
        " to all its volumes together and whatever is bought."
    )


def _queues(advice: Advice) -> Iterator[str]:
    """A warning if queries may queue for a limit, which seconds of them hardly show."""
    option = advice.doubtful or advice.today
    if not option.queues or not option.may_keep:
        return
    limit, queued = max(option.prediction.queued.items(), key=itemgetter(1))
    yield (
        f"Queries use {option.prediction.used[limit]:.0%} of the {NAMES.get(limit, limit)} of"
        f" {setting_text(option.spec)}, and about {queued:.0%} of them find it used up, as they come by"
        " chance: such queues come once in minutes, and the seconds that are predicted hardly show them."
        " Take a setting of which less is used, or measure for minutes."
    )


def most_used(option: Option) -> tuple[float, str]:
    """The share of its rate that the most used limit gives, and its name; ignores credits."""
    used = option.prediction.used
    share, name = max(((used[name], name) for name in used if not name.endswith(CREDITS)), default=(0.0, ""))
    return share, NAMES.get(name, name)


def price_warnings(
    options: Sequence[Option | UsageOption], unpriced: Sequence[str], region: str
) -> Iterator[str]:
    """Warnings if settings of some types were left out, and if prices are remembered or assumed."""
    if unpriced:
        yield (
            f"Settings of {', '.join(unpriced)} were left out, as prices of theirs in {region} are not known;"
            f" name a file that has them in {PRICES_VARIABLE}, see docs/studies.md."
        )
    if any(one.spec.type == "instance-store" for one in options):
        yield OF_INSTANCE
    parts = dict.fromkeys(part for one in options if one.price for part in one.price.unverified)
    if parts:
        yield f"Prices in {region} that were not verified against AWS's price list: {', '.join(parts)}."
