"""The knee of each arm as a sentence, tables and a plot: how many queries it serves, and what limits it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow.compute as pc

from esrally_ebs.analysis.knee import Knee, KneeSearch, Purpose, StepResult, steps_of
from esrally_ebs.analysis.profile import Profile, Profiles, pooled
from esrally_ebs.model import State
from esrally_ebs.report.bottleneck import HeldBack, held_back
from esrally_ebs.report.cells import arm_names
from esrally_ebs.report.conditions import series_of
from esrally_ebs.report.model import Plot, Table, curve_through, plain_table
from esrally_ebs.store.session import Session
from esrally_ebs.units import digits_beside, format_rate, format_share

_NEAR_KNEE = 0.15  # of the rate's logarithm: steps this close to the knee show what limits it
_BUSY_SHARE = 0.8  # share of time that processors or clients are busy: then queues before them are long
_LASTS_S = 86_400.0  # no warning if full credits last for a day
_ENDED = {
    State.CANCELLED: "its session was cancelled; search again",
    State.FAILED: "its session failed; search again",
    State.RUNNING: "its session still runs",
}
_PURPOSES = {
    Purpose.ALONE: "one at a time",
    Purpose.PROBE: "to find the order",
    Purpose.MEASURE: "to measure",
}


class Knees:
    def __init__(self, session: Session, against: str | None = None) -> None:
        """Other arms are compared with ``against``; by default, with the plan's reference."""
        self._session = session
        self._against = against
        self._search = KneeSearch.of(session.plan.design)
        if session.state in _ENDED:
            self._search = replace(self._search, longer_by=_ENDED[session.state])
        self._steps = {
            arm: {round_: by_round[round_] for round_ in sorted(by_round)}
            for arm, by_round in steps_of(session).items()
        }
        self.of: Mapping[str, Knee] = {
            arm: self._search.knee(list(steps.values())) for arm, steps in self._steps.items()
        }

    @property
    def confidence(self) -> float:
        """Of the interval of an arm's knee."""
        return self._search.confidence

    def verdict(self) -> str:
        """One sentence: each arm's knee, and how others differ from one arm."""
        names = arm_names(self._session)
        parts = [f"{names[arm]} {_text(knee)}" for arm, knee in self.of.items()]
        differences = (
            f"{other} against {base}: {ratio - 1:+z,.1%} {self._ends(low - 1, high - 1)}, {verdict}"
            for other, base, ratio, low, high, verdict in self._compared()
        )
        text = "; ".join((*parts, *differences)) or "no arm was asked"
        return f"Highest rate with {self._search.bound}: {text}."

    def _ends(self, low: float, high: float) -> str:
        """An interval, with as many digits as tell its ends from what the verdict compares them with."""
        margin = self._session.plan.design.margin
        limits = 0.0, margin, 1 / (1 + margin) - 1
        digits = max(digits_beside(end, limit, 1) for end in (low, high) for limit in limits)
        return f"[{low:+z,.{digits}%}, {high:+z,.{digits}%}]"

    def _compared(self) -> Iterator[tuple[str, str, float, float, float, str]]:
        """Each other arm and the first, the ratio of their knees with its interval, and what it shows.

        Leaves out arms without a knee. The ratios share the error.
        """
        margin = self._session.plan.design.margin
        arms = self._session.plan.design.reference_first(self.of)
        arms = sorted(arms, key=lambda arm: arm != self._against)
        doubt = (1 - self._search.confidence) / max(1, len(arms) - 1)
        search = replace(self._search, confidence=1 - doubt)
        knees = {arm: search.knee(list(steps.values())) for arm, steps in self._steps.items()}
        for base, other in ((arms[0], other) for other in arms[1:]):
            if knees[base].why or knees[other].why:
                continue
            ratio, low, high = _ratio(knees[base], knees[other])
            is_equal = 1 / (1 + margin) <= low and high <= 1 + margin
            claim = "a difference" if low > 1 or high < 1 else "equivalent" if is_equal else ""
            if claim and (knees[base].may_be_lower or knees[other].may_be_lower):
                claim += ", but a knee is in doubt"
            yield other, base, ratio, low, high, claim or "no difference is shown"

    def warnings(self) -> Iterator[str]:
        """Doubts about the arms' knees."""
        for arm, knee in self.of.items():
            long = sum(step.purpose is Purpose.MEASURE for step in self._steps[arm].values())
            is_wide = not knee.why and knee.width > self._search.margin
            is_cut = is_wide and long < self._search.steps  # nothing else ends such a search
            if knee.doubt:
                yield f"{arm}: {knee.doubt}"
            if is_cut or (is_wide and not knee.doubt):
                margin = format_share(self._search.margin)
                steps = f"{long} of {self._search.steps} long steps"
                ended = f"only {steps} were made: {self._search.longer_by}"
                way = ended if is_cut else self._search.longer(knee)
                yield f"{arm}: the knee is known to {knee.width:.1%}, not to {margin}; {way}"
            for node in self._session.plan.node_names(arm):
                yield from self._credits(arm, node)

    def _credits(self, arm: str, node: str) -> Iterator[str]:
        """Warns if a knee lasts only as long as burst credits, by how fast steps near it spent them."""
        times, levels = series_of(self._session.telemetry, node, "emulator.credits")
        _, capacities = series_of(self._session.telemetry, node, "emulator.credits_capacity")
        spent = seconds = 0.0
        for begin_s, end_s in self._near(arm):
            (own,) = ((times >= begin_s) & (times <= end_s)).nonzero()
            if own.size > 1:
                spent += float(levels[own[0]] - levels[own[-1]])
                seconds += float(times[own[-1]] - times[own[0]])
        if spent > 0 and capacities.size:
            lasts_s = float(capacities[-1]) * seconds / spent
            if lasts_s < _LASTS_S:
                yield (
                    f"{node}: near its knee it spends {spent / seconds:,.0f} burst credits a second, so a "
                    f"full bucket lasts {lasts_s / 60:,.1f} min; race it with credits = 0 to see what follows"
                )

    def _near(self, arm: str) -> Iterator[tuple[float, float]]:
        """First and last request of each step near an arm's knee."""
        samples = self._session.samples
        for round_ in self._steps[arm]:
            if self._is_near(arm, round_):
                is_own = pc.and_(pc.equal(samples["arm"], arm), pc.equal(samples["round"], round_))
                times = pc.min_max(samples.filter(is_own)["started_s"])
                yield times["min"].as_py(), times["max"].as_py()

    def _at_knee(self, profiles: Profiles) -> Profiles:
        """Profiles of steps near the knees."""
        return {
            (task, arm): {
                round_: profile for round_, profile in by_round.items() if self._is_near(arm, round_)
            }
            for (task, arm), by_round in profiles.items()
            if any(self._is_near(arm, round_) for round_ in by_round)
        }

    def _is_near(self, arm: str, round_: int) -> bool:
        step, knee = self._steps.get(arm, {}).get(round_), self.of.get(arm)
        if step is None or knee is None or not step.rate:
            return False
        return not knee.why and abs(math.log(step.rate / knee.rate)) <= _NEAR_KNEE

    def held_back(self, profiles: Profiles) -> HeldBack:
        """The limits, processors or clients that hold each arm back at its knee."""
        near = self._at_knee(profiles)
        sentences = held_back(self._session, near) if near else {}
        for arm, name in arm_names(self._session).items():
            own = [p for (_, of), by_round in near.items() if of == arm for p in by_round.values()]
            what, text = "processors", self._processors(arm, pooled(own)) if own else ""
            if not (text or sentences.get(arm)):
                what, text = "clients", self._clients(arm)
            if text:
                sentences.setdefault(arm, {})[what] = f"{name} is held back by {text}."
        return sentences

    def _processors(self, arm: str, profile: Profile) -> str:
        """Busy processors: those of the node, or all of the machine's, which also runs the load generator."""
        environment = self._session.environment
        nodes, cores = environment.get("nodes", {}), environment.get("cores") or 0
        each = [nodes.get(name, {}).get("processors") for name in self._session.plan.node_names(arm)]
        own = min(sum(each), cores) if all(each) else cores
        used, busy = (
            (profile.grown.get(counter) or 0.0) / profile.seconds if profile.seconds else 0.0
            for counter in ("node.processor_s", "processor.busy_s")
        )
        if own and used >= _BUSY_SHARE * own:
            share = f"{min(1.0, used / own):.0%} of {own}"
            return f"the processors (its node has {share} busy while it answers); give the node more of them"
        if cores and busy >= _BUSY_SHARE * cores:
            share = f"{min(1.0, busy / cores):.0%} of {cores} are busy, {used / cores:.0%} with its node"
            return f"the machine's processors ({share}), which also make the load; take more of them"
        return ""

    def _clients(self, arm: str) -> str:
        """Busy clients of the load generator: nearly all are waiting for answers."""
        clients = (pc.max(self._session.samples["client"]).as_py() or 0) + 1
        near = [step for at, step in self._steps[arm].items() if step.requests and self._is_near(arm, at)]
        busy = sum(min(step.rate * step.mean_s, clients) for step in near) / len(near) if near else 0.0
        if busy < _BUSY_SHARE * clients:
            return ""
        return (
            f"the load generator ({busy:.0f} of its {clients} clients wait for answers, and no limit shows "
            "why); give the search more clients"
        )

    def tables(self) -> Iterator[Table]:
        """Tables of the knees and of every step."""
        rows = [
            (arm, None, None, None, knee.why)
            if knee.why
            else (arm, *map(_rounded, (knee.rate, knee.low, knee.high)), knee.doubt or None)
            for arm, knee in self.of.items()
        ]
        confidence = self._search.confidence
        yield plain_table(
            "knee",
            f"Highest rate with {self._search.bound}",
            ("arm", "queries/s", "low", "high", "note"),
            rows,
            f"Intervals at {format_share(confidence)} each, so that all looks of an arm together have "
            f"{format_share(self._session.plan.design.confidence)}.",
        )
        differences = [
            (other, base, _rounded(ratio), _rounded(low), _rounded(high), verdict)
            for other, base, ratio, low, high, verdict in self._compared()
        ]
        if differences:
            yield plain_table(
                "knee_ratios",
                "How knees differ",
                ("arm", "against", "ratio", "low", "high", "verdict"),
                differences,
                "These intervals, and those of all looks, hold together at "
                f"{format_share(self._session.plan.design.confidence)}.",
            )
        percentile = f"p{self._search.bound.percentile:g} ms"
        yield plain_table(
            "knee_steps",
            "Steps",
            ("step", "arm", "for", "queries/s", "requests", "late", percentile, "ran away"),
            [
                (str(round_), arm, _PURPOSES[step.purpose], _rounded(step.rate) or None, step.requests,
                 step.late, _milliseconds(step), "yes" if step.ran_away else None)
                for arm, steps in self._steps.items()
                for round_, step in steps.items()
            ],
            "Without the first fifth of each step, in which its queue fills. What runs away is ended early; "
            "where a stall ended a step, what it did not send is late.",
        )  # fmt: skip

    def plots(self) -> tuple[Plot, ...]:
        """Latency against rate, without steps that ran away."""
        curves = []
        for arm, steps in self._steps.items():
            points = sorted(
                (step.rate, step.quantile_s * 1e3)
                for step in steps.values()
                if step.rate and not step.ran_away and math.isfinite(step.quantile_s)
            )
            if points:
                curves.append(curve_through(arm, points, "marks"))
        if not curves:
            return ()
        bound, rates = self._search.bound, [x for curve in curves for x in curve.x]
        limit = curve_through("bound", [(min(rates), bound.seconds * 1e3), (max(rates), bound.seconds * 1e3)])
        return (
            Plot(
                title=f"Latency against rate, {self._search.bound}",
                across="queries per second",
                up=f"p{bound.percentile:g} of latency, ms",
                curves=(*curves, limit),
                log_x=True,
                log_y=True,
            ),
        )


def _text(knee: Knee) -> str:
    if knee.why:
        return f"has none ({knee.why})"
    return f"{format_rate(knee.rate)} queries/s [{format_rate(knee.low)}, {format_rate(knee.high)}]"


def _ratio(a: Knee, b: Knee) -> tuple[float, float, float]:
    """b's rate over a's, with an interval; treats the arms' errors as independent, at most."""
    ratio = b.rate / a.rate
    down = math.hypot(math.log(b.rate / b.low), math.log(a.high / a.rate))
    up = math.hypot(math.log(b.high / b.rate), math.log(a.rate / a.low))
    return ratio, ratio * math.exp(-down), ratio * math.exp(up)


def _rounded(rate: float) -> float:
    """Enough digits also of a rate far below one a second."""
    return float(f"{rate:.5g}")


def _milliseconds(step: StepResult) -> float | None:
    return round(step.quantile_s * 1e3, 2) if math.isfinite(step.quantile_s) else None


def knees_of(session: Session, against: str | None = None) -> Knees | None:
    """The session's knees; None if it searched for none."""
    return None if session.plan.design.knee is None else Knees(session, against)
