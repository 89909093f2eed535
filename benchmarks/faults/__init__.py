"""Compare how clients handle answers that go wrong: `python -m benchmarks faults` writes RESULTS.md beside this file.

Every client gets the same bytes from a server on loopback: streamed chat completions, in a process of its own, used as
its documentation says. Its own retries are off, every wait is set to 2 seconds where it has a setting for that, and the
size of a reply to 32 MB where it has one (cnllm alone has). A first call that goes well is not counted: some load much
with it. Where a client puts a stream together itself, it does; where it hands out chunks, they are put together as in
its examples:

    cnllm, cnllm[fast]   `client.stream`, its events read, then `stream.reply`
    openai               `client.chat.completions.stream`, its events read, then `get_final_completion()`; the functions
                         are strict, as it demands there, and it reads their arguments itself
    litellm              `completion(stream=True)`, then `stream_chunk_builder(chunks)`
    pydantic-ai          `direct.model_request_stream_sync`, its events read, then `response`
    any-llm              `completion(stream=True)`, chunks put together (it has nothing for that); its own exceptions
                         are switched on, as its documents tell how

What came of it is one of these, the first that holds:

    hang          nothing for 15 seconds; the process was killed
    untyped       an exception that is none of the client's own: ValueError, httpx.ReadError, …
    error         one of the client's own exceptions
    told          a result, with a field of the client's that says that it is not whole: a finish reason that is None,
                  as OpenAI's is until the end, or `state` in pydantic-ai
    lie           a result that says nothing of the kind, though the answer had not come to its end
    whole         a result, and the answer is whole

An answer has come to its end with the chunk that holds its `finish_reason`; cuts are made before that. Beside it:

    call          a result was handed out, without an exception, whose tool calls hold one with arguments that are not
                  what the model was saying: the rest of them was cut off. Counted whatever the result's fields say:
                  the call stands where calls to execute stand. (Where they are no JSON, a careful caller notices.)
    MB            what the process grew by, where that is more than 300 MB
"""
