"""Simulate the vendors' batch interfaces, by the flags of `batch`.

`BatchStore` holds the files and jobs of one server; its `find_step` tells which step of an interface a request is:
upload, submit, poll, list, results, cancel or file. `answer_step` answers it. The rows of a job are checked and
answered as single requests are. `cnllm.simulator.faults` lists what a test may ask of a job.
"""

from cnllm.simulator.batch.answer import answer_step
from cnllm.simulator.batch.store import BatchRequest, BatchStep, BatchStore

__all__ = ["BatchRequest", "BatchStep", "BatchStore", "answer_step"]
