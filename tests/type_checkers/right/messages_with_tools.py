"""A history with calls and their results, as dicts."""

import cnllm

client = cnllm.Client(simulate=True)
client.call(
    "glm-4.7",
    [
        {"role": "user", "content": "How warm is it?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "21"},
    ],
)
