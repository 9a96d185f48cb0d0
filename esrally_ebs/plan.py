"""What one session does: TOML text and overrides in, a validated frozen Plan out."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from esrally_ebs.errors import PlanError
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.units import MOST_BYTES, parse_bytes, parse_rate, parse_seconds

_NAME = r"^[a-z0-9][a-z0-9-]{0,30}$"  # a name becomes a directory, a container and a Rally task
_REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]+$"
_DATE = r"^[0-9]{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?$"


def _quantity(parse: Any) -> BeforeValidator:  # noqa: ANN401 - pydantic hands over whatever TOML held
    def read(value: Any) -> Any:  # noqa: ANN401
        try:
            return parse(value) if isinstance(value, str) else value
        except PlanError as error:
            raise ValueError(str(error).split(": ", 1)[1]) from error

    return BeforeValidator(read)


Bytes = Annotated[int, _quantity(parse_bytes), Field(le=MOST_BYTES)]
Rate = Annotated[int, _quantity(parse_rate), Field(le=MOST_BYTES)]
Seconds = Annotated[float, _quantity(parse_seconds), Field(allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ArmPlan(_Section):
    """``[[arm]]``: one volume under comparison."""

    name: str = Field(pattern=_NAME)
    type: str
    size: Bytes = Field(default=100 * 1024**3, gt=0)
    iops: int | None = Field(default=None, gt=0)
    throughput: Rate | None = Field(default=None, gt=0)
    encrypted: bool = True
    mount: Path | None = None
    credits: float = Field(default=1.0, ge=0, le=1)
    read_latency: float = Field(default=1.0, gt=0, le=1000)
    date: str | None = Field(default=None, pattern=_DATE)
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


class AwsPlan(_Section):
    """``[aws]``: make the arms on AWS, on the instance that this runs on, instead of emulating them."""

    region: str | None = Field(default=None, pattern=_REGION)
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


class NodePlan(_Section):
    """``[node]``: Rally cars and their variables; the same as ``--car`` and ``--car-params``."""

    car: tuple[str, ...] = ("defaults",)
    params: Mapping[str, str | int | float | bool] = Field(default_factory=dict)


class DatasetPlan(_Section):
    """``[dataset]``: the corpus that the index is built from."""

    documents: int | Literal["full"] = 1_000_000
    seed: int = 42


class BaselineJob(_Section):
    """``[[baseline]]``: one fio job, run on every arm."""

    name: str = Field(pattern=_NAME)
    rw: Literal["read", "write", "readwrite", "randread", "randwrite", "randrw"]
    bs: Bytes = Field(gt=0)
    numjobs: int = Field(default=1, ge=1, le=256)
    iodepth: int = Field(default=1, ge=1, le=1024)
    engine: Literal["psync", "libaio"] = "psync"
    size: Bytes = Field(default=128 * 1024**2, gt=0)
    runtime: Seconds | None = Field(default=None, gt=0)
    rwmixread: int = Field(default=50, ge=0, le=100)  # per cent of a mix that are reads
    randseed: int | None = Field(default=None, ge=1)  # of fio's toss of which I/Os of a mix are reads
    rest: Seconds = Field(default=0.0, ge=0)  # idle time before it
    stonewall: bool = True  # false: begins together with the job before it; only in virtual time
    repeat: bool = False  # again at the end of the session


class RacePlan(_Section):
    """``[race]``: what Rally races; absent for a session of fio alone."""

    track: str = "noaa-ebs"
    challenge: str | None = None
    iterations: int = Field(default=5, ge=1)
    warmup_iterations: int = Field(default=40, ge=0)


class CachePlan(_Section):
    """``[cache]``: whether, and how often, caches are dropped."""

    mode: Literal["cold", "warm"] = "cold"
    drop_every: int = Field(default=1, ge=0)  # requests per drop; 0 = once per block
    max_resident: float = Field(default=0.01, ge=0, le=1)


class ModifyPlan(_Section):
    """``[modify]``: change the volume of an arm in place, and measure before, while and after."""

    arm: str = Field(pattern=_NAME)
    type: str | None = None
    size: Bytes | None = Field(default=None, gt=0)
    iops: int | None = Field(default=None, gt=0)
    throughput: Rate | None = Field(default=None, gt=0)
    passes: int = Field(default=3, ge=1)  # before, and again after


class DesignPlan(_Section):
    """``[design]``: rounds, their order, and what a verdict must reach."""

    rounds: Annotated[int, Field(ge=1)] | Literal["auto"] = 6
    max_rounds: int = Field(default=48, ge=6)  # of "auto"
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


class CostPlan(_Section):
    """``[cost]``: where prices are from, and what is paid by use."""

    region: str | None = Field(default=None, pattern=_REGION)
    prices: Path | None = None  # a price list of one's own
    read: Bytes = Field(default=0, ge=0)  # a month and arm: what EFS Elastic asks for
    written: Bytes = Field(default=0, ge=0)


class Plan(_Section):
    """A whole plan."""

    name: str = Field(pattern=_NAME)
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
        if self.race is not None or not self.baseline:
            raise ValueError("modify: measured by fio jobs; remove [race] and give a [[baseline]]")
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


def parse_plan(text: str, source: str, overrides: Mapping[str, Any] | None = None) -> Plan:
    """A plan from TOML text, with dotted overrides (``{"design.rounds": 2}``) laid over it.

    ``source`` is the file's name, for messages only. Raises PlanError with file, key and what is allowed.
    """
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # also of a number with more digits than Python reads
        raise PlanError(f"{source}: not TOML: {error}") from error
    except RecursionError as error:
        raise PlanError(
            f"{source}: lists or tables are nested too deeply; no key of a plan needs it"
        ) from error
    for key, value in (overrides or {}).items():
        _lay_over(table, key, value, source)
    try:
        return Plan.model_validate(table)
    except ValidationError as error:
        raise PlanError(f"{source}: {_first_problem(error)}") from error


def _lay_over(table: dict[str, Any], key: str, value: Any, source: str) -> None:  # noqa: ANN401
    *path, last = key.split(".")
    here: Any = table
    for part in path:
        here = here.setdefault(part, {}) if isinstance(here, dict) else None
    if not isinstance(here, dict):
        raise PlanError(f"{source}: --set {key}: only tables can be set; edit the plan for lists")
    here[last] = value


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    more = error.error_count() - 1
    text = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        text = "unknown key; see docs/plans.md for the keys"
    return f"{where + ': ' if where else ''}{text}" + (f" (and {more} more)" if more else "")


def load_plan(path: Path, overrides: Mapping[str, Any] | None = None) -> Plan:
    """Read and validate a plan file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"{path}: {error.strerror}; plans are TOML files such as pipelines/gp2-vs-gp3.toml"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: not UTF-8 at byte {error.start:,}; save it as UTF-8, as TOML is") from error
    return parse_plan(text, str(path), overrides)
