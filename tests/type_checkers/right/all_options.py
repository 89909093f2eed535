"""Every option of a call."""

import pydantic

import cnllm


class City(pydantic.BaseModel):
    """A city."""

    name: str


client = cnllm.Client(simulate=True)
reply = client.call(
    "glm-4.7",
    "Hi",
    system="Be brief.",
    reasoning=2000,
    tools=[{"name": "look_up"}],
    tool_choice="auto",
    parallel_tool_calls=False,
    temperature=1,
    top_p=0.9,
    max_tokens=100,
    stop=["END"],
    seed=3,
    top_k=40,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    logit_bias={"50256": -100},
    logprobs=True,
    top_logprobs=3,
    reasoning_effort="low",
    params={"min_p": 0.1},
    schema=City,
    corrections=1,
    recover_text_calls="recover",
    if_cut="again-whole",
    recovery=cnllm.Recovery(steps=3),
    on_unsupported="adjust",
    prefill=False,
    pdf_text=True,
    extra_body={"user": "me"},
    extra_headers={"x-trace": "1"},
    timeout=30,
    limits=cnllm.Limits(),
    api_key="key",
    fallback=["kimi-k2.6"],
)
print(reply.parsed)
