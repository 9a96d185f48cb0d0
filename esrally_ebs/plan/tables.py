"""The tables of a plan except its arms, one class each: their keys and allowed values."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from esrally_ebs.catalog.cost import own_list, read_list
from esrally_ebs.errors import PlanError
from esrally_ebs.model import ENGINE, MAX_DOCUMENTS, NAME, REGION, SSH, Bound, parse_bound
from esrally_ebs.units import GIB, MIB, Bytes, Rate, Seconds, format_bytes, number_of

# Larger counts are slips that nothing else would stop: a schedule of more rounds fills the memory.
MAX_ROUNDS = 1000
MAX_REQUESTS = 1_000_000  # of one task, arm and round
MIN_STARTS = 3  # unless 1: two leave one degree of freedom, so intervals of twelve standard errors
MIN_VOLUMES = MIN_STARTS  # of a type, for the same reason
MAX_NODES = 9  # of an arm, on one machine
MAX_VOLUMES = 9  # of an arm, likewise
MIN_STEP_S, MAX_STEP_S = 10, 600  # a step in a search for the knee
MIN_STEPS, MAX_STEPS = 6, 100
MAX_PROBES = 16  # short steps that find a knee's order of magnitude

MAX_SEED = 2**63 - 1  # as fio takes it
Directions = Annotated[
    Literal["read", "write", "readwrite", "randread", "randwrite", "randrw"],
    BeforeValidator(lambda value: "readwrite" if value == "rw" else value),  # fio accepts both words
]
BLOCKING = ("psync", "sync", "pvsync", "pvsync2")  # fio engines that return when the I/O is done


class Section(BaseModel):
    """A table of a plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        for is_wrong, text in self._conflicts():
            if is_wrong:
                raise ValueError(text)
        return self

    def _conflicts(self) -> Iterable[tuple[object, str]]:
        """Pairs of a condition, true where keys conflict, and the message for it."""
        return ()


def count_or(word: str, most: int) -> PlainValidator:
    """A whole number from 1 to ``most``, or ``word``; for a union, pydantic would report two errors."""

    def read(value: Any) -> int | str:  # noqa: ANN401
        if value == word:
            return word
        count = int(value) if isinstance(value, str) and value.isdecimal() else value
        if isinstance(count, bool) or not isinstance(count, int | float) or not 1 <= count <= most:
            raise ValueError(f"{value!r} is neither a whole number from 1 to {most:,} nor {word!r}")
        if count != int(count):
            raise ValueError(f"{value!r} is no whole number")
        return int(count)

    return PlainValidator(read)


def yes_or_perturb(value: Any) -> Any:  # noqa: ANN401
    if not isinstance(value, bool) and value != "perturb":
        raise ValueError(f"{value!r} is none of true, false and 'perturb'")
    return value


def one_value(value: Any) -> Any:  # noqa: ANN401
    """Any value that ``node.params`` allows; for a union, pydantic would report four errors."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is neither text nor a number nor true or false")
    return value


class HostPlan(Section):
    """``[[host]]``: another machine with volumes of arms, reached by SSH."""

    name: str = Field(pattern=NAME)
    ssh: str = Field(pattern=SSH)
    # on that host; None: the default of Docker's client
    docker: str | None = Field(default=None, pattern=ENGINE)
    address: str | None = None  # where nodes of its arm on other hosts reach its nodes

    @field_validator("address")
    @classmethod
    def _address_is_private(cls, text: str | None) -> str | None:
        """Require a private address: who reaches it can join the cluster, which asks for no password."""
        if text is None:
            return None
        with suppress(ValueError):
            address = ip_address(text)
            is_any = address.is_unspecified or address.is_multicast or address.is_loopback
            if not is_any and not address.is_global:
                return text
        raise ValueError(f"{text!r} is no IP address of a private network; write one, such as 10.0.0.2")

    @property
    def seed(self) -> str:
        """The address as written before a port: IPv6 in brackets."""
        return f"[{self.address}]" if ":" in (self.address or "") else str(self.address)


class NodePlan(Section):
    """``[node]``: Rally cars and their variables, as ``--car`` and ``--car-params``."""

    count: int = Field(default=1, ge=1, le=MAX_NODES)  # nodes per arm, each on a volume of its own
    car: tuple[str, ...] = ("defaults",)
    params: Mapping[str, Annotated[str | int | float | bool, PlainValidator(one_value)]] = Field(
        default_factory=dict
    )


def _names(value: Any) -> Any:  # noqa: ANN401
    """Split the comma-separated list that ``--set`` gives."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


class DatasetPlan(Section):
    """``[dataset]``: the corpus to index, or the user's own indices."""

    documents: Annotated[int | Literal["full"], count_or("full", MAX_DOCUMENTS)] = 1_000_000
    seed: int = 42
    data: Path | None = None  # data directory of a stopped node; takes precedence over documents
    snapshot: Path | None = None  # path of a repository, and a snapshot's name in it; likewise
    indices: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()  # of data or snapshot; none: all

    @property
    def is_own(self) -> bool:
        """Whether the user's own indices are used instead of documents."""
        return self.data is not None or self.snapshot is not None

    def _conflicts(self) -> Iterator[tuple[object, str]]:
        in_s3 = self.snapshot is not None and self.snapshot.parts[:1] == ("s3:",)
        is_whole = re.match("s3:/[^/]+/.", str(self.snapshot))
        yield in_s3 and not is_whole, "snapshot: names none in a bucket; give s3://BUCKET/BASE_PATH/SNAPSHOT"
        for key, path in (("data", self.data), ("snapshot", None if in_s3 else self.snapshot)):
            yield (
                path is not None and re.match(r"\w+:/", str(path)),
                f"{key}: {str(path)!r} is no path; restore what is elsewhere to a node of your own, stop "
                "that, and give its data directory (dataset.data)",
            )
            is_part = path is not None and not path.is_absolute()
            yield is_part, f"{key}: {str(path)!r} does not begin with '/'; give the whole path"
        are_both = self.data is not None and self.snapshot is not None
        yield are_both, "snapshot: indices are taken from data as well; leave one of them out"
        for name in self.indices:
            is_none = not name or not {"*", "?"}.isdisjoint(name)
            yield is_none, f"indices: {name!r} is no name of an index; name each index by itself"
        text = "indices: are taken from a data directory, and none is named; give data or snapshot"
        yield self.indices and not self.is_own, text


class RacePlan(Section):
    """``[race]``: the Rally race; absent for a session of fio alone."""

    track: str = "noaa-ebs"
    challenge: str | None = None
    iterations: int = Field(default=5, ge=1, le=MAX_REQUESTS)
    warmup_iterations: int = Field(default=40, ge=0, le=MAX_REQUESTS)


class CachePlan(Section):
    """``[cache]``: whether caches are dropped, and how often."""

    mode: Literal["cold", "warm", "steady"] = "cold"
    drop_every: int = Field(default=1, ge=0)  # requests per drop; 0 = once per block
    max_resident: float = Field(default=0.01, ge=0, le=1)


class ModifyPlan(Section):
    """``[modify]``: change an arm's volume in place; measure before, during and after."""

    arm: str = Field(pattern=NAME)
    type: str | None = None
    size: Bytes | None = Field(default=None, gt=0)
    iops: int | None = Field(default=None, gt=0)
    throughput: Rate | None = Field(default=None, gt=0)
    passes: int = Field(default=3, ge=1, le=MAX_ROUNDS)  # before the change, and again after it

    def _conflicts(self) -> Iterator[tuple[object, str]]:
        for what, value, unit, name in (
            ("size", self.size, GIB, "GiB"),
            ("throughput", self.throughput, MIB, "MiB/s"),
        ):
            whole = -(-(value or 0) // unit)
            text = f"{what}: AWS counts in whole {name}; write for example '{whole}{name}'"
            yield (value or 0) % unit, text


class DesignPlan(Section):
    """``[design]``: number and order of rounds, and what a verdict requires."""

    rounds: Annotated[int | Literal["auto"], count_or("auto", MAX_ROUNDS)] = 6
    max_rounds: int = Field(default=48, ge=6, le=MAX_ROUNDS)  # for "auto"
    budget: Seconds | None = Field(default=None, gt=0)  # for "auto": time for all rounds
    order: Literal["counterbalanced", "fixed"] = "counterbalanced"
    # "one": one node with all arms' indices, requests in pairs; "auto": "one" if the race allows it
    nodes: Literal["auto", "one", "per-arm"] = "auto"
    starts: int = Field(default=1, ge=1, le=MAX_ROUNDS)  # of the nodes; rounds are divided equally among them
    volumes: int = Field(default=1, ge=1, le=MAX_VOLUMES)  # of each arm, which then is a type of volumes
    seed: int = Field(default=1, ge=0)
    reference: str | None = Field(default=None, pattern=NAME)  # the arm that others are compared with
    margin: float = Field(default=0.05, gt=0, lt=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    knee: str | None = None  # "p99=100ms": rounds are steps of a search for the highest rate that keeps it
    step: Seconds = Field(default=30.0, ge=MIN_STEP_S, le=MAX_STEP_S)  # length of a step: one rate on one arm
    steps: int = Field(default=10, ge=MIN_STEPS, le=MAX_STEPS)  # most steps of that length on each arm

    @field_validator("knee")
    @classmethod
    def _knee_is_a_bound(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                parse_bound(text, "is")
            except PlanError as error:
                raise ValueError(str(error)) from error
        return text

    def _conflicts(self) -> Iterator[tuple[object, str]]:
        is_endless = self.knee is not None or self.is_auto
        what = "steps of a knee" if self.knee else 'rounds = "auto"'
        if self.starts > 1:
            text = f"starts: two nodes say too little of any other; set 1, or at least {MIN_STARTS}"
            yield self.starts < MIN_STARTS, text
            text = f"starts: nodes are started anew between parts of equal length, and {what} have none"
            yield is_endless, text
            most = self.most_rounds
            yield (
                most % self.starts,
                f"starts: {number_of(most, 'round')} cannot be split into {self.starts} equal parts; set "
                f"rounds = {most + -most % self.starts}",
            )
        if self.volumes > 1:
            text = f"volumes: two say too little of any other of their type; set 1, or at least {MIN_VOLUMES}"
            yield self.volumes < MIN_VOLUMES, text
            text = f"volumes: every one is measured in all rounds, and {what} have no number"
            yield is_endless, text
            yield (
                self.starts > 1,
                "volumes: a verdict is over volumes or over starts; leave out one of them (with nodes = "
                '"per-arm", each volume has a node of its own already)',
            )

    @property
    def rounds_of_starts(self) -> tuple[range, ...]:
        """The rounds of each start of the nodes; empty if there is only one start."""
        each = self.most_rounds // self.starts
        return tuple(
            range(first, first + each) for first in range(1, 1 + self.most_rounds, each) if self.starts > 1
        )

    def reference_first(self, arms: Iterable[str]) -> list[str]:
        """Names of arms, the reference first."""
        return sorted(arms, key=lambda arm: arm != self.reference)

    @property
    def is_auto(self) -> bool:
        """Whether rounds continue until every task is decided."""
        return self.rounds == "auto" and self.knee is None

    @property
    def bound(self) -> Bound | None:
        return None if self.knee is None else parse_bound(self.knee, "design.knee")

    @property
    def most_rounds(self) -> int:
        """The number of rounds; with "auto" or a search for the knee, the maximum."""
        if self.knee is not None:
            return 1 + MAX_PROBES + self.steps
        return self.max_rounds if isinstance(self.rounds, str) else self.rounds


def _from_anywhere(path: Path) -> Path:
    """The absolute path, so that reports from another directory find the file; ``~`` stays the reader's."""
    with suppress(OSError):  # this process's working directory may be gone
        return path if str(path).startswith("~") else path.absolute()
    return path


class CostPlan(Section):
    """``[cost]``: the source of prices, and usage that is billed."""

    region: str | None = Field(default=None, pattern=REGION)
    prices: Annotated[Path, AfterValidator(_from_anywhere)] | None = None  # the user's own price list
    read: Bytes = Field(default=0, ge=0)  # per month and arm; EFS Elastic bills reads
    written: Bytes = Field(default=0, ge=0)

    def text_of_prices(self) -> str:
        """Text of the user's price list; empty without one, and if reports will say why it cannot be read."""
        with suppress(PlanError):
            return read_list(str(own)) if (own := self.prices or own_list()) else ""
        return ""


class BaselineJob(Section):
    """``[[baseline]]``: one fio job, run on every arm."""

    name: str = Field(pattern=NAME)
    rw: Directions
    bs: Bytes = Field(gt=0, le=GIB, multiple_of=512)  # direct I/O requires whole sectors
    numjobs: int = Field(default=1, ge=1, le=256)
    engine: Literal["psync", "sync", "pvsync", "pvsync2", "libaio", "io_uring"] = "psync"
    iodepth: int = Field(default=1, ge=1, le=1024)
    size: Bytes = Field(default=128 * 1024**2, gt=0)
    runtime: Seconds | None = Field(default=None, ge=1e-6)  # fio reads less as 0: no runtime
    ramp_time: Seconds = Field(default=0.0, ge=0)  # I/O before the runtime, not counted
    rate_iops: int | None = Field(default=None, gt=0, lt=2**32)  # limit for each clone; fio has 32 bits
    rate: Rate | None = Field(default=None, gt=0)  # likewise, in bytes per second
    rwmixread: int = Field(default=50, ge=0, le=100)  # percentage of reads in a mix
    # seed that decides which I/Os of a mix are reads
    randseed: int | None = Field(default=None, ge=1, le=MAX_SEED)
    rest: Seconds = Field(default=0.0, ge=0)  # idle time before it
    stonewall: bool = True  # false: starts with the job before it; only in virtual time
    # passes at the end of the session, so many as a gate may ask for; true = 1
    repeat: int = Field(default=0, ge=0, le=499)

    @field_validator("iodepth")
    @classmethod
    def _is_1_with_a_blocking_engine(cls, iodepth: int, info: ValidationInfo) -> int:
        """With blocking engines fio, too, uses 1: they return when the I/O is done.

        With psync, the default engine, the depth stays for a copy of the job with another engine.
        """
        return 1 if info.data.get("engine") in BLOCKING[1:] else iodepth

    def _conflicts(self) -> Iterator[tuple[object, str]]:
        # Without a runtime, fio would count what the ramp leaves of the file, which may be nothing.
        is_endless = self.ramp_time and self.runtime is None
        yield (
            is_endless,
            "ramp_time: only a job with a runtime goes on after it; give a runtime, or remove it",
        )
        yield (
            self.bs > self.size,
            f"bs: blocks of {format_bytes(self.bs)} do not fit into {format_bytes(self.size)}; raise size or "
            "lower bs",
        )
        are_both = self.rate is not None and self.rate_iops is not None
        yield are_both, "rate: fio takes either rate or rate_iops; remove one"
        yield (
            self.gap_s and self.is_mix,
            f"rw: fio holds reads and writes of a mix back each by itself; give {self.name} no rate, or make "
            "two jobs of it",
        )

    @property
    def gap_s(self) -> float:
        """Seconds between I/Os of a clone at the job's rate; 0 without a rate."""
        if self.rate is not None:
            return self.bs / self.rate
        return 1 / self.rate_iops if self.rate_iops else 0.0

    @property
    def lasts_s(self) -> float | None:
        """Seconds of I/O, counted or not; None if it runs until the size is done."""
        return None if self.runtime is None else self.ramp_time + self.runtime

    @property
    def is_blocking(self) -> bool:
        """Whether its engine returns when the I/O is done, so that each clone has one in flight."""
        return self.engine in BLOCKING

    @property
    def in_flight(self) -> int:
        return 1 if self.is_blocking else self.iodepth

    @property
    def is_mix(self) -> bool:
        return self.rw in ("readwrite", "randrw")

    def options(self) -> dict[str, str | int]:
        options: dict[str, str | int] = {
            "rw": self.rw,
            "bs": self.bs,
            "size": self.size,
            "numjobs": self.numjobs,
            "ioengine": self.engine,
            "iodepth": self.in_flight,
            "direct": 1,
        }
        options |= {key: value for key in ("rate", "rate_iops") if (value := getattr(self, key))}
        if self.is_mix and self.rwmixread != 50:
            options["rwmixread"] = self.rwmixread
        if self.randseed is not None:
            options["randseed"] = self.randseed
        if self.runtime is not None:
            options |= {"time_based": 1, "runtime": f"{round(self.runtime * 1e6)}us"}
        if self.ramp_time:
            options["ramp_time"] = f"{round(self.ramp_time * 1e6)}us"
        return options
