"""``.ci/run``: what it has started ends with it, also when a signal reaches it alone."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "run"
# of scripts/test.sh: one process in the background, which ignores Ctrl-C, and one that is waited for
MAKE = """#!/bin/bash
[ "$1" = test ] || exit 0
sleep 600 &
sh -c 'sleep 600; true' &
echo started
wait
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_a_cancelled_job_runs_ends_before_it_is_cleaned_up(number: int, tmp_path: Path) -> None:
    for name, text in {
        "bin/make": MAKE,
        "scripts/clean.sh": "#!/bin/bash\necho cleaned\n",
        "scripts/engine.sh": "#!/bin/bash\necho engine $1\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    (tmp_path / ".ci").mkdir()
    copy = shutil.copy(SCRIPT, tmp_path / ".ci")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    words = [
        "env",
        "--default-signal",
        copy,
    ]  # a shell can trap no signal that its parent ignores, as nohup does
    job = subprocess.Popen(words, env={"PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert job.stdout is not None
    assert job.stdout.readline() == b"started\n"
    job.send_signal(number)
    output, _ = job.communicate(timeout=60)  # every process that it has started holds the pipe
    assert output == b"cleaned\nengine stop\n"
    assert job.returncode == 128 + number
