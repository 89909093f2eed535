"""Replies that would hang a validator, on their whole way: a call in a reply that is run, and an answer by a schema."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from examples import some

from .variants import VARIANTS

LIMIT = 300  # seconds after which a process hangs; all of it takes a few

RUN = """
import json, sys
import cnllm
from client.peer import Peer
from client.support import home
from loop.support import asks_whole, says_whole
from pathlib import Path
from cnllm.schemas import work
from cnllm.schemas.work import WorkBudget
from tests.schemas.variants import VARIANTS
work.STEPS = 10_000  # so that what ends by them ends sooner
most, spend = [0], WorkBudget.spend
def counted(self, steps):
    most[0] = max(most[0], self.steps) if self._most == 400_000 else most[0]
    spend(self, steps)
WorkBudget.spend = counted
folder = Path(sys.argv[1])
for name in sys.argv[2:]:
    schema, value = VARIANTS[name]
    text = json.dumps({"v": value})
    schema = {"type": "object", **schema}
    ran = []
    def look(**given):
        ran.append(given)
        return "seen"
    most[0] = 0
    with Peer(asks_whole(("look", text)), says_whole("Done."), says_whole(text)) as peer, cnllm.Client() as client:
        model = home(folder, peer, 'schema.methods = ["prompt"]')
        run = client.run(model, "hi", tools=[cnllm.Tool("look", parameters=schema, function=look)])
        reply = client.call(model, "hi", schema=schema, corrections=0)
        told = json.loads(peer.received[1].body)["messages"][-1]["content"]
    codes = sorted({note.code for note in reply.notes} & {"answer-invalid", "answer-unjudged", "pattern-unjudged"})
    print(json.dumps([name, bool(ran), told[:40], reply.parsed is not None, codes, most[0]]), flush=True)
"""


@pytest.mark.sampled
def test_no_call_and_no_answer_hangs_the_process(tmp_path: Path) -> None:
    root, names = Path(__file__).parents[2], some(list(VARIANTS))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path), *names],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=root,
        env={"PYTHONPATH": f"{root}:{root / 'tests'}", "HOME": str(tmp_path), "CNLLM_LOG": "off"},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == names
    for name, was_run, told, is_parsed, codes, steps in lines:
        assert steps <= 400_000, name
        assert was_run is is_parsed, name  # what is no answer is no call
        assert is_parsed is not any(code.startswith("answer-") for code in codes), name
        assert (told == "seen") is was_run, name
        assert was_run or "was not executed" in told, name
