"""The race that tests an Advice: its plan, and its results beside the predictions."""

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.advice.advice import Advice
from esrally_ebs.advice.cells import cell_table, error_cell, ms_text, setting_text, time_cell
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.recording import requests_of
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import REGION, VolumeSpec
from esrally_ebs.report.costs import own_prices
from esrally_ebs.report.model import Table, word
from esrally_ebs.store.session import Session
from esrally_ebs.volumes.virtual.replay import Column

# Fields of a volume that its race must also have.
_AS_TODAY = (
    *("date", "encrypted", "stripes", "chunk_bytes", "striped_by", "mode", "one_zone"),
    *("read_latency", "time_scale"),
)


def raced_settings(advice: Advice) -> list[VolumeSpec]:
    """Today's volume, and the advised or doubtful settings that differ from it.

    Each gets an instance of its own, if any, so that one does not use up another's burst.
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


def plan_text(advice: Advice, session: Session) -> str:
    """A plan (TOML) that races the recommendation, or the two doubtful settings, against today's volume."""
    plan, arms = session.plan, raced_settings(advice)
    tables: list[tuple[str, dict[str, object]]] = [("", {"name": "prove-advice", "accept": plan.accept})]
    tables += [("[[arm]]", _arm(spec)) for spec in arms]
    dataset = {name: getattr(plan.dataset, name) for name in ("documents", "seed", "indices")}
    own = {name: str(path) for name in ("data", "snapshot") if (path := getattr(plan.dataset, name))}
    tables += [("[dataset]", dataset | own), ("[node]", {"car": plan.node.car})]
    tables.append(("[node.params]", {_toml(name): value for name, value in plan.node.params.items()}))
    if plan.race is not None:
        names = ("track", "challenge", "iterations", "warmup_iterations")
        tables.append(("[race]", {name: getattr(plan.race, name) for name in names}))
    cost, prices = plan.cost, own_prices(session)
    # the user's price list may have regions that plans cannot name
    region = advice.region if re.match(REGION, advice.region) else cost.region
    tables.append(
        ("[cost]", {"region": region, "prices": prices, "read": cost.read, "written": cost.written})
    )
    tables.append(("[cache]", plan.cache.model_dump()))
    is_fixed = plan.design.knee is None and not plan.design.is_auto
    rounds = plan.design.most_rounds if is_fixed else pc.max(session.samples["round"]).as_py()
    design: dict[str, object] = {"rounds": rounds, "reference": arms[0].name}
    as_recorded = ("nodes", "order", "starts", "seed", "margin", "confidence")
    design |= {name: getattr(plan.design, name) for name in as_recorded}
    lines = [f"# Races what was advised for session {session.id} to keep {advice.bound}."]
    for head, keys in [*tables, ("[design]", design)]:
        lines += ["", head] if head else []
        lines += [f"{key} = {_toml(value)}" for key, value in keys.items() if value not in (None, "", ())]
    return "\n".join(lines) + "\n"


def _arm(spec: VolumeSpec) -> dict[str, object]:
    """Keys of ``[[arm]]``: those that define the volume, and others with unusual values."""
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


def kept_in_race(advice: Advice, proof: Session) -> VolumeSpec | None:
    """The cheapest raced setting that kept the bound in the race; None if none did."""
    options = filter(None, (advice.today, advice.doubtful, advice.best))
    usd = {setting_text(option.spec): option.usd for option in options}
    most_s = advice.bound.seconds
    kept = [spec for spec in raced_settings(advice) if _raced_s(advice, proof, spec) <= most_s]
    return min(kept, key=lambda spec: usd[setting_text(spec)], default=None)


def proof_verdict(advice: Advice, proof: Session) -> str:
    kept = kept_in_race(advice, proof)
    if kept is None:
        return f"In the race no setting kept {advice.bound}."
    took = ms_text(_raced_s(advice, proof, kept))
    return f"In the race {setting_text(kept)} kept {advice.bound}: {advice.bound.name} was {took}."


def proof_table(advice: Advice, proof: Session, predictor: Predictor) -> Table:
    """Predictions beside measurements, and the error of the predicted change from today's volume."""
    rows, first = [], np.zeros(0)
    raced, percentiles = raced_settings(advice), advice.today.prediction.percentiles
    for spec in raced:
        measured_s = _measured_s(advice, proof, spec.name)
        predicted = predictor.predict(spec, beside=[one for one in raced if one is not spec]).whole
        if not len(first):
            first = measured_s / [estimate.value for estimate in predicted]
        for percentile, estimate, seconds, base in zip(
            percentiles, predicted, measured_s, first, strict=True
        ):
            off = estimate.value / seconds - 1, estimate.value * base / seconds - 1
            is_bound, kept = percentile == advice.bound.percentile, seconds <= advice.bound.seconds
            answer = ("yes" if kept else "no") if is_bound else None
            cells = (
                word("percentile", f"p{percentile:g}"),
                *(time_cell(float(time_s)) for time_s in (estimate.value, seconds)),
                *(error_cell(float(one)) for one in off),
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


def _raced_s(advice: Advice, proof: Session, spec: VolumeSpec) -> float:
    at = advice.today.prediction.percentiles.index(advice.bound.percentile)
    return float(_measured_s(advice, proof, spec.name)[at])


def _measured_s(advice: Advice, proof: Session, arm: str) -> Column:
    """The predicted percentiles of an arm's requests, in their order.

    Of the tasks that were recorded: a recording may have been of some (``--include-tasks``), the race is of
    the whole challenge.
    """
    measured = requests_of(proof, arm)
    recorded = pa.array(list(advice.today.prediction.tasks), pa.string())
    are_recorded = pc.is_in(measured["task"].cast(pa.string()), recorded)
    times_s = measured.filter(pc.and_(measured["success"], are_recorded))["service_time_s"].to_numpy()
    if not len(times_s):
        raise MeasurementError(f"session {proof.id}: no requests of arm {arm!r} were measured; race again")
    values: Column = np.percentile(times_s, advice.today.prediction.percentiles)
    return values
