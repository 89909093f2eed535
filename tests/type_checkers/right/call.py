"""A call, and what is in its reply."""

import cnllm

reply = cnllm.call("glm-4.7", "Why is the sky blue?", reasoning="high", temperature=0.5, max_tokens=500)
print(reply.text, reply.reasoning, reply.finish, reply.usage.input, reply.model, reply.id)
if reply.cost is not None:
    print(reply.cost.amount, reply.cost.currency)
for note in reply.notes:
    print(note, note.code, note.where)
if reply.finish == "length":
    print(reply.incomplete)
