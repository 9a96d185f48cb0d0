"""What one session does: TOML text and overrides in, a validated frozen Plan out."""

from esrally_ebs.plan.plan import Plan, load_plan, parse_plan
from esrally_ebs.plan.tables import BaselineJob, DesignPlan, ModifyPlan

__all__ = ["BaselineJob", "DesignPlan", "ModifyPlan", "Plan", "load_plan", "parse_plan"]
