"""An option of a verb without a client has a typing error."""

import cnllm

cnllm.call("glm-4.7", "Hi", max_token=100)  # type: ignore  # refused
