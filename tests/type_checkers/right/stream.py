"""A stream and its events."""

import cnllm

client = cnllm.Client(simulate=True)
with client.stream("glm-4.7", "Hi", by="sentence") as stream:
    for event in stream:
        match event:
            case cnllm.TextDelta(text):
                print(text)
            case cnllm.ReasoningDelta():
                print(event.text)
            case cnllm.ToolCallEnd(index, call):
                print(index, call.name, call.arguments)
            case cnllm.Finished(finish):
                print(finish)
            case _:
                pass
    print(stream.reply.text, stream.plan.notes)
