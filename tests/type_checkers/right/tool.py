"""A tool is called like its function."""

import cnllm


@cnllm.tool
def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"{city}: {days}"


print(weather("Bern", days=3).upper())
print(weather.name, weather.description, weather.parameters)
run = cnllm.run("glm-4.7", "How warm is it in Bern?", tools=[weather])
print(run.reply.text, run.stopped == "done")
