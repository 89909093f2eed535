"""The result of a tool needs the id of its call."""

import cnllm

cnllm.Message.tool("21 degrees")  # type: ignore  # refused
