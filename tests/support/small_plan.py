"""A plan of two arms, for tests that need some plan and care about a table of it at most."""

from typing import Any

from esrally_ebs.plan import Plan


def small_plan(**tables: Any) -> Plan:  # noqa: ANN401 - any table of a plan
    arms = [{"name": name, "type": name} for name in ("gp2", "gp3")]
    return Plan.model_validate({"name": "p", "arm": arms, **tables})
