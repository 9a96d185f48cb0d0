"""striping-2015: one, two and three volumes striped against a single large one, and the instance's disk."""

from collections.abc import Mapping

from esrally_ebs.published import Cell, Plot, Table
from esrally_ebs.studies.observed import marks, observed
from esrally_ebs.studies.parts import Parts, Task

_Figures = Mapping[tuple[str, str, str], float]


def run(task: Task) -> Parts:
    """All of the study."""
    figures = observed(task.runner.jobs(task.plan, {}))
    jobs = [job.name for job in task.plan.baseline]
    random = [job for job in jobs if job.startswith("random")]
    return Parts(
        observed=figures,
        tables=(_against(task, figures, jobs),),
        plots=(_bars(task, figures, random),),
    )


def _against(task: Task, figures: _Figures, jobs: list[str]) -> Table:
    """The article's conclusion: striped volumes are as fast as one of their size."""
    rows: list[list[Cell]] = []
    for striped, single in task.study.settings["compared"]:
        for job in jobs:
            kind = "iops" if job.startswith("random") else "bandwidth"
            ours = [figures[arm, job, kind] for arm in (striped, single) if (arm, job, kind) in figures]
            theirs = [
                figure.low
                for arm in (striped, single)
                for figure in task.study.figures
                if (figure.arm, figure.job, figure.kind.key) == (arm, job, kind)
            ]
            if len(ours) == len(theirs) == 2:
                rows.append([f"{striped} / {single}", job, theirs[0] / theirs[1], ours[0] / ours[1]])
    columns = ("arms", "job", "published", "ours")
    return Table(title="Striped against single, as a ratio", columns=columns, rows=rows)


def _bars(task: Task, figures: _Figures, jobs: list[str]) -> Plot:
    arms = [arm.name for arm in task.plan.arm if arm.type != "instance-store"]
    series = [marks(job, [(arm, job, "iops") for arm in arms], figures, 1.0) for job in jobs]
    return Plot(title="IOPS of 4 KiB", across="arm", up="IOPS", series=series, names=arms)
