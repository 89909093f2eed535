"""Transports of the caller's own: any object with `send(plan)`, or one of httpx's."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import httpx
import pytest
from cases import each

import cnllm
from cnllm import AsyncClient, Client, Plan, Retry, TransportError

from .conftest import Make
from .peer import DONE, delta, failure, said, texts, usage, whole
from .support import Backend, Driver, drained, folds, registry

KEY = "sk-for-the-transport-alone-0123456789"
Answer = tuple[int, dict[str, str], list[bytes | Exception]]
WHOLE: Answer = (200, {"content-type": "application/json"}, [whole()])
STREAM: Answer = (200, {"content-type": "text/event-stream"}, [*said("The sky", " is blue.")])


def model() -> cnllm.Model:
    return registry().resolve("deepseek/deepseek-flash")


class Body:
    """An iterator of either kind, which remembers that it was closed."""

    def __init__(self, pieces: list[bytes | Exception]) -> None:
        self._pieces = iter(pieces)
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        if isinstance(piece, Exception):
            raise piece
        return piece

    async def __anext__(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        try:
            return self.__next__()
        except StopIteration:
            raise StopAsyncIteration from None

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Scripted:
    """Gives one answer after the other, the last one again, and keeps the plans it was handed."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = answers
        self.plans: list[Plan] = []
        self.bodies: list[Body] = []
        self.closed = False

    def send(self, plan: Plan) -> tuple[int, dict[str, str], Body]:
        answer = self.answers[min(len(self.plans), len(self.answers) - 1)]
        self.plans.append(plan)
        if isinstance(answer, Exception):
            raise answer
        status, headers, pieces = answer
        self.bodies.append(Body(pieces))
        return status, headers, self.bodies[-1]

    def close(self) -> None:
        self.closed = True


class AsyncScripted(Scripted):
    async def send(self, plan: Plan) -> tuple[int, dict[str, str], Body]:  # type: ignore[override]
        return super().send(plan)

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def scripted(backend: Backend) -> type[Scripted]:
    return Scripted if backend == "sync" else AsyncScripted


def test_an_object_that_sends_is_a_transport(make: Make, scripted: type[Scripted]) -> None:
    transport = scripted(WHOLE, STREAM)
    client = make(transport=transport, api_key=KEY)
    assert client.call(model()).text == "The sky is blue."
    events, got = drained(client.stream(model()))
    assert got.text == "The sky is blue."
    folds(events, got)
    assert [body.closed for body in transport.bodies] == [True, True]
    client.close()
    assert transport.closed


def test_the_key_is_in_what_is_sent_and_in_no_plan(make: Make, scripted: type[Scripted]) -> None:
    transport = scripted(STREAM)
    client = make(transport=transport, api_key=KEY)
    shown = client.plan(model())
    with client.stream(model()) as streamed:
        list(streamed)
    kept = streamed._stream.plan
    sent = transport.plans[0]
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert shown.headers["authorization"] == kept.headers["authorization"] == "Bearer {key}"
    for plan in (shown, kept):
        assert KEY not in f"{plan!r}{plan.headers}{plan.body}{plan.content!r}{plan.notes}{plan.url}"
    for text in (repr(sent), repr(client._client), sent.url, str(sent.body), str(sent.shown_headers())):
        assert KEY not in text


def test_a_key_of_the_call_goes_before_that_of_the_client(make: Make, scripted: type[Scripted]) -> None:
    transport = scripted(WHOLE)
    client = make(transport=transport, api_key="sk-of-the-client")
    client.call(model(), api_key=KEY)
    client.call(model())
    assert [plan.headers["authorization"][7:] for plan in transport.plans] == [KEY, "sk-of-the-client"]


def test_without_a_key_nothing_is_handed_over(make: Make, scripted: type[Scripted]) -> None:
    transport = scripted(WHOLE)
    with pytest.raises(cnllm.KeyMissing):
        make(transport=transport).call(model())
    assert transport.plans == []


@pytest.mark.parametrize("verb", ["call", "stream"])
def test_its_transport_errors_are_retried_as_any_others(make: Make, scripted: type[Scripted], verb: str) -> None:
    lost = TransportError("lost", retryable=True)
    transport = scripted(lost, lost, WHOLE if verb == "call" else STREAM)
    client = make(transport=transport, api_key=KEY, retry=Retry(attempts=3, base=0.0))
    got = client.call(model()) if verb == "call" else drained(client.stream(model()))[1]
    assert got.text == "The sky is blue."
    assert len(transport.plans) == 3
    transport = scripted(TransportError("gone"))
    with pytest.raises(TransportError, match="gone"):
        make(transport=transport, api_key=KEY).call(model())
    assert len(transport.plans) == 1


def test_an_error_while_the_body_is_read(make: Make, scripted: type[Scripted]) -> None:
    broken: Answer = (200, {}, [*texts("The sky"), TransportError("lost")])
    client = make(transport=scripted(broken), api_key=KEY)
    with pytest.raises(cnllm.StreamCut) as caught:
        drained(client.stream(model()))
    assert caught.value.reply is not None
    assert caught.value.reply.text == "The sky"
    with pytest.raises(TransportError, match="lost"):
        client.call(model())


def test_what_else_it_raises_is_its_own_affair_and_closes_the_body(make: Make, scripted: type[Scripted]) -> None:
    transport = scripted((200, {}, [*texts("The sky"), ZeroDivisionError()]))
    client = make(transport=transport, api_key=KEY)
    with pytest.raises(ZeroDivisionError):
        drained(client.stream(model()))
    assert transport.bodies[0].closed


def test_a_transport_that_has_no_more_answers_is_no_reply(backend: Backend) -> None:
    answers = iter([httpx.Response(200, content=whole("One."))])

    async def later(_: httpx.Request) -> httpx.Response:
        return next(answers)

    handler: Any = later if backend != "sync" else lambda _: next(answers)
    with Driver(backend, transport=httpx.MockTransport(handler), api_key=KEY) as client:
        assert client.call(model()).text == "One."
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            client.call(model())


def test_headers_may_be_spelled_in_any_case(make: Make, scripted: type[Scripted]) -> None:
    busy: Answer = (429, {"Retry-After": "86400"}, [failure("slow down")])
    with pytest.raises(cnllm.RateLimited) as caught:
        make(transport=scripted(busy), api_key=KEY).call(model())
    assert caught.value.retry_after == 86400


def test_a_plain_iterator_without_close_will_do() -> None:
    class Plain:
        def send(self, plan: Plan) -> tuple[int, dict[str, str], Iterator[bytes]]:
            return 200, {}, iter([*texts("The sky"), delta(finish="stop"), usage(), DONE])

    class Awaited:
        async def send(self, plan: Plan) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
            async def pieces() -> AsyncIterator[bytes]:
                for piece in said("The sky"):
                    yield piece

            return 200, {}, pieces()

    async def main() -> str:
        async with AsyncClient(registry(), Awaited(), api_key=KEY) as client:
            return (await client.call(model(), "hi")).text

    with Client(registry(), Plain(), api_key=KEY) as client:
        assert client.call(model(), "hi").text == "The sky"
    assert anyio.run(main) == "The sky"


def test_every_piece_is_one_byte(make: Make, scripted: type[Scripted]) -> None:
    data = b"".join(said("天空", " is blue."))
    bytewise: Answer = (200, {}, [data[i : i + 1] for i in range(len(data))])
    events, got = drained(make(transport=scripted(bytewise), api_key=KEY).stream(model()))
    assert got.text == "天空 is blue."
    folds(events, got)


# ── httpx ────────────────────────────────────────────────────────────────────
def _handler(seen: list[httpx.Request], answer: Callable[[httpx.Request], httpx.Response]) -> httpx.MockTransport:
    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(request)

    return httpx.MockTransport(handle)


def _answered(request: httpx.Request) -> httpx.Response:
    if b'"stream":true' in request.content:
        return httpx.Response(200, content=b"".join(said("The sky")), headers={"content-type": "text/event-stream"})
    return httpx.Response(200, json={"choices": [{"message": {"content": "The sky"}, "finish_reason": "stop"}]})


def test_a_transport_of_httpx_will_do(make: Make) -> None:
    seen: list[httpx.Request] = []
    client = make(transport=_handler(seen, _answered), api_key=KEY)
    assert client.call(model()).text == "The sky"
    assert drained(client.stream(model()))[1].text == "The sky"
    assert {request.headers["authorization"] for request in seen} == {f"Bearer {KEY}"}
    assert KEY not in str(seen[0].url) + str(seen[0].content)
    assert client.plan(model()).headers["authorization"] == "Bearer {key}"


@each(
    "raised, kind, tries",
    [
        (httpx.ConnectError("no route"), TransportError, 2),
        (httpx.ConnectTimeout("slow"), cnllm.Timeout, 2),
        (httpx.ReadTimeout("slow"), cnllm.Timeout, 1),
        (httpx.ReadError("reset"), TransportError, 2),
        (httpx.RemoteProtocolError("closed"), TransportError, 2),
        (httpx.ProxyError("407"), TransportError, 2),
        (httpx.UnsupportedProtocol("what"), TransportError, 1),
        (httpx.LocalProtocolError("header"), TransportError, 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_httpx_raises_becomes_ours(
    make: Make, raised: httpx.HTTPError, kind: type[TransportError], tries: int
) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise raised

    seen: list[httpx.Request] = []
    client = make(transport=_handler(seen, fail), api_key=KEY, retry=Retry(attempts=2, base=0.0))
    with pytest.raises(TransportError) as caught:
        client.call(model(), timeout=cnllm.Timeouts(connect=None, first_byte=None, idle=None))
    assert type(caught.value) is kind
    assert len(seen) == tries


def test_a_redirect_of_a_given_transport_is_not_followed(make: Make) -> None:
    seen: list[httpx.Request] = []
    moved = functools.partial(httpx.Response, 307, headers={"location": "https://elsewhere.example/"})
    client = make(transport=_handler(seen, lambda request: moved()), api_key=KEY)
    with pytest.raises(cnllm.EndpointError, match=r"https://elsewhere\.example/"):
        client.call(model())
    assert len(seen) == 1


def test_cookies_are_not_kept(make: Make) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=whole(), headers={"set-cookie": "who=me; Path=/"})

    client = make(transport=_handler(seen, answer), api_key=KEY)
    for _ in range(2):
        client.call(model())
    assert "cookie" not in seen[1].headers


def test_a_simulating_client_sends_nothing(make: Make) -> None:
    assert "simulated" in [note.code for note in make(simulate=True).call(model()).notes]


def test_a_driver_shows_what_it_drives(client: Driver) -> None:
    shown: Any = repr(client._client)
    assert shown.startswith(("<Client ", "<AsyncClient "))
