"""A study on devices: sessions as ``run`` makes them, fio's figures and the limits' waits read back."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from esrally_ebs import studies
from esrally_ebs.catalog import cost
from esrally_ebs.machine.resources import resource, run_dir
from esrally_ebs.plan import load_plan
from esrally_ebs.store import list_sessions
from esrally_ebs.studies import striping
from esrally_ebs.studies.published import Inputs, compare
from esrally_ebs.units import MIB

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for block devices"),
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed"),
]


# The session's reaper outlives it, and nobody waits for its end.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_striped_arm_of_a_study_is_measured_recorded_and_compared(own_folders: Path) -> None:
    whole = load_plan(resource("pipelines") / "striping-2015.toml")
    arm = next(arm for arm in whole.arm if arm.name == "3x1tib")
    job = whole.baseline[0].model_copy(update={"size": 64 * MIB, "runtime": 4.0})
    # beside other work a volume may be late, and then below its limit, but never above
    plan = whole.model_copy(update={"arm": (arm,), "baseline": (job,), "accept": ("lateness",)})
    study = replace(studies.read_study("striping-2015"), settings={"compared": []})
    runner = studies.DeviceRunner(say=lambda text: None)

    parts = striping.run(Inputs(study=study, plan=plan, runner=runner, prices=cost.price_list()))

    # 3 x 3072 IOPS, and 0.03 s of them saved up, in 4 s; the article had 9,307.6
    limit = 3 * 3072 * 4.03 / 4
    assert 0.85 * limit < parts.observed["3x1tib", "random-read", "iops"] < 1.03 * limit
    figure = compare(study, parts.observed)[8]
    assert (figure.published.arm, figure.published.job) == ("3x1tib", "random-read")
    assert -0.17 < figure.error < 0.05
    (recorded,) = list_sessions(own_folders / "home")
    assert recorded.id == runner.sessions[0]
    assert list(run_dir().glob("*")) == []
