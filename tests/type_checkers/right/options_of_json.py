"""Options of any type, as they come from a file."""

import json
from typing import Any

import cnllm

options: dict[str, Any] = json.loads('{"temperature": 0.5}')
print(cnllm.call("glm-4.7", "Hi", **options).text)
with cnllm.stream("glm-4.7", "Hi", **options) as stream:
    print(stream.reply.text)
print(cnllm.run("glm-4.7", "Hi", **options).stopped)
