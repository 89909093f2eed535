"""A client with all its settings."""

import cnllm

with cnllm.Client(
    simulate=True,
    api_key="key",
    timeout=cnllm.Timeouts(idle=10),
    retry=cnllm.Retry(attempts=2),
    limits=cnllm.Limits(max_reply_bytes=1_000_000),
    on_event=print,
    raw_log=False,
    fallback=["kimi-k2.6"],
) as client:
    print(client.call("glm-4.7", "Hi").text)
