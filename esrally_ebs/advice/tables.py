"""An Advice as a report: the setting to take, cost and times of others, and the next step."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from esrally_ebs.advice.advice import Advice, Option
from esrally_ebs.advice.caveats import MODELS, caveats, most_used
from esrally_ebs.advice.cells import (
    cell_table,
    error_cell,
    hours_text,
    ms_text,
    setting_text,
    share_cell,
    time_cell,
    usd_text,
)
from esrally_ebs.advice.dependencies import AccessPattern, access_patterns, thread_of
from esrally_ebs.advice.prediction import Prediction, Predictor, least_requests
from esrally_ebs.advice.proof import proof_table, proof_verdict, raced_settings
from esrally_ebs.advice.recording import recording_of, requests_of
from esrally_ebs.advice.usage_tables import access_table
from esrally_ebs.catalog.limits import CREDITS
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import EbsError
from esrally_ebs.report.bottleneck import NAMES
from esrally_ebs.report.model import Cell, Curve, Figures, Plot, Report, Table, quantity, word
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB, format_bytes, number_of
from esrally_ebs.volumes.virtual.replay import Load

_WIDE = 10  # times that differ by a larger factor do not fit a linear axis
_PARTS_IN_MEMORY = (0.25, 0.5, 1.0)  # parts of the bytes that requests read


def build_advice(
    session: Session, advice: Advice, predictor: Predictor, *, proof: Session | None = None
) -> Report:
    """The whole report; ``proof``, a session of ``plan_text``'s race, adds its measurements."""
    raced, arm = advice.best or advice.doubtful, predictor.check.spec.name
    tables = [_front(advice), *_limits(advice), *_bursting(advice, predictor)]
    if raced is not None:
        tables.append(_tasks(advice, raced))
    if proof is not None:
        tables.insert(0, proof_table(advice, proof, predictor))
    tables += [*_memory(advice, predictor), _patterns({arm: predictor.patterns}), _check(predictor)]
    return Report(
        kind="advice",
        title=f"Advice for session {session.id}, arm {arm}, prices of {advice.region}",
        about=(),
        facts={"session": session.id, "state": str(session.state), "plan": session.plan.name},
        verdict=_verdict(advice, predictor.requests) if proof is None else proof_verdict(advice, proof),
        details=(
            *([] if proof is None else [f"Predicted: {_verdict(advice, predictor.requests)}"]),
            *_details(advice),
            *_busy(predictor),
        ),
        next_step=_next_step(advice, session, proof),
        labels=(f"A statement {MODELS}.", *_under(advice.load)),
        tables=tuple(tables),
        warnings=caveats(session, advice, predictor),
        figures=Figures(tradeoffs=(_plot(advice),)),
    )


def _unbounded(option: Option) -> bool:
    """Whether too few requests were recorded to say that it keeps the bound."""
    return math.isinf(option.interval_s[1])


def _verdict(advice: Advice, requests: int) -> str:
    best, today = advice.best, advice.today
    stays = f" Today's volume keeps it as it was recorded, {_cost(today)}." if today.keeps else ""
    if advice.doubtful is not None and _unbounded(advice.doubtful):
        return (
            f"{setting_text(advice.doubtful.spec)} is the cheapest that may keep {advice.bound}; more is not"
            f" known, as {requests} requests bound no {advice.bound.name}."
        )
    if advice.doubtful is not None:
        verb = "race" if advice.load is None else "measure"  # a race sends one query after another
        rival = f"; {verb} it and {setting_text(best.spec)}" if best else ""
        setting = setting_text(advice.doubtful.spec)
        is_below = advice.doubtful.interval_s[1] <= advice.bound.seconds
        of_queues = advice.doubtful.queues and is_below
        why = "queries may queue for a limit of it" if of_queues else "its interval straddles it"
        is_dearer = setting != setting_text(today.spec) and today.usd <= advice.doubtful.usd
        return f"{setting} may keep {advice.bound} or not: {why}{rival}.{stays if is_dearer else ''}"
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
            lines += _on_full_buckets(advice, option)
    if advice.best is not None:
        below, above = advice.neighbours()
        lines += [
            f"One step {way}: {setting_text(option.spec)} for"
            f" {usd_text(option.usd - advice.best.usd, sign=True)} a month gives"
            f" {1e3 * (option.value_s - advice.best.value_s):+z.1f} ms{_while_filled(advice, option)}."
            for way, option in (("down", below), ("up", above))
            if option is not None
        ]
    return lines


def _on_full_buckets(advice: Advice, option: Option) -> list[str]:
    """Says that a setting is as fast only as its buckets are full again whenever caches are dropped."""
    if not _needs_full_buckets(advice, option):
        return []
    share, limit = most_used(option)
    return [
        f"Do not buy it for that alone: one query after the other takes {share:.0%} of its {limit}, as"
        " buckets fill while caches are dropped; --rate predicts queries that keep coming."
    ]


def _while_filled(advice: Advice, option: Option) -> str:
    return ", on buckets that fill while caches are dropped" if _needs_full_buckets(advice, option) else ""


def _needs_full_buckets(advice: Advice, option: Option) -> bool:
    """Whether one query after the other takes more than a limit's rate; today's was seen to be as fast."""
    is_today = setting_text(option.spec) == setting_text(advice.recorded)
    return advice.load is None and most_used(option)[0] > 1 and not is_today


def _under(load: Load | None) -> list[str]:
    """Notes on the load, if predictions are not for the recorded pace."""
    if load is None:
        return []
    return [
        f"Predicted is latency, from when a query is due, at {load.per_s:g} queries a second that come by"
        f" chance, on {number_of(load.cores, 'core')}. Neither what a client itself takes is in it nor that"
        " two processors may be one core: on real nodes latency was longer."
    ]


def _busy(predictor: Predictor) -> list[str]:
    """Notes on how busy that makes the cores, with any volume."""
    if predictor.load is None:
        return []
    return [f"What queries compute at that rate is {predictor.computing:.0%} of the cores."]


def _sentence(option: Option) -> str:
    if option.prediction.falls_behind:
        return f"serves fewer queries than come, {_cost(option)}, held back by {_binds(option)}"
    low_s, high_s = option.interval_s
    upper = "or more" if _unbounded(option) else f"to {ms_text(high_s)}"
    return f"{option.bound.name} {ms_text(low_s)} {upper} {_cost(option)}, held back by {_binds(option)}"


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
                f"measure it: 'esrally-ebs knee PLAN --latency {name}={seconds * 1e3:.12g}ms' finds the rate"
                " at which each volume of a plan keeps it"
            )
        if session.kind == "trace":
            return "race it: 'esrally-ebs workload import' makes a track of the log for 'esrally-ebs race'"
        return "race it: 'esrally-ebs advise ... --race' does, '--plan FILE' writes its plan"
    return "" if advice.doubtful is None else "record today's volume for more rounds"


def _shows(option: Option) -> tuple[object, ...]:
    return setting_text(option.spec), option.usd, option.interval_s


def _shown(advice: Advice) -> list[Option]:
    """The front, today's and the advised or doubtful settings, each once, cheapest first."""
    wanted = (*advice.front, advice.today, advice.doubtful, advice.best)
    shown = {_shows(option): option for option in wanted if option is not None}
    return sorted(shown.values(), key=lambda option: (option.usd, option.value_s))


def _item(advice: Advice, option: Option) -> str:
    """Name of an option's row: today's volume may also be listed as a setting without credits."""
    return setting_text(option.spec) + (" (today)" if _shows(option) == _shows(advice.today) else "")


_FALLS_BEHIND = (
    "Some serve fewer queries than come: they keep no bound, and their times, of the first seconds, grow for"
    " as long as that lasts."
)
_ON_FULL_BUCKETS = (
    "On full buckets: one query after the other takes more than a limit gives, and its bucket fills while"
    " caches are dropped."
)


def _keeps(advice: Advice, option: Option) -> Cell:
    answer = word("keeps", option.answer)
    if option.answer == "no" or not _needs_full_buckets(advice, option):
        return answer
    needs = "full buckets"
    return Cell(text=f"{answer.text}, on {needs}", facts={**answer.facts, "needs": needs})


def _names(prediction: Prediction) -> list[str]:
    return [f"p{percentile:g}" for percentile in prediction.percentiles]


def _front(advice: Advice) -> Table:
    names = _names(advice.today.prediction)
    rows = [
        (
            _item(advice, option),
            (
                quantity("usd_month", option.usd if option.price else None, usd_text(option.usd)),
                *(
                    quantity(f"{name}_s", estimate.value, ms_text(estimate.value))
                    for name, estimate in zip(names, option.prediction.whole, strict=True)
                ),
                _upper_end(option),
                _keeps(advice, option),
                word("held_back_by", option.prediction.binds),
            ),
        )
        for option in _shown(advice)
    ]
    notes = [f"{len(advice.options)} settings are compared, {MODELS}."]
    if any(option.prediction.falls_behind for option in _shown(advice)):
        notes.append(_FALLS_BEHIND)
    if any("needs" in _keeps(advice, option).facts for option in _shown(advice)):
        notes.append(_ON_FULL_BUCKETS)
    bound = f"{advice.bound.name} up to"
    titles = ["setting", "a month", *names, bound, "keeps", "held back by"]
    title = f"Cost against {advice.bound.name}: no other setting is as cheap and as fast"
    return cell_table("front", title, titles, rows, *notes)


def _limits(advice: Advice) -> Iterator[Table]:
    shown = {_item(advice, option): option.prediction for option in _shown(advice)}
    names = list(dict.fromkeys(name for one in shown.values() for name in one.waits))
    waits = "Of requests' time, added up over I/Os: those that wait at once may come to more than 100%."
    used = (
        "Of what the rate gives in the time of all requests and the rests between them. Buckets that are full"
        " again when caches are dropped give more, so it may come to more than 100%."
        if advice.load is None
        else "Of what the rate gives while queries come. At 100% or more a limit serves fewer than come, and"
        " credits run out."
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
    """Settings that burst, with the credits that the advice ignores, and how long these last."""
    wanted = [option.spec for option in (*advice.options, advice.today)]
    bursting = {setting_text(spec): spec for spec in wanted if model_for(spec).bursts}
    rows = []
    for item, spec in bursting.items():
        made = predictor.predict(replace(spec, credits=1.0, time_scale=1.0))
        answer = Option(prediction=made, bound=advice.bound).answer
        cells = *(time_cell(one.value) for one in made.whole), word("keeps", answer), _lasting(made)
        rows.append((item, cells))
    names = _names(advice.today.prediction)
    titles = ["setting", *names, f"keeps {advice.bound}", "credits last"]
    pace = "at the recorded pace" if advice.load is None else "at that rate"
    note = f"Of requests {pace}; credits are full at first. Advice is of settings without credits."
    if rows:
        yield cell_table("bursting", "While burst credits last: settings that have some", titles, rows, note)


def _lasting(made: Prediction) -> Cell:
    last_s = made.credits_last_s[CREDITS]
    if math.isinf(last_s):
        return Cell(text="for good", facts={"last_s": None})
    most = "under " if made.waits[CREDITS] else ""
    return quantity("last_s", last_s, f"{most}{hours_text(last_s)}")


def _upper_end(option: Option) -> Cell:
    high_s = option.interval_s[1]
    return quantity("high_s", None if _unbounded(option) else high_s, ms_text(high_s))


def _tasks(advice: Advice, option: Option) -> Table:
    shown = {"today": advice.today.prediction.tasks, "then": option.prediction.tasks}
    rows = [
        (task, [time_cell(seconds) for tasks in shown.values() for seconds in tasks[task]])
        for task in option.prediction.tasks
    ]
    names = _names(option.prediction)
    titles = ["task", *(f"{when} {name}" for when in shown for name in names)]
    return cell_table("tasks", f"By task, on {setting_text(option.spec)}", titles, rows)


def _memory(advice: Advice, predictor: Predictor) -> list[Table]:
    """Today's volume with page caches for parts of what requests read; none if that was not recorded."""
    whole = predictor.footprint_bytes
    if whole is None:
        return []
    rows = []
    for size in dict.fromkeys(math.ceil(whole * part / MIB) * MIB for part in _PARTS_IN_MEMORY):
        made = predictor.predict(predictor.check.spec, cache_bytes=size)
        answer = Option(prediction=made, bound=advice.bound).answer
        cells = *(time_cell(one.value) for one in made.whole), word("keeps", answer)
        rows.append((format_bytes(size), cells))
    titles = ["page cache", *_names(predictor.check), f"keeps {advice.bound}"]
    note = (
        "Of the recorded requests, in their order, from an empty cache that is never dropped and has no other"
        " use: your own requests recur more or less often than these."
    )
    return [
        cell_table("memory", "Memory instead: today's volume, and a larger page cache", titles, rows, note)
    ]


def _patterns(patterns: Mapping[str, Sequence[AccessPattern]]) -> Table:
    """How requests use each recorded arm, by task."""
    rows = [
        (
            one.task if len(patterns) == 1 else f"{arm}: {one.task}",
            (
                quantity("ios", one.ios, f"{one.ios:.0f}"),
                quantity("bytes", one.bytes, f"{one.bytes / MIB:.1f}"),
                *(share_cell(share) for share in (one.writes, one.continuing, one.waited_for)),
                quantity("ios", one.in_flight, f"{one.in_flight:.1f}"),
                share_cell(one.computing),
            ),
        )
        for arm, of_arm in patterns.items()
        for one in of_arm
    ]
    titles = ["task", "I/Os", "MiB", "writes", "read on", "waited for", "in flight", "computing"]
    note = "Of a request. To read on is to begin where an earlier I/O of the request ends, as readahead does."
    return cell_table("access", "What requests do to the recorded volume", titles, rows, note)


def with_access(built: Report, session: Session, read: Callable[[], pa.Table]) -> Report:
    """A session's report, to which is added how requests use the arms whose I/Os ``read`` reads.

    Of a node that is none of ours, without requests, how its I/Os use the device.
    """
    patterns, problems, trace = dict[str, list[AccessPattern]](), list[EbsError](), TRACE.empty_table()
    try:
        trace = read()
    except EbsError as error:
        problems.append(error)
    for arm in trace["arm"].unique().to_pylist():
        if requests_of(session, arm).num_rows:
            try:
                recording = recording_of(session, trace, arm)
                patterns[arm] = access_patterns(recording, thread_of(recording))
            except EbsError as error:
                problems.append(error)
    tables = [_patterns(patterns)] if patterns else []
    if session.kind == "trace" and trace.num_rows and not patterns:
        tables = [access_table(trace.sort_by("at_s"))]
    warnings = [f"What requests do to the recorded volume is not shown: {problem}" for problem in problems]
    return replace(built, tables=(*built.tables, *tables), warnings=(*built.warnings, *warnings))


def _check(predictor: Predictor) -> Table:
    rows = [(f"p{percentile:g}", [error_cell(error)]) for percentile, error in predictor.errors.items()]
    rows += [
        (f"middle of {task}", [error_cell(error)]) for task, (error, _) in predictor.errors_by_task.items()
    ]
    return cell_table(
        "self-check",
        "Self-check: the recorded volume itself, predicted against measured",
        ["", "off by"],
        rows,
        *([] if predictor.slope is None else [f"When reads were slowed: {predictor.slope}."]),
    )


def _plot(advice: Advice) -> Plot:
    """Leaves out settings far dearer than those in the tables: they would take most of the plot."""
    front = advice.front
    types = dict.fromkeys(option.spec.type for option in front)
    most = 2 * max(option.usd for option in _shown(advice) if option.price)
    drawn = [option for option in advice.options if option.usd <= most]
    curves = [_marks(advice, type_, [o for o in drawn if o.spec.type == type_]) for type_ in types]
    if advice.today.price:
        curves.append(_marks(advice, "today", [advice.today]))
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


def _marks(advice: Advice, name: str, options: Sequence[Option]) -> Curve:
    hover = tuple(
        f"{setting_text(o.spec)}: {usd_text(o.usd)}, {ms_text(o.value_s)}{_while_filled(advice, o)}"
        for o in options
    )
    return Curve(
        name=name, x=_x(options), y=_y(options), style="marks", hover=hover, summary="; ".join(hover[:3])
    )


def _x(options: Sequence[Option]) -> tuple[float, ...]:
    return tuple(option.usd for option in options)


def _y(options: Sequence[Option]) -> tuple[float, ...]:
    return tuple(option.value_s * 1e3 for option in options)
