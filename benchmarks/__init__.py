"""cnllm beside its limit and its peers, on a loopback stub, in one run: `python -m benchmarks`.

`python -m benchmarks setup` first makes `.bench-venv`. Nothing here is imported by the package, nothing
is a test, and nothing measured leaves 127.0.0.1. Compare ratios, never absolute figures.
"""
