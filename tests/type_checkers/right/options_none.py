"""An option that is None is left out."""

import cnllm

client = cnllm.Client(simulate=True)
client.call(
    "glm-4.7", "Hi", reasoning=None, tools=None, temperature=None, schema=None, timeout=None, system=None, stop=None
)
client.run("glm-4.7", "Hi", tools=None, max_repeats=None, tool_timeout=None, approve=None, on_step=None)
