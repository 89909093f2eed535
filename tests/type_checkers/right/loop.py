"""A tool loop with its callbacks."""

import cnllm


@cnllm.tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"{city}: {days}"


def approve(call: cnllm.ToolCall) -> bool | str:
    """Return the reason for no."""
    return call.name == "weather" or "weather only"


async def approve_later(call: cnllm.ToolCall) -> bool:
    """Whether it may run."""
    return bool(call.arguments)


def show(step: cnllm.Step) -> None:
    """Print it."""
    print(step.number, step.called, [result.text for result in step.results], step.reply.text)


client = cnllm.Client(simulate=True)
try:
    run = client.run("glm-4.7", "Hi", tools=[weather], max_steps=5, approve=approve, on_step=show, tool_timeout=3)
    if run.stopped == "max_steps" or run.stopped == "repeated":
        print("not done")
except cnllm.LoopStopped as error:
    print(error.message, error.hint)
with client.run_stream("glm-4.7", "Hi", tools=[weather], approve=approve_later, on_step=print, by="sentence") as again:
    for event in again:
        print(event)
    again.cancel()
print(again.stopped, again.usage.total, again.messages[-1].text)
