"""An argument of a client has a typing error."""

import cnllm

cnllm.Client(simulated=True)  # type: ignore  # refused
