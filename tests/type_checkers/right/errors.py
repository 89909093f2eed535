"""Errors and what is in them."""

import cnllm

client = cnllm.Client(simulate=True)
try:
    client.call("glm-4.7", "Hi")
except cnllm.RateLimited as error:
    print(error.retry_after, error.status, error.code)
except cnllm.KeyMissing as error:
    print(error.env)
except cnllm.StreamCut as error:
    if error.reply is not None:
        print(error.reply.text)
except cnllm.CnllmError as error:
    print(error.message, error.hint, error.reply)
