"""Simulate the vendors' batch interfaces, by the flags of `batch`.

`find_step` tells which step of an interface a request is: upload, submit, poll, list, results, cancel or file.
`answer_step` answers it. `BatchStore` holds the files and jobs of one server. The rows of a job are checked and
answered as single requests are. `faults` lists what a test may ask of a job.
"""

from cnllm.simulator.batch.answer import BatchRequest, answer_step
from cnllm.simulator.batch.steps import Step, find_step, interfaces
from cnllm.simulator.batch.store import BatchStore

__all__ = ["BatchRequest", "BatchStore", "Step", "answer_step", "find_step", "interfaces"]
