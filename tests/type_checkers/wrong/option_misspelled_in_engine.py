"""An option of the engine has a typing error."""

from cnllm import Registry, engine

model = Registry.load().resolve("glm-4.7")
engine.build_request(model, "Hi", sead=3)  # type: ignore  # refused
