"""The registry and its models."""

import cnllm

registry = cnllm.Registry.load()
model = registry.resolve("glm-4.7")
print(model.id, model.provider, model.protocol)
for fact in model.explain():
    print(fact.flag, fact.value, fact.where)
client = cnllm.Client(registry)
print(client.call(model, "Hi").text)
plan = client.plan(model, "Hi", stream=True)
print(plan.method, plan.url, plan.headers, plan.body, [note.flag for note in plan.notes])
