"""The forms in which Ray gives rows and takes callables; the simulator answers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.long

PROGRAM = """
import json, numpy, pandas, pyarrow, ray, sys
import cnllm.ray

Model = cnllm.ray.Model
ready = Model("glm-4.7", simulate=True)
found = {}
prompts = numpy.array(["hi", "there"], dtype=object)
found["direct dict"] = [text[:11] for text in ready({"prompt": prompts})["text"]]
found["direct frame"] = [text[:11] for text in ready(pandas.DataFrame({"prompt": prompts}))["text"]]
found["direct table"] = [text[:11] for text in ready(pyarrow.table({"prompt": prompts}))["text"].to_pylist()]

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False

def first(items, fn=ready, **options):
    return ray.data.from_items(items).map_batches(fn, concurrency=1, **options).take_all()[0]

one = [{"prompt": "hi"}]
for format in ("default", "pandas", "pyarrow"):
    found[format] = [first(one, batch_format=format)["text"][:11]]
built = {"fn_constructor_args": ("glm-4.7",), "fn_constructor_kwargs": {"simulate": True}}
found["class"] = [first(one, fn=Model, **built)["text"][:11]]
messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]
found["messages"] = [first([{"messages": messages}])["text"][:11]]
found["messages as JSON"] = [first([{"messages": json.dumps(messages)}])["text"][:11]]
found["no messages"] = first([{"messages": []}])["error"]["type"]
filled = Model("glm-4.7", simulate=True, prompt="Say: {text}", prefix="answer_")
found["filled"] = [first([{"text": "Hallo"}], fn=filled)["answer_text"][:11]]
try:
    first([{"text": "Hallo"}], fn=Model("glm-4.7", simulate=True, prompt="Say: {text}"))
except Exception as error:
    found["collision"] = "a column text already" in str(error.__cause__) + str(error)
sys.stdout.write("RESULT " + json.dumps(found) + "\\n")
"""


def test_every_form_is_taken() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("RESULT "))[7:])
    assert found.pop("no messages") == "BadRow"
    assert found.pop("collision") is True
    assert len(found) == 10
    for form, texts in found.items():
        assert set(texts) == {"(Simulated "}, form
