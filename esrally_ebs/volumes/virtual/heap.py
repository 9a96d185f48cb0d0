"""Binary heaps in parts of flat sequences, as the kernel needs them: numba is many times faster with arrays
than with lists of tuples.

A heap has its keys and ids from index ``first`` on. What is least stays behind the last one that is left, so
that the place, and the id in it, can be given out again.
"""

from collections.abc import MutableSequence


def push(keys: MutableSequence[float], ids: MutableSequence[int], first: int, count: int, key: float) -> int:
    """Add a key to a heap of ``count``; the id that was in the free place, which is the key's now."""
    free = ids[first + count]
    at = count
    while at > 0:
        above = (at - 1) >> 1
        if keys[first + above] <= key:
            break
        keys[first + at] = keys[first + above]
        ids[first + at] = ids[first + above]
        at = above
    keys[first + at] = key
    ids[first + at] = free
    return free


def pop(keys: MutableSequence[float], ids: MutableSequence[int], first: int, count: int) -> int:
    """Take the least of ``count`` keys; its id, which is in the free place now."""
    least = ids[first]
    last = count - 1
    settle(keys, ids, first, last, keys[first + last], ids[first + last])
    ids[first + last] = least
    return least


def settle(
    keys: MutableSequence[float], ids: MutableSequence[int], first: int, count: int, key: float, id_: int
) -> None:
    """Put a key and its id in the place of the least of ``count``."""
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and keys[first + below + 1] < keys[first + below]:
            below += 1
        if keys[first + below] >= key:
            break
        keys[first + at] = keys[first + below]
        ids[first + at] = ids[first + below]
        at = below
    keys[first + at] = key
    ids[first + at] = id_
