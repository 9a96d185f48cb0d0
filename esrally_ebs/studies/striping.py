"""striping-2015: one, two and three striped volumes against one large volume, and the instance's disk."""

from esrally_ebs.report.model import Plot, plain_table
from esrally_ebs.studies.published import Inputs, Observed, Parts
from esrally_ebs.studies.runs import marks, observed


def run(inputs: Inputs) -> Parts:
    figures = observed(inputs.runner.jobs(inputs.plan, {}))
    jobs = [job.name for job in inputs.plan.baseline]
    random = [job for job in jobs if job.startswith("random")]
    rows = _against(inputs, figures, jobs)
    ratios = [ours for *_, ours in rows]
    titles = ("arms", "job", "published", "ours")
    conclusion = ""
    if ratios:
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        conclusion = f"Striped volumes give {spread} times what a single one of their size does."
    return Parts(
        observed=figures,
        conclusion=conclusion,
        tables=(plain_table("striped", "Striped against single, as a ratio", titles, rows),),
        plots=(_bars(inputs, figures, random),),
    )


def _against(inputs: Inputs, figures: Observed, jobs: list[str]) -> list[tuple[str, str, float, float]]:
    """Comparison of striped volumes with one of their size: arms, job, the article's ratio, ours."""
    rows = []
    for striped, single in inputs.study.settings["compared"]:
        for job in jobs:
            kind = "iops" if job.startswith("random") else "bandwidth"
            ours = [figures[arm, job, kind] for arm in (striped, single) if (arm, job, kind) in figures]
            theirs = [
                figure.low
                for arm in (striped, single)
                for figure in inputs.study.figures
                if (figure.arm, figure.job, figure.kind.key) == (arm, job, kind)
            ]
            if len(ours) == len(theirs) == 2:
                rows.append((f"{striped} / {single}", job, theirs[0] / theirs[1], ours[0] / ours[1]))
    return rows


def _bars(inputs: Inputs, figures: Observed, jobs: list[str]) -> Plot:
    arms = [arm.name for arm in inputs.plan.arm if arm.type != "instance-store"]
    curves = tuple(marks(job, [(arm, job, "iops") for arm in arms], figures, 1.0) for job in jobs)
    return Plot(title="IOPS of 4 KiB", across="arm", up="IOPS", curves=curves, places=tuple(arms))
