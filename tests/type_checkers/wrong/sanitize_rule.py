"""A rule of sanitize does not exist."""

import cnllm

cnllm.sanitize("glm-4.7", "Hi", recover_text_calls="remove")  # type: ignore  # refused
