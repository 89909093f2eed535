"""The short forms of messages."""

import cnllm

picture = cnllm.Media("image/png", "aGk=")
history = [
    cnllm.Message.system("Be brief."),
    cnllm.Message.user(["What is this?", picture]),
    cnllm.Message.assistant([cnllm.Reasoning("hm"), cnllm.Text("A cat."), cnllm.ToolCall("1", "look", {})]),
    cnllm.Message.tool("1", "found", name="look"),
    cnllm.Message.tool("2", ["no", picture], error=True),
    cnllm.Message.user({"type": "text", "text": "And?"}),
    cnllm.Message("user", "And?"),
    cnllm.Message("user", [cnllm.Text("And?")], name="me"),
    cnllm.Message(role="user", parts=(cnllm.Text("And?"),)),
]
for message in history:
    print(message.role, message.text, message.reasoning, message.tool_calls, len(message.parts))
    for part in message.parts:
        if isinstance(part, cnllm.Text | cnllm.Reasoning):
            print(part.text)
reply = cnllm.call("glm-4.7", history)
history.append(reply.message)
print(cnllm.Message.from_dict(reply.message.to_dict()).by)
