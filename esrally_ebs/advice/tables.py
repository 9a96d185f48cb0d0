"""An Advice as a report: the setting to take, what others cost and give, and the race that would prove it."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.advice.advice import Advice, Option, UsageOption
from esrally_ebs.advice.prediction import PERCENTILES, Prediction, Predictor, least_requests
from esrally_ebs.catalog.cost import PRICES_VARIABLE
from esrally_ebs.catalog.limits import CREDITS
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Phase, State, VolumeSpec
from esrally_ebs.report.bottleneck import NAMES
from esrally_ebs.report.model import (
    Cell,
    Curve,
    Figures,
    Plot,
    Report,
    Row,
    Table,
    quantity,
    titled,
    word,
)
from esrally_ebs.store.session import Session
from esrally_ebs.units import GIB, MIB, format_bytes
from esrally_ebs.volumes.virtual.replay import Column, Load

MODELS = "of volume models: nobody knows whether AWS does the same until it is raced there"
# Fields of a volume that a race of it has to have, too.
_AS_TODAY = (
    *("date", "encrypted", "stripes", "chunk_bytes", "striped_by", "mode", "one_zone"),
    *("read_latency", "time_scale"),
)
_QUICKENING = 0.05  # requests that take so much less in the second half are of a node that warms up
_WIDE = 10  # times that differ by more fit no linear axis
_PARTS_IN_MEMORY = (0.25, 0.5, 1.0)  # of what requests read
_UNKNOWN = (
    "The models know limits, credits and usual latencies; they do not know rare slow I/Os, a busy neighbour,"
    " or the instance's own limits unless the plan names the instance.",
    "Latencies of gp2 and gp3 are fitted to published runs; those of io1, io2, st1 and sc1 are assumed from"
    " what AWS says, also where a race emulates them.",
    "gp2, st1 and sc1 are predicted without burst credits, as they serve under a load that lasts; today's"
    " volume with those that it had.",
)
_ONE_BY_ONE = (
    "A request that was recorded with caches dropped begins on full buckets on each setting, too; what"
    " becomes of so many a second is predicted with --rate."
)
_AT_A_RATE = (
    "Each request reads what it read when it was recorded: where caches were dropped, all of it. While it"
    " computes it has a processor to itself. The self-check is of requests one after the other."
)


def setting_text(spec: VolumeSpec) -> str:
    """A setting in AWS's words: ``gp3 100 GiB, 3,000 IOPS, 125 MiB/s``; of each where volumes are striped."""
    volumes = f"{spec.stripes} x " if spec.stripes > 1 else ""
    parts = [f"{volumes}{spec.type} {spec.size_bytes / GIB:g} GiB"]
    if spec.iops:
        parts.append(f"{spec.iops:,} IOPS")
    if spec.throughput_bytes_per_s:
        parts.append(f"{spec.throughput_bytes_per_s / MIB:g} MiB/s")
    return ", ".join(parts)


def build_advice(
    session: Session, advice: Advice, predictor: Predictor, *, region: str, proof: Session | None = None
) -> Report:
    """The whole report; with ``proof``, the race of ``plan_text``, also what that measured."""
    raced = advice.best or advice.doubtful
    tables = [_front(advice), *_limits(advice), *_bursting(advice, predictor)]
    if raced is not None:
        tables.append(_tasks(advice, raced))
    if proof is not None:
        tables.insert(0, _proof(advice, proof, predictor))
    tables += [*_memory(advice, predictor), _patterns(predictor), _check(predictor)]
    return Report(
        kind="advice",
        title=f"Advice for session {session.id}, arm {predictor.check.spec.name}, prices of {region}",
        about=(),
        facts={"session": session.id, "state": str(session.state), "plan": session.plan.name},
        verdict=_verdict(advice, predictor.requests) if proof is None else _proven(advice, proof),
        details=(
            *([] if proof is None else [f"Predicted: {_verdict(advice, predictor.requests)}"]),
            *_details(advice),
            *_busy(predictor),
        ),
        next_step=_next_step(advice, session, proof),
        labels=(f"A statement {MODELS}.", *_under(advice.load)),
        tables=tuple(tables),
        warnings=(
            *_unfinished(session),
            *_failed(session, predictor.check.spec.name),
            *session.warnings,
            *_left_out(predictor.halves),
            *_warming_up(predictor.quickening),
            *price_warnings((*advice.options, advice.today), advice.unpriced, region),
            *_instance_burst(advice.today.prediction),
            *_UNKNOWN,
            _ONE_BY_ONE if advice.load is None else _AT_A_RATE,
        ),
        figures=Figures(tradeoffs=(_plot(advice),)),
    )


def plan_text(advice: Advice, session: Session) -> str:
    """A plan, as TOML, that races the recommendation, or the two in doubt, against today's volume."""
    plan, arms = session.plan, raced_settings(advice)
    tables: list[tuple[str, dict[str, object]]] = [("", {"name": "prove-advice"})]
    tables += [("[[arm]]", _arm(spec)) for spec in arms]
    dataset = {name: getattr(plan.dataset, name) for name in ("documents", "seed", "indices")}
    own = {name: str(path) for name in ("data", "snapshot") if (path := getattr(plan.dataset, name))}
    tables += [("[dataset]", dataset | own), ("[node]", {"car": plan.node.car})]
    tables.append(("[node.params]", {_toml(name): value for name, value in plan.node.params.items()}))
    if plan.race is not None:
        names = ("track", "challenge", "iterations", "warmup_iterations")
        tables.append(("[race]", {name: getattr(plan.race, name) for name in names}))
    cost = plan.cost
    prices = str(cost.prices) if cost.prices else None
    tables.append(
        ("[cost]", {"region": cost.region, "prices": prices, "read": cost.read, "written": cost.written})
    )
    tables.append(("[cache]", plan.cache.model_dump()))
    design: dict[str, object] = {
        "rounds": plan.design.most_rounds,
        "nodes": plan.design.nodes,
        "reference": arms[0].name,
    }
    lines = [f"# Races what was advised for session {session.id} to keep {advice.bound}."]
    for head, keys in [*tables, ("[design]", design)]:
        lines += ["", head] if head else []
        lines += [f"{key} = {_toml(value)}" for key, value in keys.items() if value not in (None, "")]
    return "\n".join(lines) + "\n"


def _arm(spec: VolumeSpec) -> dict[str, object]:
    """The keys of ``[[arm]]``: those that make it this volume, and what of others is unusual."""
    arm = {"name": spec.name, "type": spec.type, "size": spec.size_bytes, "credits": spec.credits}
    bought = {"iops": spec.iops, "throughput": spec.throughput_bytes_per_s, "instance": spec.instance}
    usual = VolumeSpec(name=spec.name, type=spec.type)
    unusual = {
        name.removesuffix("_bytes"): getattr(spec, name)
        for name in _AS_TODAY
        if getattr(spec, name) != getattr(usual, name)
    }
    return arm | bought | unusual


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def raced_settings(advice: Advice) -> list[VolumeSpec]:
    """Today's volume, and what is advised or in doubt as far as it is another setting.

    Each on an instance of its own, where it has one: what one takes of its burst is not the others'.
    """
    today = advice.recorded
    others = [option.spec for option in (advice.doubtful, advice.best) if option is not None]
    others = [spec for spec in others if setting_text(spec) != setting_text(today)]
    return [
        replace(today, name="today"),
        *(
            replace(spec, name=f"advised-{number}", instance=spec.instance and f"{spec.instance}#{number}")
            for number, spec in enumerate(others, start=1)
        ),
    ]


def _proof(advice: Advice, proof: Session, predictor: Predictor) -> Table:
    """Predicted and measured side by side, and by what the change against today's volume is off."""
    rows, first = [], np.zeros(0)
    raced = raced_settings(advice)
    for spec in raced:
        measured_s = _measured_s(proof, spec.name)
        predicted = predictor.predict(spec, beside=[one for one in raced if one is not spec]).whole
        if not len(first):
            first = measured_s / [estimate.value for estimate in predicted]
        for percentile, estimate, seconds, base in zip(
            PERCENTILES, predicted, measured_s, first, strict=True
        ):
            off = estimate.value / seconds - 1, estimate.value * base / seconds - 1
            is_bound, kept = percentile == advice.bound.percentile, seconds <= advice.bound.seconds
            answer = ("yes" if kept else "no") if is_bound else None
            cells = (
                word("percentile", f"p{percentile}"),
                *(_time(float(time_s)) for time_s in (estimate.value, seconds)),
                *(_error(float(one)) for one in off),
                word("kept", answer),
            )
            rows.append((f"{spec.name}: {setting_text(spec)}", cells))
    titles = ["arm", "", "predicted", "raced", "off", "change off", f"kept {advice.bound}"]
    note = (
        "Predicted at the pace of that race, in which volumes take turns, and credits come back meanwhile;"
        " tables below are of the recorded pace. Change off: of the ratio to the first arm. What a request"
        " computes differs from session to session, which that ratio is free of."
    )
    title = f"Predicted beforehand, and raced in session {proof.id}"
    return cell_table("proof", title, titles, rows, note)


def _measured_s(proof: Session, arm: str) -> Column:
    """The percentiles of an arm's requests, in the order of PERCENTILES."""
    measured = _of_arm(proof, arm)
    times_s = measured.filter(measured["success"])["service_time_s"].to_numpy()
    if not len(times_s):
        raise MeasurementError(f"session {proof.id}: no requests of arm {arm!r} were measured; race again")
    percentiles: Column = np.percentile(times_s, PERCENTILES)
    return percentiles


def _of_arm(session: Session, arm: str) -> pa.Table:
    """The samples of the arm's measured requests: those of rounds, not the bulks of an index before them."""
    samples = session.samples
    measured = pc.and_(pc.equal(samples["arm"], arm), pc.equal(samples["phase"], str(Phase.MEASURE)))
    return samples.filter(pc.and_(measured, pc.greater(samples["round"], 0)))


def kept_in_race(advice: Advice, proof: Session) -> VolumeSpec | None:
    """The cheapest of the raced settings that kept the bound in the race; None: none did."""
    options = filter(None, (advice.today, advice.doubtful, advice.best))
    usd = {setting_text(option.spec): option.usd for option in options}
    most_s = advice.bound.seconds
    kept = [spec for spec in raced_settings(advice) if _raced_s(advice, proof, spec) <= most_s]
    return min(kept, key=lambda spec: usd[setting_text(spec)], default=None)


def _raced_s(advice: Advice, proof: Session, spec: VolumeSpec) -> float:
    return float(_measured_s(proof, spec.name)[PERCENTILES.index(int(advice.bound.percentile))])


def _proven(advice: Advice, proof: Session) -> str:
    kept = kept_in_race(advice, proof)
    if kept is None:
        return f"In the race no setting kept {advice.bound}."
    took = _ms(_raced_s(advice, proof, kept))
    return f"In the race {setting_text(kept)} kept {advice.bound}: {advice.bound.name} was {took}."


def _unbounded(option: Option) -> bool:
    """Whether too few requests were recorded to say that it keeps the bound."""
    return math.isinf(option.interval_s[1])


def _verdict(advice: Advice, requests: int) -> str:
    if advice.doubtful is not None and _unbounded(advice.doubtful):
        return (
            f"{setting_text(advice.doubtful.spec)} is the cheapest that may keep {advice.bound}; more is not"
            f" known, as {requests} requests bound no {advice.bound.name}."
        )
    if advice.doubtful is not None:
        verb = "race" if advice.load is None else "measure"  # a race asks one query after another
        rival = f"; {verb} it and {setting_text(advice.best.spec)}" if advice.best else ""
        return (
            f"{setting_text(advice.doubtful.spec)} may keep {advice.bound} or not: its interval straddles it"
            f"{rival}."
        )
    best, today = advice.best, advice.today
    stays = f" Today's volume keeps it as it was recorded, {_cost(today)}." if today.keeps else ""
    if best is None:
        return f"No setting that was looked at keeps {advice.bound}.{stays}"
    setting, price = setting_text(best.spec), f"{usd_text(best.usd)} a month"
    if setting == setting_text(today.spec):
        return f"{setting} is the cheapest that keeps {advice.bound}: that of today, {price}."
    named = f"{setting} is the cheapest that keeps {advice.bound}: {price}."
    return named + (stays if today.usd <= best.usd else "")


def _details(advice: Advice) -> list[str]:
    lines = [f"Today: {_sentence(advice.today)}."]
    if advice.best is None and advice.doubtful is None:
        fastest = advice.front[-1]
        lines.append(f"The fastest is {setting_text(fastest.spec)}: {_sentence(fastest)}.")
    for option in (advice.doubtful, advice.best):
        if option is not None:
            lines.append(f"{setting_text(option.spec)}: {_sentence(option)}.")
    if advice.best is not None:
        below, above = advice.neighbours()
        lines += [
            f"One step {way}: {setting_text(option.spec)} for"
            f" {usd_text(option.usd - advice.best.usd, sign=True)} a month gives"
            f" {1e3 * (option.value_s - advice.best.value_s):+z.1f} ms."
            for way, option in (("down", below), ("up", above))
            if option is not None
        ]
    return lines


def _under(load: Load | None) -> list[str]:
    """What is predicted, where that is not what was recorded."""
    if load is None:
        return []
    return [
        f"Predicted is latency, from when a query is due, at {load.per_s:g} queries a second that come by"
        f" chance, on {load.cores} cores."
    ]


def _busy(predictor: Predictor) -> list[str]:
    """How busy the cores are with that, whatever the volume."""
    if predictor.load is None:
        return []
    return [f"What queries compute at that rate is {predictor.computing:.0%} of the cores."]


def _sentence(option: Option) -> str:
    low_s, high_s = option.interval_s
    upper = "or more" if _unbounded(option) else f"to {_ms(high_s)}"
    return f"{option.bound.name} {_ms(low_s)} {upper} {_cost(option)}, held back by {_binds(option)}"


def _cost(option: Option) -> str:
    return f"for {usd_text(option.usd)} a month" if option.price else "at a price that is not known"


def _binds(option: Option) -> str:
    names = NAMES | {"latency": "the volume's latency", "computing": "nothing of the volume"}
    return names.get(option.prediction.binds, f"the volume's {option.prediction.binds}")


def _next_step(advice: Advice, session: Session, proof: Session | None) -> str:
    if proof is not None:
        return f"read the verdict and costs of that race: 'esrally-ebs report {proof.id}'"
    if advice.doubtful is not None and _unbounded(advice.doubtful):
        least = least_requests(advice.bound.percentile)
        return f"record {least} requests or more, of which one is beyond {advice.bound.name} in the mean"
    if len(raced_settings(advice)) > 1:
        if advice.load is not None:
            name, seconds = advice.bound.name, advice.bound.seconds
            return (
                f"measure it: 'esrally-ebs knee PLAN --latency {name}={seconds * 1e3:g}ms' finds the rate at"
                " which each volume of a plan keeps it"
            )
        if session.kind == "trace":
            return "race it: 'esrally-ebs workload import' makes a track of the log for 'esrally-ebs race'"
        return "race it: 'esrally-ebs advise ... --race' does, '--plan FILE' writes its plan"
    return "" if advice.doubtful is None else "record today's volume for more rounds"


def _shows(option: Option) -> tuple[object, ...]:
    return setting_text(option.spec), option.usd, option.interval_s


def _shown(advice: Advice) -> list[Option]:
    """The front, today's and what is advised or in doubt, each once, cheapest first."""
    wanted = (*advice.front, advice.today, advice.doubtful, advice.best)
    shown = {_shows(option): option for option in wanted if option is not None}
    return sorted(shown.values(), key=lambda option: (option.usd, option.value_s))


def _item(advice: Advice, option: Option) -> str:
    """What a row of an option is called: today's volume may be there as a setting without credits, too."""
    return setting_text(option.spec) + (" (today)" if _shows(option) == _shows(advice.today) else "")


def cell_table(
    key: str, title: str, titles: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell]]], *notes: str
) -> Table:
    """A table of cells, each row with its item."""
    made = tuple(Row(item=item, cells=tuple(cells)) for item, cells in rows)
    columns = titled(*titles[1:])
    return Table(key=key, title=title, item_title=titles[0], columns=columns, rows=made, notes=notes)


def _time(seconds: float) -> Cell:
    return quantity("s", seconds, _ms(seconds))


def share_cell(share: float | None) -> Cell:
    return quantity("share", share, f"{share or 0.0:.0%}")


def _error(share: float) -> Cell:
    return quantity("share", share, f"{share:+z.1%}")


def _front(advice: Advice) -> Table:
    rows = [
        (
            _item(advice, option),
            (
                quantity("usd_month", option.usd if option.price else None, usd_text(option.usd)),
                *(
                    quantity(f"p{percentile}_s", estimate.value, _ms(estimate.value))
                    for percentile, estimate in zip(PERCENTILES, option.prediction.whole, strict=True)
                ),
                _upper_end(option),
                word("keeps", option.answer),
                word("held_back_by", option.prediction.binds),
            ),
        )
        for option in _shown(advice)
    ]
    bound = f"{advice.bound.name} up to"
    titles = ["setting", "a month", "p50", "p90", "p99", bound, "keeps", "held back by"]
    title = f"Cost against {advice.bound.name}: no other setting is as cheap and as fast"
    return cell_table("front", title, titles, rows, f"{len(advice.options)} settings are compared, {MODELS}.")


def _limits(advice: Advice) -> Iterator[Table]:
    shown = {_item(advice, option): option.prediction for option in _shown(advice)}
    names = list(dict.fromkeys(name for one in shown.values() for name in one.waits))
    waits = "Of requests' time, added up over I/Os: those that wait at once may come to more than 100%."
    used = (
        "Of what the rate gives in the time of all requests and the rests between them. Buckets that are full"
        " again when caches are dropped give more, so it may come to more than 100%."
    )
    for key, title, note, shares in (
        ("limits", "What I/Os wait for each limit", waits, [one.waits for one in shown.values()]),
        ("used", "What I/Os use of each limit", used, [one.used for one in shown.values()]),
    ):
        rows = [
            (item, [share_cell(of.get(name)) for name in names])
            for item, of in zip(shown, shares, strict=True)
        ]
        yield cell_table(key, title, ["setting", *names], rows, note)


def _bursting(advice: Advice, predictor: Predictor) -> Iterator[Table]:
    """What settings that burst do with the credits that they are advised without, and how long these last."""
    wanted = [option.spec for option in (*advice.options, advice.today)]
    bursting = {setting_text(spec): spec for spec in wanted if model_for(spec).bursts}
    rows = []
    for item, spec in bursting.items():
        made = predictor.predict(replace(spec, credits=1.0, time_scale=1.0))
        answer = Option(prediction=made, bound=advice.bound).answer
        cells = *(_time(one.value) for one in made.whole), word("keeps", answer), _lasting(made)
        rows.append((item, cells))
    titles = ["setting", "p50", "p90", "p99", f"keeps {advice.bound}", "credits last"]
    pace = "at the recorded pace" if advice.load is None else "at that rate"
    note = f"Of requests {pace}; credits are full at first. Advice is of settings without credits."
    if rows:
        yield cell_table("bursting", "While burst credits last: settings that have some", titles, rows, note)


def _lasting(made: Prediction) -> Cell:
    last_s = made.credits_last_s[CREDITS]
    if math.isinf(last_s):
        return Cell(text="for good", facts={"last_s": None})
    most = "under " if made.waits[CREDITS] else ""
    return quantity("last_s", last_s, f"{most}{_hours(last_s)}")


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h"


def _upper_end(option: Option) -> Cell:
    high_s = option.interval_s[1]
    return quantity("high_s", None if _unbounded(option) else high_s, _ms(high_s))


def _tasks(advice: Advice, option: Option) -> Table:
    shown = {"today": advice.today.prediction.tasks, "then": option.prediction.tasks}
    rows = [
        (task, [_time(seconds) for tasks in shown.values() for seconds in tasks[task]])
        for task in option.prediction.tasks
    ]
    titles = ["task", *(f"{when} p{percentile}" for when in shown for percentile in PERCENTILES)]
    return cell_table("tasks", f"By task, on {setting_text(option.spec)}", titles, rows)


def _memory(advice: Advice, predictor: Predictor) -> list[Table]:
    """Today's volume with page caches of parts of what requests read; none where that was not recorded."""
    whole = predictor.footprint_bytes
    if whole is None:
        return []
    rows = []
    for size in dict.fromkeys(math.ceil(whole * part / MIB) * MIB for part in _PARTS_IN_MEMORY):
        made = predictor.predict(predictor.check.spec, cache_bytes=size)
        answer = Option(prediction=made, bound=advice.bound).answer
        cells = *(_time(one.value) for one in made.whole), word("keeps", answer)
        rows.append((format_bytes(size), cells))
    titles = ["page cache", *(f"p{percentile}" for percentile in PERCENTILES), f"keeps {advice.bound}"]
    note = (
        "Of the recorded requests, in their order, from an empty cache that is never dropped and has no other"
        " use: your own requests recur more or less often than these."
    )
    return [
        cell_table("memory", "Memory instead: today's volume, and a larger page cache", titles, rows, note)
    ]


def _patterns(predictor: Predictor) -> Table:
    rows = [
        (
            one.task,
            (
                quantity("ios", one.ios, f"{one.ios:.0f}"),
                quantity("bytes", one.bytes, f"{one.bytes / MIB:.1f}"),
                *(share_cell(share) for share in (one.writes, one.continuing, one.waited_for)),
                quantity("ios", one.in_flight, f"{one.in_flight:.1f}"),
                share_cell(one.computing),
            ),
        )
        for one in predictor.patterns
    ]
    titles = ["task", "I/Os", "MiB", "writes", "read on", "waited for", "in flight", "computing"]
    note = "Of a request. To read on is to begin where an earlier I/O of the request ends, as readahead does."
    return cell_table("access", "What requests do to the recorded volume", titles, rows, note)


def _check(predictor: Predictor) -> Table:
    rows = [(f"p{percentile}", [_error(error)]) for percentile, error in predictor.errors.items()]
    rows += [(f"middle of {task}", [_error(error)]) for task, (error, _) in predictor.errors_by_task.items()]
    return cell_table(
        "self-check",
        "Self-check: the recorded volume itself, predicted against measured",
        ["", "off by"],
        rows,
        *_slower(predictor.slower_s),
        _SEEN if predictor.waits_seen else _INFERRED,
        *([] if predictor.slope is None else [f"When reads were slowed: {predictor.slope}."]),
    )


_SEEN = "What requests wait for was seen: the kernel's scheduler said which thread slept for which I/O."
_INFERRED = "What requests wait for is inferred from when, and where, I/Os came and were done."


def _slower(seconds: float) -> list[str]:
    """A note where the recorded volume is none of ours."""
    if not seconds:
        return []
    way = "longer" if seconds > 0 else "less"
    return [
        f"Its reads take {abs(seconds) * 1e3:.2f} ms {way} than its type's model, which is taken to be so on"
        " every setting."
    ]


def _plot(advice: Advice) -> Plot:
    """Without settings that are far dearer than all that the tables name, as those would fill it."""
    front = advice.front
    types = dict.fromkeys(option.spec.type for option in front)
    most = 2 * max(option.usd for option in _shown(advice) if option.price)
    drawn = [option for option in advice.options if option.usd <= most]
    curves = [_marks(type_, [o for o in drawn if o.spec.type == type_]) for type_ in types]
    if advice.today.price:
        curves.append(_marks("today", [advice.today]))
    link = Curve(name="front", x=_x(front), y=_y(front), style="link")
    times_ms = [ms for curve in curves for ms in curve.y]
    return Plot(
        title=f"Cost against the {advice.bound.percentile:g}th percentile, predicted",
        across="US dollars a month",
        up="service time, ms" if advice.load is None else "latency, ms",
        curves=(link, *curves),
        from_zero=True,
        log_y=max(times_ms) > _WIDE * min(times_ms),
    )


def _marks(name: str, options: Sequence[Option]) -> Curve:
    hover = tuple(f"{setting_text(o.spec)}: {usd_text(o.usd)}, {_ms(o.value_s)}" for o in options)
    return Curve(
        name=name, x=_x(options), y=_y(options), style="marks", hover=hover, summary="; ".join(hover[:3])
    )


def _x(options: Sequence[Option]) -> tuple[float, ...]:
    return tuple(option.usd for option in options)


def _y(options: Sequence[Option]) -> tuple[float, ...]:
    return tuple(option.value_s * 1e3 for option in options)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def usd_text(usd: float, *, sign: bool = False) -> str:
    """``+1,234.00 USD``; without ``sign`` a plus is left out."""
    return f"{usd:{'+' if sign else ''},.2f} USD"


def _unfinished(session: Session) -> list[str]:
    """A warning where the recording did not end as it should."""
    if session.state is State.COMPLETE:
        return []
    reason = f" ({session.reason})" if session.reason else ""
    return [
        f"Session {session.id} is {session.state}{reason}: predicted are the requests that it has."
        " Record again for as many as were planned."
    ]


def _failed(session: Session, arm: str) -> list[str]:
    """A warning where requests of the arm failed."""
    measured = _of_arm(session, arm)
    failed = measured.filter(pc.invert(measured["success"])).num_rows
    if not failed:
        return []
    return [f"{failed:,} of {measured.num_rows:,} requests failed while recorded: those are left out."]


def _left_out(halves: int) -> list[str]:
    """A warning where I/Os are not whole."""
    if not halves:
        return []
    return [
        f"Of {halves:,} I/Os the trace has no issue or no completion: they are left out, so their requests"
        " seem to compute meanwhile."
    ]


def _warming_up(quickening: float) -> list[str]:
    """A warning where requests became faster while they were recorded."""
    if quickening < _QUICKENING:
        return []
    return [
        f"Requests took {quickening:.0%} less in the second half of the recording: its node was still warming"
        " up, and what requests compute is predicted as it was recorded, so too long. Record for more rounds."
    ]


def _instance_burst(today: Prediction) -> list[str]:
    """A warning where the instance lets less through under a load that lasts."""
    spec = today.spec
    rates = {limit.counts: limit.rate for limit in model_for(spec).instance_limits if limit.of_credits}
    texts = [f"{rates['operations']:,.0f} IOPS"] if "operations" in rates else []
    texts += [f"{rates['bytes'] / MIB:,.0f} MiB/s"] if "bytes" in rates else []
    if not texts:
        return []
    last_s = min(seconds for name, seconds in today.credits_last_s.items() if name != CREDITS)
    lasts = "for good" if math.isinf(last_s) else _hours(last_s)
    return [
        f"{spec.instance} is predicted with all of its burst left, on each setting; with requests as on"
        f" today's volume that lasts {lasts}. Under a load that lasts it lets {' and '.join(texts)} through,"
        " to all its volumes together and whatever is bought."
    ]


def price_warnings(
    options: Sequence[Option | UsageOption], unpriced: Sequence[str], region: str
) -> Iterator[str]:
    """Warnings where settings of some types were left out, and where prices are remembered or assumed."""
    if unpriced:
        yield (
            f"Settings of {', '.join(unpriced)} were left out, as prices of theirs in {region} are not known;"
            f" name a file that has them in {PRICES_VARIABLE}, see docs/studies.md."
        )
    parts = dict.fromkeys(part for one in options if one.price for part in one.price.unverified)
    if parts:
        yield f"Prices in {region} that were not verified against AWS's price list: {', '.join(parts)}."
