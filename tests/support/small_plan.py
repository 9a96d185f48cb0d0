"""A plan of two arms, as text and as a Plan, for tests that care about a table of it at most."""

from typing import Any

from esrally_ebs.plan import Plan

TWO_ARMS = """name = "two"
[[arm]]
name = "gp2"
type = "gp2"
[[arm]]
name = "gp3"
type = "gp3"
[race]
iterations = 3
warmup_iterations = 7
"""


def small_plan(**tables: Any) -> Plan:  # noqa: ANN401 - any table of a plan
    arms = [{"name": name, "type": name} for name in ("gp2", "gp3")]
    return Plan.model_validate({"name": "p", "arm": arms, **tables})
