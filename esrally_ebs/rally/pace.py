"""How often Rally's worker hands its samples to the driver: seldom while it asks, at once when it has ended.

The worker pickles its samples in the process, and under the interpreter lock, that also makes the requests.
At every look for the end of its task (four times a second) that would slow one request in a hundred by
several milliseconds, and so the 99th percentile of a warm query. Rally itself does it every 5 s; a session
whose process is killed may not lose that much.
"""

import functools
import time
from typing import Any

from esrally.driver import driver

_SEND_EVERY_S = 2.5
_SENT = "ebs_samples_sent_s"


def send_samples_seldom() -> None:
    """Wrap the worker's method; what it has at the end of its task is sent as before."""
    original = driver.Worker.send_samples

    @functools.wraps(original)
    def send_samples(self: Any) -> Any:
        now_s = time.monotonic()
        asking = self.executor_future is not None and not self.executor_future.done()
        if asking and now_s - getattr(self, _SENT, 0.0) < _SEND_EVERY_S:
            return None
        setattr(self, _SENT, now_s)
        return original(self)

    driver.Worker.send_samples = send_samples
