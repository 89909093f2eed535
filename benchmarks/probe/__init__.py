"""Count the facts that a probe finds at an endpoint that it does not know: `python -m benchmarks probe`.

The endpoint is the simulator with `--strict --neutral`, over a real socket: it serves one model as model-1, and its
paths, names and errors do not say which. The probe is `cnllm.probe.run`, with 60 and with 200 requests. Models are
drawn anew from `providers.toml` for each `--seed`; all four wires are among them.

A flag of a model *shows* if another value of it changes an answer of the simulator to some request. The requests are
those of `requests.py`: turns, roles, contents, tools, choices, schemas, the parameters and the switches of reasoning
that any endpoint of the registry has, and numbers next to the model's own limits. The other values are: none at all,
each other word of a flag that has a list of words, the other boolean, a number beside it, a list without one of its
items. A prompt as long as a window is not among the requests, so `limits.context` never shows.

A fact of the probe is

- `recovered`: it is the registry's value, or the simulator gives the same answers with either; of the names of fields
  with reasoning the first is enough, because that is the one that is sent,
- `another`: a patch for reasoning that the registry does not have, and that does the same,
- `default`: the probe says nothing, and what cnllm assumes of any endpoint of the wire is right,
- `wrong`: with it the simulator would answer some request otherwise,
- `missed`: the probe says nothing or "unknown", and what cnllm assumes is not right.

Two figures follow. The first counts the flags that *differ*: with what is assumed of any endpoint of the wire in their
place, the simulator would answer some request otherwise. The second counts all that show, "as assumed" too; `--quick`
leaves it out, because it takes most of the time.

`--invented N` makes up N endpoints (60 where N is left out): any combination of the flags that the schema allows and
the simulator speaks. The probe gets a registry without them. A flag with a name that stands neither in that registry
nor in any answer cannot be found; such flags are counted apart, and so are those that show beside such a switch alone.
At 200 requests 95 % of what differs is to be found, at 60 requests 70 %, and nothing wrong at either; a run is to end
within an hour on two cores that nobody else uses.

A fact about a flag that the registry leaves out is judged in the same way: wrong if it changes an answer.
"""
