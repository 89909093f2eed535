"""Text of a model, split."""

import cnllm

found = cnllm.sanitize("glm-4.7", "<think>hm</think>Hi", tools=[{"name": "look_up"}])
print(found.text, found.reasoning, found.tool_calls, found.notes)
filter_ = cnllm.Sanitizer("glm-4.7", lang="en")
print(filter_.feed("Hi"), filter_.close().rest)
fitted = cnllm.fit("glm-4.7", "Hi", tools=[])
print(fitted.messages, fitted.notes)
