"""Compare each wire with its copy. A program of its own: it runs in a copy of the package."""

from __future__ import annotations

import json
import sys
from typing import Any

from cnllm import Client, Registry, engine
from cnllm.registry.model import Model
from cnllm.simulator.batch import BatchStore
from cnllm.simulator.respond import Endpoints
from cnllm.simulator.routes import ServedModels, route

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
CASES: list[dict[str, Any]] = [{}, {"tools": [TOOL]}, {"tools": [TOOL], "reasoning": "high"}]


def compare(registry: Registry, protocol: str) -> None:
    """Fail unless the copy of a wire behaves as the wire itself: called, streamed, served, decoded, encoded."""
    copied = f"copied-{protocol}"
    first, second = registry.resolve(f"first-{protocol}/m"), registry.resolve(f"second-{protocol}/m")
    assert (first.protocol, second.protocol) == (protocol, copied)
    client = Client(registry, simulate=True)
    for options in CASES:
        calls = bool(options.get("tools"))
        for model in (first, second):
            reply = client.call(model.name, "Look at Kiel.", **options)
            assert bool(reply.tool_calls) == calls, reply
            assert reply.text or calls
            if not calls and protocol != "openai-chat":
                assert any(getattr(part, "seal", None) for part in reply.message.parts), reply
            events = list(client.stream(model.name, "Look at Kiel.", **options))
            assert type(events[-1]).__name__ == "Finished", events
            if calls:  # the turn, with its seals, goes back
                result = {"role": "tool", "tool_call_id": reply.tool_calls[0].id, "content": "sea"}
                history: list[Any] = ["Look at Kiel.", reply.message, result]
                assert client.call(model.name, history, **options).message.parts
        ours, theirs = (served(registry, model, options) for model in (first, second))
        assert ours == theirs, (ours, theirs)


def served(registry: Registry, model: Model, options: dict[str, Any]) -> list[Any]:
    """Return what a server makes of a request: on the provider's path and on a shared one."""
    plan = engine.build_request(model, ["Look at Kiel."], **options)
    out: list[Any] = [plan.body]
    path = "/" + plan.url.split("/base/")[1]
    shared = path.partition("?")[0].replace("/models/m:", f"/v1/models/{model.provider}%2Fm:")
    shared = f"/copied{shared}" if model.protocol.startswith("copied-") else shared
    body = json.dumps({**plan.body, "model": model.name} if "model" in plan.body else plan.body).encode()
    for target, content in ((f"/{model.provider}{path}", plan.content), (shared, body)):
        response = route(ServedModels(Endpoints(registry), BatchStore(registry)), "POST", target, plan.headers, content)
        text = b"".join(response.pieces)
        assert response.status == 200, (target, text)
        out.append(sorted(json.loads(text)))
        reply = engine.parse_response(model, 200, response.headers, text)
        out += [reply.text, reply.reasoning, [call.name for call in reply.tool_calls], reply.finish]
        encoded = engine.encode_reply(model.protocol, reply, request=plan.body)
        again = engine.parse_response(model, 200, response.headers, json.dumps(encoded).encode())
        assert (again.text, again.finish) == (reply.text, reply.finish)
    wrong = route(
        ServedModels(Endpoints(registry), BatchStore(registry)), "POST", f"/nowhere{shared}", plan.headers, b"{}"
    )
    out += [wrong.status, shape(json.loads(b"".join(wrong.pieces)))]
    request = engine.decode_request(model.protocol, plan.body, path=path, origin=model)
    return [*out, request.options, [message.text for message in request.messages]]


def shape(value: Any) -> Any:
    """Return the keys of nested objects."""
    return {key: shape(inner) for key, inner in value.items()} if isinstance(value, dict) else None


if __name__ == "__main__":
    loaded = Registry.load(sys.argv[1])
    for name in sys.argv[2:]:
        compare(loaded, name)
        sys.stdout.write(f"{name}\n")
