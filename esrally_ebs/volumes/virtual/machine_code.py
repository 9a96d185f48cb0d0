"""Compiles the event loop by numba: the functions of kernel.py and transfer.py, and all that they call."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esrally_ebs.catalog.limits import charged_bytes, operations_of
from esrally_ebs.volumes.emulated.law.buckets import charge_buckets
from esrally_ebs.volumes.emulated.law.queue import drawn_s, saved_of
from esrally_ebs.volumes.virtual import kernel, transfer
from esrally_ebs.volumes.virtual.state import bin_of
from esrally_ebs.volumes.virtual.transfer import pop, push, settle


def compiled(
    entry: Callable[..., Any] = kernel.serve, own: Sequence[Callable[..., Any]] = ()
) -> Callable[..., Any]:
    """The kernel's ``serve``, or another ``entry`` with its ``own`` functions, as machine code.

    Takes some seconds, once per version of the source.
    """
    # imported here: jobs of less than a second in Python do not wait for numba
    from numba import njit
    from numba.extending import register_jitable

    parts: tuple[Callable[..., Any], ...] = (
        charge_buckets,
        charged_bytes,
        operations_of,
        saved_of,
        drawn_s,
        bin_of,
        push,
        pop,
        settle,
        kernel.measure,
        kernel.record,
        transfer.uniform,
        transfer.next_offset,
        transfer.length_of,
        transfer.requests_of,
        transfer.request,
        transfer.transfer,
        transfer.merged_part,
        kernel.submit,
        kernel.fits,
        kernel.chosen,
        kernel.next_s,
        kernel.take,
        kernel.plan,
        kernel.plan_device,
        kernel.wake,
        kernel.rests_until,
        kernel.step,
        *own,
    )
    # It allocates nothing: without reference counts it is five times as fast.
    options: Any = {"_nrt": False}
    for function in parts:
        register_jitable(**options)(function)
    with _kept((*parts, entry)) as keeps:
        made: Any = njit(entry, cache=keeps, **options)
    return made  # type: ignore[no-any-return]


@contextmanager
def _kept(parts: Sequence[Callable[..., Any]]) -> Iterator[bool]:
    """Have numba cache machine code beside this file's bytecode; False if that is not writable.

    numba checks only the file of ``serve`` for changes, so the cache's name includes a hash of all compiled
    source and constants.
    """
    import numba

    config: Any = numba.config
    files = {Path(part.__code__.co_filename) for part in parts} | set(Path(__file__).parent.glob("*.py"))
    key = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()[:16]
    directory = Path(__file__).with_name("__pycache__") / f"kernel-{key}"
    before = config.CACHE_DIR
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writable = os.access(directory, os.W_OK)
    except OSError:
        writable = False
    if writable:
        config.CACHE_DIR = str(directory)
    try:
        yield writable
    finally:
        config.CACHE_DIR = before
