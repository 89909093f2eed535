"""litellm for an OpenAI-compatible endpoint, with its local price list (else it fetches one)."""

import importlib
import os
from collections.abc import Callable
from typing import Any

from benchmarks import payloads
from benchmarks.payloads import Got, Setting
from benchmarks.runners.openai_sdk import streamed, whole

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
litellm: Any = importlib.import_module("litellm")


def _complete(setting: Setting, stream: bool) -> Any:
    to = {"model": "openai/bench", "api_base": setting.base_url, "api_key": payloads.KEY}
    return litellm.completion(**{**payloads.body(stream), **to})


def call(setting: Setting) -> Callable[[], Got]:
    return lambda: whole(_complete(setting, False))


def stream(setting: Setting) -> Callable[[], Got]:
    return lambda: streamed(_complete(setting, True))
