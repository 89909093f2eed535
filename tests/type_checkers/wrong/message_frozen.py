"""A message cannot be changed."""

import cnllm

message = cnllm.Message.user("Hi")
message.role = "system"  # type: ignore  # refused
