"""The words of results are literals."""

import cnllm

client = cnllm.Client(simulate=True)


def finished(reply: cnllm.Reply) -> cnllm.Finish:
    """Return why the reply ended."""
    return reply.finish


def why(run: cnllm.Run) -> cnllm.Stopped | None:
    """Return why the run ended."""
    return run.stopped


def codes(reply: cnllm.Reply) -> set[cnllm.NoteCode]:
    """Return the codes of its notes."""
    return {note.code for note in reply.notes}


reply = client.call("glm-4.7", "Hi")
role: cnllm.Role = reply.message.role
print(finished(reply) == "stop", "param-dropped" in codes(reply), role == "assistant", why(client.run("glm-4.7", "Hi")))
