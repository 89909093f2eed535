"""Compare how faithfully hosts serve one model: seeded tasks, figures from the wire, and a report to check them by.

    report = cnllm.compare("kimi-k3", ["moonshotai", "deepinfra"], max_cost={"USD": 5})

`tasks` makes the tasks, `run` asks and judges, `figures` sums up, `report` writes and replays.
"""

from __future__ import annotations

from cnllm.comparison.figures import FIGURES, HostFigures, Share, Verdict, lost_share_shown
from cnllm.comparison.hosts import choose_hosts, compare, plan_costs, settings_for
from cnllm.comparison.report import Comparison, read_report
from cnllm.comparison.run import ComparisonResult, Host, TaskChoice
from cnllm.comparison.tasks import KINDS, ComparisonTask, make_tasks

__all__ = [
    "FIGURES",
    "KINDS",
    "Comparison",
    "ComparisonResult",
    "ComparisonTask",
    "Host",
    "HostFigures",
    "Share",
    "TaskChoice",
    "Verdict",
    "choose_hosts",
    "compare",
    "lost_share_shown",
    "make_tasks",
    "plan_costs",
    "read_report",
    "settings_for",
]
