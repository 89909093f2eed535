"""Serve one model file with llama.cpp, twice and twice more for each forced answer, and print the addresses as JSON.

The first server of a pair reads reasoning and tool calls out of the text, the second one leaves them in. All end with
stdin. An answer is forced by a grammar of the server's own, because not every wire takes one in a request.
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def serve(model: str, answer: str, *, plain: bool) -> xllamacpp.Server:
    """Start a server on a free port of 127.0.0.1; `plain`: what the model writes is not parsed.

    `answer` is all that the model can write where no tool is offered; it is free where it is empty.
    """
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.n_predict = 8192, 2, 200
    params.n_gpu_layers, params.n_threads_http, params.cpuparams.n_threads = 0, 2, 1
    params.model_alias = ["tiny"]
    params.warmup, params.use_jinja, params.offline, params.verbosity = False, True, True, 1
    params.force_pure_content_parser = plain
    if answer:
        kind = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
        params.sampling.grammar = xllamacpp.CommonGrammar(kind, f"root ::= {json.dumps(answer)}")
    return xllamacpp.Server(params)


if __name__ == "__main__":
    model, *answers = sys.argv[1:]
    pairs = [[serve(model, answer, plain=plain) for plain in (False, True)] for answer in ("", *answers)]
    sys.stdout.write(json.dumps([[server.listening_address for server in pair] for pair in pairs]) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
