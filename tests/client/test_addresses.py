"""Requests that cannot be sent: the address or a header is wrong. Nothing is retried, and no key is shown."""

import traceback

import pytest
from cases import each

import cnllm

from .conftest import Make
from .peer import Peer, reply
from .support import QUICK, at, registry

KEYS = {
    "a line break": "sk-0123456789\nabc",
    "a space after it": "sk-0123456789 ",
    "a zero byte": "sk-0123456789\x00",
    "letters of another script": "sk-密钥0123456789",
    "wide letters": "ｓｋ-0123456789",
}


@each("case", KEYS)
def test_a_key_that_no_header_can_carry(make: Make, case: str) -> None:
    key = KEYS[case]
    with Peer([reply()]) as peer, pytest.raises(cnllm.TransportError) as caught:
        make(retry=QUICK).call(at(peer), api_key=key)
    error = caught.value
    assert (error.retryable, peer.received) == (False, [])
    assert "header" in error.message
    assert "key" in str(error.hint)
    shown = "".join(traceback.format_exception(error)) + repr(vars(error))
    for spelling in (key, key.strip(), repr(key)[1:-1]):
        assert spelling not in shown


@each(
    "headers",
    [
        {"x-mine": "é\n"},
        {"x-mine": "天"},
        {"x mine": "a"},
        {"x-mine": "a\r\nx: b"},
        {"x-mine": "a\nx\0b"},
        {"x-mine": "a\0b"},
        {"x-mine\0a\nx": "b"},
    ],
)
def test_a_header_that_cannot_be_one(make: Make, headers: dict[str, str]) -> None:
    with Peer([reply()]) as peer, pytest.raises(cnllm.TransportError, match="header") as caught:
        make(retry=QUICK).call(at(peer), extra_headers=headers)
    assert (caught.value.retryable, peer.received) == (False, [])


@each("address", ["ftp://x/v1", "x", "/v1", "http://[::1", "http://x:port/v1"])
def test_an_address_that_is_none_is_refused_before_anything_is_sent(make: Make, address: str) -> None:
    model = registry().resolve("openai-compatible/m", base_url=address)
    with pytest.raises(cnllm.CannotSend) as caught:
        make(retry=cnllm.Retry(attempts=2, base=0.0)).call(model)
    assert address in caught.value.message
    assert caught.value.note.flag == "base_url"


def test_a_name_that_is_no_hosts(make: Make) -> None:
    model = registry().resolve("openai-compatible/m", base_url=f"http://{'a' * 70}.example/v1")
    with pytest.raises(cnllm.TransportError, match="aaaa"):
        make(retry=cnllm.Retry(attempts=2, base=0.0)).call(model)


def test_an_address_with_spaces_and_letters_of_any_script(make: Make) -> None:
    with Peer([reply()]) as peer:
        model = registry().resolve("openai-compatible/m", base_url=f"{peer.url}/天 1")
        assert make().call(model).text == "The sky is blue."
    assert peer.received[0].line.split()[1] == "/v1/%E5%A4%A9%201/chat/completions"
