"""A role has a typing error."""

import cnllm

cnllm.Message(role="usr", parts=[cnllm.Text("Hi")])  # type: ignore  # refused
