"""The tables of a plan, one class each: which keys there are, and what they may be."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator, model_validator

from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.plan.jobs import BaselineJob
from esrally_ebs.plan.values import (
    DATE,
    MOST_DOCUMENTS,
    MOST_REQUESTS,
    MOST_ROUNDS,
    NAME,
    REGION,
    Bytes,
    Rate,
    Seconds,
    Section,
    count_or,
    one_value,
)
from esrally_ebs.units import GIB, MIB


class ArmPlan(Section):
    """``[[arm]]``: one volume under comparison."""

    name: str = Field(pattern=NAME)
    type: str
    size: Bytes = Field(default=100 * 1024**3, gt=0)
    iops: int | None = Field(default=None, gt=0)
    throughput: Rate | None = Field(default=None, gt=0)
    encrypted: bool = True
    mount: Path | None = None
    credits: float = Field(default=1.0, ge=0, le=1)
    read_latency: float = Field(default=1.0, gt=0, le=1000)
    date: str | None = Field(default=None, pattern=DATE)
    instance: str | None = None
    stripes: int = Field(default=1, ge=1, le=32)
    chunk: Bytes = Field(default=512 * 1024, ge=4096)
    striped_by: Literal["device", "btrfs", "md", "lvm"] = "device"
    time_scale: float = Field(default=1.0, ge=1, le=10_000)
    mode: Literal["bursting", "provisioned", "elastic"] | None = None
    one_zone: bool = False

    @model_validator(mode="after")
    def _only_emulated_reads_are_slowed(self) -> Self:
        if self.read_latency != 1 and (self.mount is not None or self.type in ("directory", "mounted")):
            raise ValueError("read_latency: only an emulated volume can be made slower; remove it")
        return self

    def spec(self) -> VolumeSpec:
        """The volume to attach for this arm."""
        return VolumeSpec(
            name=self.name,
            type=self.type,
            size_bytes=self.size,
            iops=self.iops,
            throughput_bytes_per_s=self.throughput,
            encrypted=self.encrypted,
            mount=self.mount,
            credits=self.credits,
            read_latency=self.read_latency,
            date=self.date,
            instance=self.instance,
            stripes=self.stripes,
            chunk_bytes=self.chunk,
            striped_by=self.striped_by,
            time_scale=self.time_scale,
            mode=self.mode,
            one_zone=self.one_zone,
        )


class AwsPlan(Section):
    """``[aws]``: make the arms on AWS, on the instance that this runs on, instead of emulating them."""

    region: str | None = Field(default=None, pattern=REGION)
    snapshot: str | None = Field(default=None, pattern=r"^snap-[0-9a-f]{8,17}$")
    initialise: bool = True
    stripe_with: Literal["mdadm", "lvm"] = "mdadm"

    def spec(self) -> AwsSpec:
        """What each volume is told of it."""
        return AwsSpec(
            region=self.region,
            snapshot=self.snapshot,
            initialise=self.initialise,
            stripe_with=self.stripe_with,
        )


class NodePlan(Section):
    """``[node]``: Rally cars and their variables; the same as ``--car`` and ``--car-params``."""

    car: tuple[str, ...] = ("defaults",)
    params: Mapping[str, Annotated[str | int | float | bool, PlainValidator(one_value)]] = Field(
        default_factory=dict
    )


class DatasetPlan(Section):
    """``[dataset]``: the corpus that the index is built from."""

    documents: Annotated[int | Literal["full"], count_or("full", MOST_DOCUMENTS)] = 1_000_000
    seed: int = 42


class RacePlan(Section):
    """``[race]``: what Rally races; absent for a session of fio alone."""

    track: str = "noaa-ebs"
    challenge: str | None = None
    iterations: int = Field(default=5, ge=1, le=MOST_REQUESTS)
    warmup_iterations: int = Field(default=40, ge=0, le=MOST_REQUESTS)


class CachePlan(Section):
    """``[cache]``: whether, and how often, caches are dropped."""

    mode: Literal["cold", "warm"] = "cold"
    drop_every: int = Field(default=1, ge=0)  # requests per drop; 0 = once per block
    max_resident: float = Field(default=0.01, ge=0, le=1)


class ModifyPlan(Section):
    """``[modify]``: change the volume of an arm in place, and measure before, while and after."""

    arm: str = Field(pattern=NAME)
    type: str | None = None
    size: Bytes | None = Field(default=None, gt=0)
    iops: int | None = Field(default=None, gt=0)
    throughput: Rate | None = Field(default=None, gt=0)
    passes: int = Field(default=3, ge=1, le=MOST_ROUNDS)  # before, and again after

    @model_validator(mode="after")
    def _is_what_aws_counts_in(self) -> Self:
        for what, value, unit, name in (
            ("size", self.size, GIB, "GiB"),
            ("throughput", self.throughput, MIB, "MiB/s"),
        ):
            if value is not None and value % unit:
                raise ValueError(
                    f"{what}: AWS counts in whole {name}; write for example '{-(-value // unit)}{name}'"
                )
        return self


class DesignPlan(Section):
    """``[design]``: rounds, their order, and what a verdict must reach."""

    rounds: Annotated[int | Literal["auto"], count_or("auto", MOST_ROUNDS)] = 6
    max_rounds: int = Field(default=48, ge=6, le=MOST_ROUNDS)  # of "auto"
    budget: Seconds | None = Field(default=None, gt=0)  # of "auto": time for all rounds
    order: Literal["counterbalanced", "fixed"] = "counterbalanced"
    seed: int = Field(default=1, ge=0)
    margin: float = Field(default=0.05, gt=0, lt=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)

    @property
    def is_auto(self) -> bool:
        """Whether rounds end when every task is decided."""
        return self.rounds == "auto"

    @property
    def most_rounds(self) -> int:
        """How many rounds there are, or are at most."""
        return self.max_rounds if isinstance(self.rounds, str) else self.rounds


class CostPlan(Section):
    """``[cost]``: where prices are from, and what is paid by use."""

    region: str | None = Field(default=None, pattern=REGION)
    prices: Path | None = None  # a price list of one's own
    read: Bytes = Field(default=0, ge=0)  # a month and arm: what EFS Elastic asks for
    written: Bytes = Field(default=0, ge=0)


class Plan(Section):
    """A whole plan."""

    name: str = Field(pattern=NAME)
    arm: tuple[ArmPlan, ...] = Field(min_length=1)
    aws: AwsPlan | None = None
    node: NodePlan = NodePlan()
    dataset: DatasetPlan = DatasetPlan()
    race: RacePlan | None = None
    cache: CachePlan = CachePlan()
    design: DesignPlan = DesignPlan()
    baseline: tuple[BaselineJob, ...] = ()
    cost: CostPlan = CostPlan()
    accept: tuple[str, ...] = ()  # checks that shall not stop the session, by name
    modify: ModifyPlan | None = None

    @model_validator(mode="after")
    def _what_is_modified_is_there(self) -> Self:
        if self.modify is None:
            return self
        if self.modify.arm not in {arm.name for arm in self.arm}:
            raise ValueError(f"modify.arm: no arm is named {self.modify.arm!r}; give the name of one")
        if self.race is not None:
            raise ValueError("modify: measured by fio jobs, not by requests; remove [race]")
        if not self.baseline:
            raise ValueError("modify: measured by fio jobs, and there is none; give a [[baseline]]")
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        for what, names in (
            ("arm", [a.name for a in self.arm]),
            ("baseline", [b.name for b in self.baseline]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(
                    f"{what} name {twice[0]!r} is used twice; give each {what} a name of its own"
                )
        return self

    @model_validator(mode="after")
    def _an_instance_has_one_time(self) -> Self:
        scales: dict[str, float] = {}
        for arm in self.arm:
            if arm.instance is not None and scales.setdefault(arm.instance, arm.time_scale) != arm.time_scale:
                raise ValueError(
                    f"arm {arm.name!r}: shares the limits of instance {arm.instance!r} with an arm of "
                    f"another time_scale; give both one, or write '{arm.instance}#2' for another instance"
                )
        return self

    def specs(self) -> tuple[VolumeSpec, ...]:
        """The volumes of all arms, in plan order."""
        specs = tuple(arm.spec() for arm in self.arm)
        if self.aws is None:
            return specs
        made = self.aws.spec()
        return tuple(replace(spec, aws=made) if _is_made(spec) else spec for spec in specs)


def _is_made(spec: VolumeSpec) -> bool:
    """Whether ``[aws]`` is about a volume: not when it is a mount or a directory that is there already."""
    return spec.mount is None and spec.type not in ("directory", "mounted")
