"""Several volumes of each type: a session as one of types, so that verdicts hold for any volume of them.

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
    """The session with a type as one arm, unless it has one volume of each, or one of ``asked`` is a volume.

    The k-th part of a type's rounds is what was measured on its k-th volume. The plan has ``starts`` for
    these parts.
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
    """The marked blocks of ``by_type(session, *asked)``.

    Which block a pause or a fault hit only the volumes tell: a node goes on while another's is measured.
    """
    if by_type(session, *asked) is session:
        return marked_blocks(session)
    places, rounds = _places(session), session.plan.design.most_rounds

    def compared_as(block: Block) -> Block:
        volume, task, round_ = block
        of, place = places[volume]
        return of, task, round_ + place * rounds

    return marked_blocks(session, compared_as=compared_as)


_Places = Mapping[str, tuple[str, int]]  # name of a volume to its type and its place among that type's


def _places(session: Session) -> _Places:
    types = session.plan.types
    return {name: (of, place) for of, names in types.items() for place, name in enumerate(names)}


def _first_of_each(volumes: Iterable[Volume], places: _Places) -> Iterator[Volume]:
    """The first volume of each type, under the name of the type."""
    known = set[str]()
    for volume in volumes:
        of, _ = places[volume.spec.name]
        if of not in known:
            known.add(of)
            yield replace(volume, spec=replace(volume.spec, name=of))


def _passes(baseline: pa.Table) -> int:
    return 1 + (pc.max(baseline["round"]).as_py() or 0)


def _renamed(table: pa.Table, places: _Places, rounds: int, *, first: int) -> pa.Table:
    """The table with types for arms, and rounds from ``first`` on after those of the volume before."""
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
    """What belongs to a block goes with it; the rest stays with its volume (see ``marked_by_type``)."""
    round_ = event.fields.get("round")
    if event.arm is None or event.arm not in places or not isinstance(round_, int):
        return event
    of, place = places[event.arm]
    first, count = (0, passes) if event.kind in ("baseline", FIO) else (1, rounds)
    moved = round_ + place * count if round_ >= first else round_
    return replace(event, arm=of, fields={**event.fields, "round": moved})
