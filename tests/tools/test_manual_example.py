"""The first example of the manual's page on tools runs as it stands there, and prints what it should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "tools.md"


def test_the_example_runs() -> None:
    section = PAGE.read_text().split("\n## Schemas")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    run = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert '"degrees":21' in run.stdout
