"""Serve one model file with llama.cpp, twice, and print the two addresses as JSON.

The first server reads reasoning and tool calls out of the text, the second one leaves them in. Both end with stdin.
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def serve(model: str, *, plain: bool) -> xllamacpp.Server:
    """Start a server on a free port of 127.0.0.1; `plain`: what the model writes is not parsed."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.n_predict = 8192, 2, 200
    params.n_gpu_layers, params.n_threads_http, params.cpuparams.n_threads = 0, 2, 1
    params.model_alias = ["tiny"]
    params.warmup, params.use_jinja, params.offline, params.verbosity = False, True, True, 1
    params.force_pure_content_parser = plain
    return xllamacpp.Server(params)


if __name__ == "__main__":
    servers = [serve(sys.argv[1], plain=plain) for plain in (False, True)]
    sys.stdout.write(json.dumps([server.listening_address for server in servers]) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
