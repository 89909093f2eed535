"""Models that take over."""

import cnllm

client = cnllm.Client(simulate=True)
client.call("glm-4.7", "Hi", fallback=["kimi-k2.6", "deepseek-flash"])
client.call("glm-4.7", "Hi", fallback=("kimi-k2.6",))
client.call("glm-4.7", "Hi", fallback=cnllm.Fallback(targets=("kimi-k2.6",), first_token=3))
cnllm.Client(fallback=cnllm.Fallback(targets=("kimi-k2.6",)))
