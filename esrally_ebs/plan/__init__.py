"""What one session does: TOML text and overrides in, a validated frozen Plan out."""

from esrally_ebs.plan.jobs import BaselineJob
from esrally_ebs.plan.reading import load_plan, parse_plan
from esrally_ebs.plan.tables import ArmPlan, ModifyPlan, Plan

__all__ = ["ArmPlan", "BaselineJob", "ModifyPlan", "Plan", "load_plan", "parse_plan"]
