"""The example of the README's section on tools runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_example_runs() -> None:
    section = README.read_text().split("### Tools\n")[1].split("\n### ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    run = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert '"degrees":21' in run.stdout
