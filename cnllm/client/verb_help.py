"""Add the options of a verb to its docstring, so that `help(Client.call)` lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["with_options", "with_run_options"]

Verb = TypeVar("Verb", bound=Callable[..., Any])


def with_options(verb: Verb) -> Verb:
    """Add the options of a call to a verb's docstring."""
    return _add(verb, CALL_OPTIONS)


def with_run_options(verb: Verb) -> Verb:
    """Add the options of a tool loop and of a call to a verb's docstring."""
    return _add(verb, f"{LOOP_OPTIONS}\n\n{CALL_OPTIONS}")


def _add(verb: Verb, text: str) -> Verb:
    if verb.__doc__ is not None:  # `python -OO` has no docstrings
        verb.__doc__ = f"{inspect.cleandoc(verb.__doc__)}\n\n{text}"
    return verb


# ── the options, written by `python -m docs.generate` from `call_options.py` ──

CALL_OPTIONS = """\
Options, each a keyword that may be left out:

  system: a system message that goes before the messages, which are not changed
  reasoning: whether and how much the model reasons: "off", "on", a level from "minimal" to
      "max", or a number of tokens; left out: the endpoint's default, unless the model's call
      table has another
  tools: functions, plain or under @cnllm.tool, the tools of MCP servers (cnllm.mcp), or
      definitions: OpenAI's, bare ones (name, description, parameters), or MCP's
  tool_choice: "auto", "none", "required", or a tool's name; the objects of the chat and
      messages wires are understood
  parallel_tool_calls: whether the model may call several tools in one reply
  temperature: how freely the model samples; clamped or left out with a note
  top_p: the share of probability it samples from; clamped or left out with a note
  max_tokens: the most tokens of the reply, under the name that the endpoint uses
  stop: a text that ends the reply, or a list of them
  seed: makes sampling repeatable, where the endpoint can
  top_k: the number of tokens it samples from
  presence_penalty: makes tokens that have occurred less likely
  frequency_penalty: makes tokens less likely each time they occur
  logit_bias: the bias of each token
  logprobs: whether the endpoint reports log probabilities; they are in reply.extra as logprobs
  top_logprobs: the number of likeliest tokens in them
  reasoning_effort: the endpoint's own word for how much the model reasons, where its registry
      entry names this parameter; reasoning works everywhere
  params: parameters by name, the endpoint's own too: they follow the registry's rules, a typing
      error and what the call sets itself (model, messages, stream) are refused, and one that
      nothing is known of is sent with a note
  corrections: how often an answer that is not valid is sent back; left out: once, and never for
      a stream
  recover_text_calls: what happens to tool calls that the model wrote as text; left out: as the
      registry says
  if_cut: what happens to a stream that was cut: raise StreamCut, ask again without streaming,
      or keep what came; left out: as the registry says
  recovery: what is tried where a reply breaks off; what is left out of it is as the registry
      says (recovery.*)
  on_unsupported: how to treat a value that the endpoint does not take: adjust it with a note
      (the default), raise CannotSend, or send it as it is
  prefill: the last message is the beginning of the reply, for the model to go on from
  pdf_text: whether the text of a PDF is sent to a model that reads no PDFs (extra pdf)
  extra_body: merged into the body last, verbatim, whatever the endpoint takes; a note says what
      it refuses, or what of the call's own it replaces
  extra_headers: further headers, verbatim
  timeout: seconds, or Timeouts(connect=, first_byte=, idle=, progress=) in seconds each
  limits: how many bytes of a reply are taken: Limits(max_reply_bytes=, max_event_bytes=); 128
      MiB and 64 MiB
  api_key: this key, wherever the call goes; left out: the environment, or the keys file
  tag: a name by which cnllm logs cost groups calls, of up to 100 printable characters; it is
      never sent
  fallback: the models that take over where the first one fails: a list of names, or a Fallback
      with further rules; an empty list switches the client's off
  schema: what the answer follows, as reply.parsed: a pydantic model, a dataclass, another type
      of Python, or a JSON Schema"""

LOOP_OPTIONS = """\
Options of the tool loop:

  max_steps: the most calls of the model
  max_repeats: how many times the same calls may give the same results, one step after the other
      or in circles of up to recovery.cycle steps; at least 2, None for no limit
  max_parallel: the most tools that run at a time
  tool_timeout: seconds for a tool without a timeout of its own; None for no limit
  approve: called before a tool runs: approve(call) → True, False, or the reason for no, in
      words
  on_step: called after each step: .calls, .results, .called, .returned, .seconds, .reply,
      .notes, and .run on the last one"""
