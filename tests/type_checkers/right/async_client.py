"""The async client."""

import asyncio

import cnllm


async def main() -> None:
    """Call, stream and run."""
    async with cnllm.AsyncClient(simulate=True) as client:
        reply = await client.call("glm-4.7", "Hi", reasoning="low")
        print(reply.text)
        async with client.stream("glm-4.7", "Hi") as stream:
            async for event in stream:
                print(event)
        print(stream.reply.text)
        run = await client.run("glm-4.7", "Hi", tools=[], max_steps=3)
        print(run.stopped, run.reply.text)
        async with client.run_stream("glm-4.7", "Hi", max_steps=3) as again:
            async for event in again:
                print(event)
        print(again.stopped)
        replies = await asyncio.gather(client.call("glm-4.7", "a"), client.call("glm-4.7", "b"))
        print([one.text for one in replies])


asyncio.run(main())
