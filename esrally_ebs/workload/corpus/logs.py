"""Lines of an invented log: a time, some keywords, and a message of words as frequent as in a language."""

import base64
import json
import re
from typing import Final

import numpy as np

from esrally_ebs.errors import PlanError
from esrally_ebs.model import MAX_DOCUMENTS

_WORDS: Final = 20_000
_MESSAGE: Final = 14  # words per message
_SPAN_MS: Final = 160  # most between two lines: a million lines are a day
_DAY_MS: Final = 86_400_000
_FIRST_MS: Final = 1_704_067_200_000  # 1 January 2024
_SYLLABLES: Final = re.findall("..", "bacedifoguhajekilomunaperisotuvawexiyozu")
_LEVELS: Final = ("info", "info", "info", "info", "info", "info", "warn", "warn", "error", "debug")


def word(rank: int) -> str:
    """The word of this rank; 0 is the most frequent, and the frequency falls as 1 / rank."""
    text = ""
    while rank or not text:
        rank, syllable = divmod(rank, len(_SYLLABLES))
        text += _SYLLABLES[syllable]
    return text


class LogRenderer:
    """Writes lines in order of time; the seed is the day on which they begin.

    With a ``body``, each line also has that many random bytes, as base64.
    """

    capacity = MAX_DOCUMENTS

    def __init__(self, seed: int, body: int = 0) -> None:
        if seed < 0:
            raise PlanError(f"seed {seed}: choose one from 0")
        self._seed = seed
        self._body = body
        self.bytes_per_document = 300 + body * 4 // 3
        self._words = [word(rank) for rank in range(_WORDS)]

    def lines(self, start: int, stop: int) -> bytes:
        draw = np.random.default_rng([self._seed, start])
        count = stop - start
        times = start * _SPAN_MS // 2 + np.cumsum(draw.integers(0, _SPAN_MS, count))
        columns = (
            (_FIRST_MS + self._seed * _DAY_MS + times).tolist(),
            draw.integers(0, len(_LEVELS), count).tolist(),
            draw.integers(0, 40, count).tolist(),
            draw.integers(0, 400, count).tolist(),
            draw.choice(
                [200, 201, 301, 404, 500, 503], count, p=[0.8, 0.05, 0.05, 0.06, 0.03, 0.01]
            ).tolist(),
            draw.lognormal(3.0, 1.2, count).round(2).tolist(),
            (np.exp(draw.random((count, _MESSAGE)) * np.log(_WORDS)).astype(np.int64) - 1).tolist(),
        )
        rows = zip(*columns, strict=True)
        if not self._body:
            return "".join(self._line(*row) for row in rows).encode("ascii")
        return b"".join(
            self._line(*row)[:-2].encode("ascii")
            + b',"body":"'
            + base64.b64encode(draw.bytes(self._body))
            + b'"}\n'
            for row in rows
        )

    def _line(
        self, at: int, level: int, service: int, host: int, status: int, took: float, ranks: list[int]
    ) -> str:
        message = " ".join([self._words[rank] for rank in ranks])
        return (
            f'{{"@timestamp":{at},"level":"{_LEVELS[level]}","service":"service-{service:02}",'
            f'"host":"host-{host:03}","status":{status},"took_ms":{took},"message":{json.dumps(message)}}}\n'
        )
