import pytest
from recorded_requests import recorded, recording

from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor


@pytest.fixture(scope="session")
def predictor() -> Predictor:
    made = recording(recorded())
    return Predictor(made, thread_of(made))
