"""An option of fit has a typing error."""

import cnllm

cnllm.fit("glm-4.7", "Hi", reasonning="low")  # type: ignore  # refused
