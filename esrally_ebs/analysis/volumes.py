"""Sessions with several volumes per type: each type as one arm, so that verdicts hold for any of its volumes.

A volume draws what it is for as long as it lives, as a JVM does: the volume is one observation, not its
rounds. So the k-th volumes of two types are a pair with one ratio, and these ratios get Student's t as those
of several starts of the nodes do. For types of equally many volumes that holds the truth however much
volumes of either type differ (Scheffe 1943). Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.marks import Block, Cause, marked_blocks
from esrally_ebs.analysis.profile import FIO
from esrally_ebs.model import Event, Volume
from esrally_ebs.store.session import Session


def by_type(session: Session, *asked: str | None) -> Session:
    """The session with types as arms, unless each type has one volume or ``asked`` names a volume.

    The k-th part of a type's rounds is from its k-th volume; the plan's ``starts`` has these parts.
    """
    types, design = session.plan.types, session.plan.design
    if not types or {arm.name for arm in session.plan.arm} & set(asked):
        return session
    rounds = design.most_rounds
    places, passes = _places(session), _passes(session.baseline)
    as_types = design.model_copy(update={"rounds": rounds * design.volumes, "starts": design.volumes})
    return replace(
        session,
        plan=session.plan.model_copy(update={"design": as_types}),
        arms=tuple(_first_of_each(session.arms, places)),
        samples=_renamed(session.samples, places, rounds, first=1),
        baseline=_renamed(session.baseline, places, passes, first=0),
        events=tuple(_event(event, places, rounds, passes) for event in session.events),
    )


def marked_by_type(session: Session, *asked: str | None) -> Mapping[Block, tuple[Cause, ...]]:
    """Marked blocks of ``by_type(session, *asked)``.

    Computed by volume: while one volume is measured, nodes of others run on, so only volumes tell which block
    a pause or fault hit.
    """
    if by_type(session, *asked) is session:
        return marked_blocks(session)
    places, rounds = _places(session), session.plan.design.most_rounds

    def compared_as(block: Block) -> Block:
        volume, task, round_ = block
        of, place = places[volume]
        return of, task, round_ + place * rounds

    return marked_blocks(session, compared_as=compared_as)


_Places = Mapping[str, tuple[str, int]]  # volume name to its type and its index within the type


def _places(session: Session) -> _Places:
    types = session.plan.types
    return {name: (of, place) for of, names in types.items() for place, name in enumerate(names)}


def _first_of_each(volumes: Iterable[Volume], places: _Places) -> Iterator[Volume]:
    """First volume of each type, renamed to the type."""
    known = set[str]()
    for volume in volumes:
        of, _ = places[volume.spec.name]
        if of not in known:
            known.add(of)
            yield replace(volume, spec=replace(volume.spec, name=of))


def _passes(baseline: pa.Table) -> int:
    return 1 + (pc.max(baseline["round"]).as_py() or 0)


def _renamed(table: pa.Table, places: _Places, rounds: int, *, first: int) -> pa.Table:
    """The table with types as arms; rounds from ``first`` on are numbered on from the volume before."""
    arm = table["arm"].cast(pa.string())
    at = pc.index_in(arm, value_set=pa.array(list(places), pa.string()))
    of, place = (pa.array(list(column)) for column in zip(*places.values(), strict=True))
    round_ = table["round"]
    moved = pc.add(round_, pc.multiply(pc.fill_null(place.take(at.combine_chunks()), 0), rounds))
    round_ = pc.if_else(pc.greater_equal(round_, first), moved, round_).cast(round_.type)
    arm = pc.coalesce(of.take(at.combine_chunks()), arm.combine_chunks())
    schema = table.schema
    if pa.types.is_dictionary(schema.field("arm").type):
        arm = arm.dictionary_encode()
    table = table.set_column(schema.get_field_index("arm"), "arm", arm)
    return table.set_column(schema.get_field_index("round"), "round", round_)


def _event(event: Event, places: _Places, rounds: int, passes: int) -> Event:
    """The event, renumbered if it belongs to a block; others keep their volume (see ``marked_by_type``)."""
    round_ = event.fields.get("round")
    if event.arm is None or event.arm not in places or not isinstance(round_, int):
        return event
    of, place = places[event.arm]
    first, count = (0, passes) if event.kind in ("baseline", FIO) else (1, rounds)
    moved = round_ + place * count if round_ >= first else round_
    return replace(event, arm=of, fields={**event.fields, "round": moved})
