"""The engine without a client."""

from cnllm import Registry, engine

model = Registry.load().resolve("glm-4.7")
plan = engine.build_request(model, "Hi", stream=True, temperature=0.5)
parser = engine.StreamParser(model, plan=plan)
for event in [*parser.feed(b"data: {}"), *parser.end()]:
    print(event)
print(parser.close().text)
print(engine.parse_response(model, 200, {}, b"{}").text)
