"""The SQLite files of a batch, where its process is forked: by a tool of a row, or by the program around it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cnllm.batch.identity import AnswerCache
from cnllm.batch.shared.allowance import RunLedger
from cnllm.batch.state import BatchState

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

CHILD_ENDS = """
import os, signal, sys, warnings
from pathlib import Path
from cnllm.batch.identity import AnswerCache
from cnllm.batch.shared.allowance import RunLedger
from cnllm.batch.state import BatchState
from cnllm.errors import CnllmError

warnings.simplefilter("ignore")
folder = Path(sys.argv[1])
state, ledger, cache = BatchState(folder / "o.state"), RunLedger(folder / "l"), AnswerCache(folder / "c")
state.set_facts(a=1)
ledger.commit([], "CNY", 1)
cache.store([(b"a", b"1")])
if not os.fork():
    assert cache.find(b"a") == b"1"
    cache.store([(b"c", b"3")])
    for use in (lambda: state.fact("a"), ledger.spent):
        try:
            use()
        except CnllmError as error:
            assert "forked" in str(error)
        else:
            sys.exit(1)
    if sys.argv[2] == "closes":
        for file in (state, ledger, cache):
            file.close()
    sys.exit(0)
assert os.wait()[1] == 0
try:
    BatchState(folder / "o.state").close()
except CnllmError as error:
    assert "another process" in str(error)
else:
    sys.exit(1)
state.set_facts(b=2)
ledger.commit([], "CNY", 2)
cache.store([(b"b", b"2")])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["closes", "leaves"])
def test_what_is_written_after_a_child_has_ended_is_there_after_a_kill(end: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD_ENDS, str(tmp_path), end], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    state, ledger, cache = BatchState(tmp_path / "o.state"), RunLedger(tmp_path / "l"), AnswerCache(tmp_path / "c")
    assert (state.fact("a"), state.fact("b")) == (1, 2)
    assert ledger.spent() == {"CNY": 2}
    assert [cache.find(key) for key in (b"a", b"b", b"c")] == [b"1", b"2", b"3"]
    for file in (state, ledger, cache):
        file.close()
