"""``[[baseline]]``: a fio job of a plan."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from esrally_ebs.model import NAME
from esrally_ebs.plan.tables import Section
from esrally_ebs.units import Bytes, Rate, Seconds, format_bytes

MAX_SEED = 2**63 - 1  # as fio takes it
Directions = Annotated[
    Literal["read", "write", "readwrite", "randread", "randwrite", "randrw"],
    BeforeValidator(lambda value: "readwrite" if value == "rw" else value),  # fio has both words
]
BLOCKING = ("psync", "sync", "pvsync", "pvsync2")  # engines of fio that return when the I/O is done


class BaselineJob(Section):
    """``[[baseline]]``: one fio job, run on every arm."""

    name: str = Field(pattern=NAME)
    rw: Directions
    bs: Bytes = Field(gt=0)
    numjobs: int = Field(default=1, ge=1, le=256)
    engine: Literal["psync", "sync", "pvsync", "pvsync2", "libaio", "io_uring"] = "psync"
    iodepth: int = Field(default=1, ge=1, le=1024)
    size: Bytes = Field(default=128 * 1024**2, gt=0)
    runtime: Seconds | None = Field(default=None, gt=0)
    ramp_time: Seconds = Field(default=0.0, ge=0)  # I/O that is not counted, before the runtime begins
    rate_iops: int | None = Field(default=None, gt=0)  # of each clone, at most
    rate: Rate | None = Field(default=None, gt=0)  # the same in bytes
    rwmixread: int = Field(default=50, ge=0, le=100)  # per cent of a mix that are reads
    # decides which I/Os of a mix are reads
    randseed: int | None = Field(default=None, ge=1, le=MAX_SEED)
    rest: Seconds = Field(default=0.0, ge=0)  # idle time before it
    stonewall: bool = True  # false: begins together with the job before it; only in virtual time
    repeat: int = Field(default=0, ge=0, le=100)  # passes at the end of the session; true = 1

    @field_validator("iodepth")
    @classmethod
    def _is_1_with_a_blocking_engine(cls, iodepth: int, info: ValidationInfo) -> int:
        """fio, too, takes 1 for an engine that returns when the I/O is done.

        With psync, the default engine, the depth stays for a copy of the job with another engine.
        """
        return 1 if info.data.get("engine") in BLOCKING[1:] else iodepth

    @model_validator(mode="after")
    def _ramp_time_needs_runtime(self) -> Self:
        # Without one, fio would count what the ramp leaves of the file, which may be nothing.
        if self.ramp_time and self.runtime is None:
            raise ValueError(
                "ramp_time: only a job with a runtime goes on after it; give a runtime, or remove it"
            )
        return self

    @model_validator(mode="after")
    def _blocks_fit_into_the_file(self) -> Self:
        if self.bs > self.size:
            raise ValueError(
                f"bs: blocks of {format_bytes(self.bs)} do not fit into {format_bytes(self.size)}; raise size"
                " or lower bs"
            )
        return self

    @model_validator(mode="after")
    def _has_one_rate_of_one_direction(self) -> Self:
        if self.rate is not None and self.rate_iops is not None:
            raise ValueError("rate: fio takes either rate or rate_iops; remove one")
        if self.gap_s and self.is_mix:
            raise ValueError(
                f"rw: fio holds reads and writes of a mix back each by itself; give {self.name} no rate, "
                "or make two jobs of it"
            )
        return self

    @property
    def gap_s(self) -> float:
        """The time from one I/O of a clone to its next at the job's rate; 0 without one."""
        if self.rate is not None:
            return self.bs / self.rate
        return 1 / self.rate_iops if self.rate_iops else 0.0

    @property
    def lasts_s(self) -> float | None:
        """How long there is I/O, counted or not; None until the size is done."""
        return None if self.runtime is None else self.ramp_time + self.runtime

    @property
    def is_blocking(self) -> bool:
        """Whether each clone has one I/O in flight, as its engine returns when that is done."""
        return self.engine in BLOCKING

    @property
    def in_flight(self) -> int:
        """I/Os that each clone keeps in flight."""
        return 1 if self.is_blocking else self.iodepth

    @property
    def is_mix(self) -> bool:
        """Whether it both reads and writes."""
        return self.rw in ("readwrite", "randrw")

    def options(self) -> dict[str, str | int]:
        """The job as options of fio."""
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
