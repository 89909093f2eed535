"""The peers: the name in the tables, the module that runs each, and the environment in which it is installed."""

from typing import NamedTuple

SECOND = "cnllm over httpx2"
RAW, FAST, CNLLM, HAND = "raw socket + orjson", "cnllm[fast]", "cnllm over httpx", "httpx + orjson by hand"
STDLIB = "http.client + json by hand"
HTTP_CLIENT, AIOHTTP = "http.client + orjson by hand", "aiohttp + orjson by hand"
OPENAI, ANTHROPIC, GENAI = "openai SDK", "anthropic SDK", "google-genai SDK"
LITELLM, PYDANTIC_AI, ANY_LLM = "litellm", "pydantic-ai", "any-llm"
ENGINE, PLAN = "cnllm", "cnllm, Client.plan"  # no transport takes part
OFF = "cnllm, calls in text not looked for"
BARE, TYPED = "split + orjson, nothing kept", "split + msgspec typed, nothing kept"
READY, CODEC = "orjson.dumps of the ready body", "orjson.dumps and loads of the same bodies"
RAW_GATEWAY, DIRECT = "raw asyncio gateway", "the stub without a gateway"
CNLLM_SERVE, CNLLM_SQLITE = "cnllm serve", "cnllm serve, sqlite"
CNLLM_BATCH = "cnllm batch"
PORTKEY, LITELLM_PROXY = "Portkey", "LiteLLM proxy"
KEPT, ANEW, PYDANTIC = "jsonschema, validator kept", "jsonschema.validate each time", "pydantic, a model by hand"


class Peer(NamedTuple):
    """The way to run a peer."""

    runner: str  # the module in runners/
    env: str = "base"
    transport: str = "httpx"  # of cnllm
    variant: str = ""  # of a task: another function of the runner


PEERS = {
    RAW: Peer("raw"),
    FAST: Peer("cnllm_client", transport="fast"),
    CNLLM: Peer("cnllm_client"),
    SECOND: Peer("cnllm_client", transport="httpx2"),
    HAND: Peer("by_hand"),
    HTTP_CLIENT: Peer("stdlib"),
    AIOHTTP: Peer("aiohttp_by_hand"),
    OPENAI: Peer("openai_sdk", "openai"),
    PYDANTIC_AI: Peer("pydantic_ai_sdk", "pydantic-ai"),
    ANY_LLM: Peer("any_llm_sdk", "any-llm"),
    LITELLM: Peer("litellm_sdk", "litellm"),
    ANTHROPIC: Peer("anthropic_sdk", "anthropic"),
    GENAI: Peer("genai_sdk", "google-genai"),
    ENGINE: Peer("cnllm_client"),
    PLAN: Peer("cnllm_client", variant="_plan"),
    OFF: Peer("cnllm_client", variant="_off"),
    BARE: Peer("bare"),
    TYPED: Peer("bare", variant="_typed"),
    READY: Peer("bare"),
    CODEC: Peer("bare"),
    KEPT: Peer("validators"),
    ANEW: Peer("validators", variant="_anew"),
    PYDANTIC: Peer("validators", variant="_pydantic"),
}

MAIN = (RAW, FAST, CNLLM, SECOND, HAND, OPENAI)
"""Measured in every case that they can take part in."""

FRAMEWORKS = (PYDANTIC_AI, ANY_LLM, LITELLM)
"""Over the same wire; slow to start, so a quick run leaves them out of some cases, and says so."""

VENDORS = {"anthropic-messages": ANTHROPIC, "gemini": GENAI, "openai-responses": OPENAI}
"""Whose SDK speaks each of the other wires."""
