"""Our errors on their way through Rally's actors to its main process."""

import pickle
import subprocess
import sys

import pytest
from esrally import actor

from esrally_ebs.errors import MeasurementError, PlanError, SetupError
from esrally_ebs.rally import patches
from esrally_ebs.rally.patches.outcome import RaceFailure, failure_of


def test_an_error_of_ours_becomes_its_one_line_and_its_exit_code() -> None:
    failure = failure_of(PlanError("plan x: wrong"), "Traceback ...")
    assert (failure.message, failure.exit_code) == ("plan x: wrong", 2)


def test_our_error_is_found_behind_rallys_wrapping() -> None:
    wrapped = RuntimeError("wrapped by Rally")
    wrapped.__cause__ = MeasurementError("not cold")
    assert failure_of(wrapped, "Traceback ...").exit_code == 4


def test_any_other_error_keeps_rallys_own_message_cause_and_exit_code() -> None:
    failure = failure_of(ValueError("x"), "Traceback ...", "why")
    assert (failure.message, failure.cause, failure.exit_code) == ("Traceback ...", "why", 64)


@pytest.mark.usefixtures("rally")
def test_every_failure_can_be_sent_where_rallys_own_name_is_replaced() -> None:
    patches.install([patches.FAILURE])
    arrived = pickle.loads(pickle.dumps(actor.BenchmarkFailure("Error in load generator", "why")))
    assert (arrived.message, arrived.cause, arrived.exit_code) == ("Error in load generator", "why", 64)


def test_rally_takes_our_failure_for_its_own() -> None:
    rallys_own = patches.unpatched(actor, "BenchmarkFailure")
    assert isinstance(pickle.loads(pickle.dumps(RaceFailure("text", 3))), rallys_own)


def test_where_the_failure_arrives_rallys_exit_code_becomes_ours_and_no_other_changes() -> None:
    # Rally's main process ends with rally.sys.exit(64) for every error, and with 130 for Ctrl-C.
    code = """
import pickle, sys
from esrally import rally
pickle.loads(bytes.fromhex(sys.argv[1]))
try:
    rally.sys.exit(130)
except SystemExit as cancelled:
    print(cancelled.code)
rally.sys.exit(64)
"""
    message = pickle.dumps(RaceFailure("text", SetupError.exit_code)).hex()
    command = [sys.executable, "-c", code, message]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("130\n", 3)
