"""Try a model's tools: scripted tasks with an objective end, with native tools and with tools described in the prompt.

    report = try_tools(client_for, model, allowance=TrialAllowance(max_requests=200))

`measure` counts: two measures of Moonshot's K2 Vendor Verifier (calls where they belong, calls valid by
their schema), the share of tasks that end right, and times.
"""

from __future__ import annotations

from cnllm.tool_trial.tasks import TASKS, Task, TaskResult
from cnllm.tool_trial.trial import (
    MODES,
    AllowanceSpent,
    Mode,
    ModeReport,
    TrialAllowance,
    TrialReport,
    measure,
    try_tools,
)

__all__ = [
    "MODES",
    "TASKS",
    "AllowanceSpent",
    "Mode",
    "ModeReport",
    "Task",
    "TaskResult",
    "TrialAllowance",
    "TrialReport",
    "measure",
    "try_tools",
]
