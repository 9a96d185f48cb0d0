"""The process of one emulated volume: started in the volume's directory, it serves a file ``disk`` there.

Reads the settings file in its current directory, and mounts raw FUSE on ``disk``, a regular file to which a
loop device is attached. Ends on SIGTERM, or when ``disk`` is unmounted; if it is killed, the kernel answers
all I/O with an error.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from esrally_ebs.machine.processes import Process, be_called
from esrally_ebs.volumes.emulated.daemon import fuse
from esrally_ebs.volumes.emulated.daemon.admission import Admission
from esrally_ebs.volumes.emulated.daemon.server import Server

SETTINGS_NAME = "settings.json"  # {"name", "backing"} and Admission's settings
DISK_NAME = "disk"
PROCESS_NAME = "daemon.json"  # {"pid", "start_ticks"}: identifies the process even if its pid is reused
LOG_NAME = "daemon.log"
MOUNT_SOURCE = "ebs-volume"
TITLE = "ebs-volume"
START_VARIABLE = "EBS_DAEMON"  # environment variable that starts this module

_PR_SET_TIMERSLACK = 29
_MS_NOSUID_NODEV = 0x6
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Serve the volume of the current directory; returns in the caller once the file is there.

    The process forks: the parent exits with 0 when the volume is ready, or with 1 and one line on stderr.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the session, which then detaches in order
    settings = json.loads(Path(SETTINGS_NAME).read_text())
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        message = os.read(ready, 4096).decode() or "ended before it was ready"
        if message != "ready":
            sys.stderr.write(message)
        os._exit(message != "ready")
    os.close(ready)
    try:
        server = _start(settings)
    except OSError as error:
        os.write(tell, f"{error.strerror}: {error.filename or '/dev/fuse'}".encode())
        os._exit(1)
    os.write(tell, b"ready")
    os.close(tell)
    try:
        server.serve()
    finally:
        _libc.umount2(DISK_NAME.encode(), _MNT_DETACH)


def _start(settings: Mapping[str, Any]) -> Server:
    os.setsid()
    log = os.open(LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    # Written before anything is mounted, so that this process can always be found and ended. From now on the
    # process title replaces the variable by which it was found until now.
    me = Process.of(os.getpid())
    Path(PROCESS_NAME).write_text(json.dumps({"pid": os.getpid(), "start_ticks": me and me.start_ticks}))
    be_called(f"{TITLE} {settings['name']}")
    backing = os.open(settings["backing"], os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    os.close(os.open(DISK_NAME, os.O_CREAT | os.O_RDWR, 0o600))
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    # By default the kernel lets everybody open files that this process does not refuse; this applies the
    # mode.
    rights = "rootmode=100000,user_id=0,group_id=0,allow_other,default_permissions"
    options = f"fd={device},{rights},max_read={fuse.MAX_IO_BYTES}"
    server = Server(Admission.load(Path(SETTINGS_NAME), time.monotonic()), backing, device)
    if _libc.mount(MOUNT_SOURCE.encode(), DISK_NAME.encode(), b"fuse", _MS_NOSUID_NODEV, options.encode()):
        raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}", "/dev/fuse")
    os.setpriority(os.PRIO_PROCESS, 0, -20)  # without it, latencies on a busy machine are worthless
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # the default slack of 50 us would lengthen every wait
    gc.freeze()
    gc.disable()  # the loop creates no cycles
    return server
