"""What all tables of a plan are, and the kinds of value of their keys: quantities, counts, patterns."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from esrally_ebs.errors import PlanError
from esrally_ebs.units import MOST_BYTES, parse_bytes, parse_rate, parse_seconds

NAME = r"^[a-z0-9][a-z0-9-]{0,30}$"  # a name becomes a directory, a container and a Rally task
REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]+$"
DATE = r"^[0-9]{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?$"

# More is a slip of the pen that nothing would stop: a schedule of more rounds fills the memory.
MOST_ROUNDS = 1000
MOST_REQUESTS = 1_000_000  # of one task, arm and round
MOST_DOCUMENTS = 2**31 - 1 - 128  # as Lucene numbers them in one shard (IndexWriter.MAX_DOCS)
MOST_SECONDS = 366 * 24 * 3600
MOST_SEED = 2**63 - 1  # as fio takes it


class Section(BaseModel):
    """A table of a plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _quantity(parse: Any) -> BeforeValidator:  # noqa: ANN401 - pydantic hands over whatever TOML held
    def read(value: Any) -> Any:  # noqa: ANN401
        try:
            return parse(value) if isinstance(value, str) else value
        except PlanError as error:
            raise ValueError(str(error).split(": ", 1)[1]) from error

    return BeforeValidator(read)


Bytes = Annotated[int, _quantity(parse_bytes), Field(le=MOST_BYTES)]
Rate = Annotated[int, _quantity(parse_rate), Field(le=MOST_BYTES)]
Directions = Annotated[
    Literal["read", "write", "readwrite", "randread", "randwrite", "randrw"],
    BeforeValidator(lambda value: "readwrite" if value == "rw" else value),  # fio has both words
]
Seconds = Annotated[float, _quantity(parse_seconds), Field(allow_inf_nan=False, le=MOST_SECONDS)]


def count_or(word: str, most: int) -> PlainValidator:
    """A whole number from 1 to ``most``, or that word; a union of both would be told as two errors."""

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


def one_value(value: Any) -> Any:  # noqa: ANN401
    """Whatever a key of ``node.params`` may have; a union of the four would be told as four errors."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is neither text nor a number nor true or false")
    return value
