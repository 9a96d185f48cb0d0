"""Objects in S3 below one prefix, by their names relative to it: listed and read, never written."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from esrally_ebs.aws.clients import Api, Aws
from esrally_ebs.errors import SetupError

_NAME: Final = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)
_PIECE_BYTES: Final = 16 << 20  # of an object, in memory at once


@dataclass(frozen=True, kw_only=True)
class Objects:
    """Objects in a bucket below a prefix. Failures of S3 raise AwsError."""

    bucket: str
    prefix: str  # empty, or ends in a slash
    api: Api = field(default_factory=Aws)

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Objects below ``s3:/bucket/prefix``; None for any other path."""
        scheme, *parts = path.parts
        if scheme != "s3:":
            return None
        return cls(bucket=parts[0], prefix="".join(f"{part}/" for part in parts[1:]))

    def sizes(self, below: str) -> dict[str, int]:
        """Sizes in bytes of all objects whose names begin with ``below``, by name."""
        answer = self.api.call("s3", "ListObjectsV2", Bucket=self.bucket, Prefix=self.prefix + below)
        return {each["Key"].removeprefix(self.prefix): each["Size"] for each in answer.get("Contents", ())}

    def read(self, name: str, most_bytes: int) -> bytes:
        """A whole object. Raises FileNotFoundError if there is none, ValueError if it is larger."""
        size = self.sizes(name).get(name)
        if size is None:
            raise FileNotFoundError(f"s3://{self.bucket} has no {self.prefix}{name}")
        if size > most_bytes:
            raise ValueError(f"{name} has {size:,} bytes")
        return b"".join(self._pieces(name, size))

    def fetch(self, name: str, size: int, folder: Path) -> None:
        """Copy an object to its name below ``folder``, readable by everybody."""
        if not _NAME.fullmatch(name):
            where = f"s3://{self.bucket}/{self.prefix}"
            raise SetupError(f"{where}: {name!r} is no name of Elasticsearch's; remove that object")
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("xb") as file:
            file.writelines(self._pieces(name, size))
        to.chmod(0o644)

    def _pieces(self, name: str, size: int) -> Iterator[bytes]:
        for start in range(0, size, _PIECE_BYTES):
            piece = f"bytes={start}-{min(start + _PIECE_BYTES, size) - 1}"
            key = self.prefix + name
            yield self.api.call("s3", "GetObject", Bucket=self.bucket, Key=key, Range=piece)["Body"]
