"""Small changes of valid input, of bytes and of values in JSON; what draws them is a ``Random`` of a seed."""

import json
import random
from typing import Any

ODD: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1e308,
        -0.0,
        2**63,
        "",
        "now",
        "\x00",
        "ü" * 50,
        "9" * 400,
        "NaN",
        "1e999",
        "?",
        "{{x}}",
    ),
    *(
        [],
        {},
        [[]],
        {"a": {}},
        ["now-1d"],
        "2026-13-45T99:99:99Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59Z",
    ),
]


def mutated(draw: random.Random, entry: bytes, others: list[bytes]) -> bytes:
    """An entry with one to four changes."""
    for _ in range(draw.randint(1, 4)):
        entry = draw.choice((flipped, cut, doubled, noised, spliced, revalued, revalued, revalued))(
            draw, entry, others
        )
    return entry


def flipped(draw: random.Random, entry: bytes, _: list[bytes]) -> bytes:
    at = draw.randrange(len(entry) or 1)
    return entry[:at] + bytes([draw.randrange(256)]) + entry[at + 1 :]


def cut(draw: random.Random, entry: bytes, _: list[bytes]) -> bytes:
    start, end = sorted((draw.randrange(len(entry) + 1), draw.randrange(len(entry) + 1)))
    return entry[:start] + entry[end:]


def doubled(draw: random.Random, entry: bytes, _: list[bytes]) -> bytes:
    start, end = sorted((draw.randrange(len(entry) + 1), draw.randrange(len(entry) + 1)))
    return entry[:end] + entry[start:]


def noised(draw: random.Random, entry: bytes, _: list[bytes]) -> bytes:
    at = draw.randrange(len(entry) + 1)
    return (
        entry[:at]
        + draw.choice((b"{" * 2000, b"\\u0000", b"\\ud800", b"\xff\xfe", b'"', b"]", b"}"))
        + entry[at:]
    )


def spliced(draw: random.Random, entry: bytes, others: list[bytes]) -> bytes:
    other = draw.choice(others)
    return entry[: draw.randrange(len(entry) + 1)] + other[draw.randrange(len(other) + 1) :]


def revalued(draw: random.Random, entry: bytes, others: list[bytes]) -> bytes:
    """With a value of its JSON replaced, in the line's own or in the JSON that one of its strings holds."""
    try:
        node = json.loads(entry)
    except ValueError:
        return cut(draw, entry, others)
    return json.dumps(changed(draw, node)).encode() + b"\n"


def changed(draw: random.Random, node: Any) -> Any:  # noqa: ANN401
    if isinstance(node, str) and node.startswith("{"):
        try:
            return json.dumps(changed(draw, json.loads(node)))
        except ValueError:
            return draw.choice(ODD)
    if not (isinstance(node, dict | list) and node and draw.random() < 0.9):
        return draw.choice(ODD)
    key = draw.choice(list(node)) if isinstance(node, dict) else draw.randrange(len(node))
    copy = node.copy()
    copy[key] = changed(draw, node[key])  # type: ignore[index]
    return copy
