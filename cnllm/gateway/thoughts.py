"""Keep the reasoning of models across clients that cannot carry it.

Endpoints want reasoning back with the next request, and clients of another protocol lose it. There are two ways back:
a sealed token in the field that clients of a protocol send back unchanged (the signature of a thinking block), and the
store, by the id of a call or by the conversation so far. Only these prove who wrote a turn: reasoning without a proof
is another model's. Everything here is pure; the driver reads and writes the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cnllm.gateway.conversation_key import DIGEST_BYTES, Chain, digest_of
from cnllm.gateway.store import Ambiguous, TurnRecord, decode_turn, encode_turn
from cnllm.protocols import ServerCodec, server_api, server_codec
from cnllm.protocols.sealed_keys import lost_keys
from cnllm.registry.model import Model
from cnllm.registry.reasoning_form import form, is_replayed
from cnllm.types import (
    BlockEnd,
    Media,
    Message,
    Note,
    Opaque,
    Part,
    Reasoning,
    Request,
    Seal,
    Text,
    ToolCall,
)
from cnllm.types.parts import CACHE_MARKS

if TYPE_CHECKING:
    from cnllm.gateway.tokens import TokenKeys
    from cnllm.types.message_memory import MessageMemory

__all__ = ["Authors", "Sealer", "kept_turn"]

_BLOCKS = (Opaque, Media)
_MARKS = frozenset(CACHE_MARKS)
_TOKEN = "cnllm1."
_AUTHORS, _SEARCH_SIZE = "authors", 200  # bytes for each message
_DECODED = 4  # bytes of one that is decoded, or of a character
_UNKNOWN = Seal("", "", "")  # the seal of an unknown author's part: no endpoint takes the part for its own


def _encode(turn: TurnRecord, digest: bytes | None) -> bytes:
    """Return the content of a token: what the client may lose, and the digest of the text that it sends back itself."""
    return (digest or b"").ljust(DIGEST_BYTES, b"\0") + encode_turn(turn)


# ── replies ───────────────────────────────────────────────────────────────────


class Sealer:
    """Puts tokens on the parts of one reply.

    A token holds what stands before its part. In a stream the calls end last: each part that waits for a token has the
    number of the calls before it.
    """

    def __init__(self, protocol: str, keys: TokenKeys | None, identity: str, model: Model) -> None:
        self._codec = server_codec(protocol)
        self._api = server_api(protocol)
        self._keys = keys
        self._identity = identity
        self._model = model
        self.restart()

    def restart(self) -> None:
        """Begin again, because the reply does."""
        self._waiting: list[tuple[int, Part]] = []
        self._calls = self._others = 0

    def end(self, end: BlockEnd) -> BlockEnd:
        """Return the end of a part of a stream that is no call, with its token."""
        calls = max(end.index - self._others, 0)
        self._others += 1
        return replace(end, part=self.part(end.part, calls))

    def part(self, part: Part, calls: int | None = None) -> Part:
        """Return a part with a token, if its protocol has a place for one there and there is something to keep.

        `calls` is the number of calls before it, where they have not come.
        """
        if self._keys is None or not self._api.token_parts:
            return part
        calls = self._calls if calls is None else calls
        if type(part) is Reasoning:
            self._waiting.append((calls, part))
        elif type(part) is ToolCall:
            self._calls += 1
            if part.seal is not None:
                self._waiting.append((calls, ToolCall(part.id, part.name, seal=part.seal)))
        else:
            return part
        parts = tuple([waiting for place, waiting in self._waiting if place <= calls])
        if not parts or type(part) not in self._api.token_parts:
            return part
        self._waiting = [(place, waiting) for place, waiting in self._waiting if place > calls]
        text_digest = None
        if self._api.token_beside_text and type(part) is Reasoning:
            text_digest = digest_of(part.text)
            parts = (replace(part, text=""),)
        turn = TurnRecord(self._model.provider, self._model.id, self._model.protocol, parts)
        token = self._keys.seal(self._identity, _encode(turn, text_digest))
        return self._codec.token.write(part, token)


def kept_turn(message: Message, model: Model, client_id: Callable[[str], str] = str) -> TurnRecord | None:
    """Return what a client may lose of a reply; None where there is nothing. Calls tell the places of reasoning.

    `client_id` returns the id under which the client knows a call; without it that is the endpoint's.
    """
    parts: list[Part] = []
    has_blocks = False  # the client sends a block, but not who wrote it
    thinks = False  # behind a part
    for part in reversed(message.parts):
        if type(part) is Reasoning:
            thinks = True
            parts.append(part)
        elif type(part) is ToolCall:
            if part.seal is not None or thinks:
                parts.append(ToolCall(client_id(part.id), part.name, seal=part.seal))
        elif type(part) is not Text or _has_data(part, model.protocol):
            has_blocks = True
    return TurnRecord(model.provider, model.id, model.protocol, tuple(parts[::-1])) if parts or has_blocks else None


# ── requests ──────────────────────────────────────────────────────────────────


class _Search:
    """Holds the keys by which the turns of a conversation with a model are looked up, as far as some turn.

    `opened` are the turns whose tokens were read, `by_call` and `by_prefix` the keys to look up, `restored` what was
    found last with the turn that it gave, all by index. `chain` has the first `chained` messages.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.opened: dict[int, Message] = {}
        self.by_call: dict[int, list[str]] = {}
        self.by_prefix: dict[int, bytes] = {}
        self.restored: dict[int, tuple[TurnRecord, Message]] = {}
        self.chain = Chain()
        self.chained = 0

    def copy(self) -> _Search:
        """Return the search so far, which may go on by itself."""
        other = _Search(self.model)
        other.opened, other.by_call, other.by_prefix = self.opened.copy(), self.by_call.copy(), self.by_prefix.copy()
        other.chain, other.chained, other.restored = self.chain.copy(), self.chained, self.restored.copy()
        return other


class Authors:
    """Finds the authors of a request's assistant turns, and gives the turns back what their client lost.

    `call_ids` and `prefixes` are the keys to look up in the store for turns without a valid token; `restore` takes
    what the store has. `memory` has what was found out about the beginning of the conversation: only the store is asked
    again, because another reply may have made a key ambiguous.
    """

    def __init__(
        self,
        request: Request,
        codec: ServerCodec,
        keys: TokenKeys | None,
        identity: str,
        model: Model,
        memory: MessageMemory | None = None,
    ) -> None:
        self._request, self._memory = request, memory
        self.notes: list[Note] = []
        messages = request.messages
        turns = _wanted_turns(messages, model)
        self._kind = (_AUTHORS, codec.token.protocol)
        self._is_kept = memory is not None and turns.start == 0  # else a later turn of the user changes what is wanted
        start, search = 0, _Search(model)
        if memory is not None and self._is_kept:
            count, memo = memory.find_start(self._kind, messages)
            if memo is not None and memo.model is model:
                start, search = count, memo.copy()
        self._search, self._is_new = search, start < len(messages)
        for index in range(start, len(messages)):
            message = messages[index]
            if message.role != "assistant":
                continue
            opened = _open_tokens(message, codec, keys, identity)
            if opened is not message:
                search.opened[index] = opened
                self._keep_message(opened)
            call_ids = [part.id for part in opened.parts if type(part) is ToolCall and part.id]
            # A call may have had a seal whatever the model's reasoning is; it goes back with it.
            is_known = opened.by is not None
            if (not is_known and (call_ids or index in turns or opened.reasoning or _has_blocks(opened, model))) or (
                index in turns and _may_lack_seals(opened, model)
            ):
                if call_ids:
                    search.by_call[index] = call_ids
                else:
                    for earlier in messages[search.chained : index + 1]:
                        search.chain.add(earlier)
                    search.chained = index + 1
                    search.by_prefix[index] = search.chain.key()
        self._messages = list(messages)
        for index, opened in search.opened.items():
            self._messages[index] = opened

    @property
    def call_ids(self) -> list[str]:
        """Return the first call id of each turn to look up."""
        return [ids[0] for ids in self._search.by_call.values()]

    @property
    def prefixes(self) -> list[bytes]:
        """Return the keys of conversations to look up."""
        return list(self._search.by_prefix.values())

    def decode(self, digest: bytes, blob: bytes) -> TurnRecord | None:
        """Return the turn of a content in the store; of one that the memory has always the same object."""
        if self._memory is None:
            return decode_turn(blob)
        key = (_AUTHORS, digest)
        turn: TurnRecord | None = self._memory.find(key)
        if turn is None and (turn := decode_turn(blob)) is not None:
            self._memory.keep(key, turn, _DECODED * len(blob))
        return turn

    def restore(
        self,
        by_call: Mapping[str, TurnRecord] | None = None,
        by_prefix: Mapping[bytes, TurnRecord | Ambiguous] | None = None,
    ) -> Request:
        """Return the request with the authors, reasoning and seals of its turns."""
        search = self._search
        for index, ids in search.by_call.items():
            if (turn := (by_call or {}).get(ids[0])) is not None:
                self._restore(index, turn)
        for index, prefix in search.by_prefix.items():
            match (by_prefix or {}).get(prefix):
                case TurnRecord() as turn:
                    self._restore(index, turn)
                case Ambiguous():
                    self.notes.append(
                        Note(
                            "reasoning-ambiguous",
                            "gateway",
                            f"messages[{index}]: two replies with different reasoning fit this turn",
                            "left out: the client does not say which one it means",
                        )
                    )
        if self._memory is not None and self._is_kept and self._is_new:
            self._memory.keep_start(self._kind, self._request.messages, search, _SEARCH_SIZE * len(self._messages))
        return replace(self._request, messages=self._messages)

    def _restore(self, index: int, turn: TurnRecord) -> None:
        """Give a turn back what its client lost, in the message that had it before, if there was one."""
        known, message = self._search.restored.get(index, (None, None))
        if message is None or known is not turn:
            message = _with_turn(self._messages[index], turn)
            self._search.restored[index] = turn, message
            self._keep_message(message)
        self._messages[index] = message

    def _keep_message(self, message: Message) -> None:
        """Keep a message that its client did not send so: the memory has the others."""
        if self._memory is not None:
            self._memory.keep_message(message, _DECODED * len(message.reasoning))


def _wanted_turns(messages: Sequence[Message], model: Model) -> range:
    """Return the indexes of the turns whose reasoning the model may want back."""
    rules = model.flags.reasoning
    if not is_replayed(rules):
        return range(0)
    if rules.replay == "since-user" and form(rules) != "seal":
        last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
        return range(last_user + 1, len(messages))
    return range(len(messages))


def _may_lack_seals(message: Message, model: Model) -> bool:
    """Whether the calls of a turn may have had seals, which a token in its reasoning does not hold."""
    calls = message.tool_calls
    if not calls or ToolCall not in server_api(model.protocol).token_parts:
        return False
    return not any(call.seal is not None and call.seal.provider for call in calls)


def _has_blocks(message: Message, model: Model) -> bool:
    """Whether a turn has blocks for which the model's wire has a place, such as those of tools that a vendor executes.

    They go back to their author only, as does what an endpoint adds to its texts.
    """
    return any(
        part.seal is not None
        and part.seal.protocol == model.protocol
        and (type(part) in _BLOCKS or (type(part) is Text and _has_data(part, model.protocol)))
        for part in message.parts
    )


def _has_data(part: Text, protocol: str) -> bool:
    """Whether a text has data that its author wants back, such as a signature or a phase."""
    return part.seal is not None and not _MARKS.issuperset(lost_keys(part.seal, protocol))


def _with_author(message: Message, turn: TurnRecord) -> Message:
    """Return a message of a proven author. Its blocks, and what the wire adds to its texts and calls, are its own."""
    parts = tuple([_add_author(part, turn) for part in message.parts])
    return replace(message, parts=parts, by=f"{turn.provider}/{turn.model}")


def _add_author(part: Part, turn: TurnRecord) -> Part:
    """Return a part with the author in its seal, if the seal is from the author's protocol. Reasoning has its own."""
    seal = part.seal
    if seal is None or seal.provider or seal.protocol != turn.protocol or type(part) is Reasoning:
        return part
    return replace(part, seal=Seal(turn.protocol, turn.provider, turn.model, seal.data))


def _open_tokens(message: Message, codec: ServerCodec, keys: TokenKeys | None, identity: str) -> Message:
    """Return an assistant's message with the parts of its valid tokens. No token stays in it.

    Reasoning that the client sends beside a token of the same reasoning is the token's; other reasoning stays the
    client's.
    """
    parts: list[Part] = []
    loose: list[Part] = []  # reasoning of the client before the next token
    origins: dict[str, TurnRecord] = {}
    changed = unproven = False
    for part in message.parts:
        token = codec.token.read(part)
        if token is None or not token.startswith(_TOKEN):
            if type(part) is Reasoning:
                loose.append(part)
            parts.append(part)
            continue
        changed = True
        turn, digest = _decode(token, keys, identity)
        text = part.text if type(part) is Reasoning else ""
        if turn is None or (digest is not None and digest != digest_of(text)):
            unproven = True
            if type(part) is not Reasoning or part.text:
                parts.append(replace(part, seal=_UNKNOWN))
            continue
        origins[f"{turn.provider}/{turn.model}"] = turn
        call_seal = None
        reasoning = [piece for piece in turn.parts if type(piece) is Reasoning]
        place = _place_before(part, parts)
        if loose and digest is None and reasoning:
            if _text(loose) == _text(reasoning):
                place = next(index for index, piece in enumerate(parts) if piece is loose[0])
                parts = [piece for piece in parts if not any(piece is other for other in loose)]
                loose = []
            else:
                reasoning = []
        parts[place:place] = reasoning if digest is None else [replace(piece, text=text) for piece in reasoning]
        for piece in turn.parts:
            if type(piece) is ToolCall:
                call_seal = piece.seal
        if type(part) is ToolCall:
            parts.append(replace(part, seal=call_seal))
    if not changed:
        return message
    message = replace(message, parts=tuple(parts), by=None)
    if len(origins) != 1 or unproven or loose:
        return message
    return _with_author(message, *origins.values())


def _place_before(part: Part, parts: Sequence[Part]) -> int:
    """Return where the reasoning in the token of a part belongs: that of a call before the text since the last call.

    A model reasons first, and some endpoints refuse a turn that begins with text.
    """
    if type(part) is not ToolCall:
        return len(parts)
    return next((index for index in range(len(parts), 0, -1) if type(parts[index - 1]) is ToolCall), 0)


def _text(parts: Iterable[Part]) -> str:
    """Return the text of reasoning, without white space around it."""
    return "".join(part.text for part in parts if type(part) is Reasoning).strip()


def _decode(token: str, keys: TokenKeys | None, identity: str) -> tuple[TurnRecord | None, bytes | None]:
    """Return the content of a token as `_encode` takes it; no turn for one that is forged, foreign or damaged."""
    content = None if keys is None else keys.open(identity, token)
    if content is None:
        return None, None
    digest = content[:DIGEST_BYTES]
    return decode_turn(content[DIGEST_BYTES:]), digest if any(digest) else None


def _with_turn(message: Message, turn: TurnRecord) -> Message:
    """Return a message with the reasoning and the seals that the store has.

    Reasoning that the client changed stays the client's, without an author. Reasoning that it dropped, or moved to the
    other side of a call, stands behind the calls that it stood behind. Of a stream, some clients keep the last piece.
    """
    reasoning = [part for part in turn.parts if type(part) is Reasoning]
    if not "".join(part.text for part in reasoning).strip().endswith(message.reasoning.strip()):
        return message
    seals = {part.id: part.seal for part in turn.parts if type(part) is ToolCall}
    ids = seals.keys() & {part.id for part in message.parts if type(part) is ToolCall}
    is_in_place = _places(message.parts, ids) == _places(turn.parts, ids)
    own = [replace(p, seal=seals.get(p.id)) if type(p) is ToolCall else p for p in message.parts]
    parts: list[Part] = []
    if is_in_place:
        parts = [reasoning.pop(0) if type(part) is Reasoning else part for part in own]
    else:
        own = [part for part in own if type(part) is not Reasoning]
        places = {part.id: index for index, part in enumerate(own, 1) if type(part) is ToolCall}
        taken = 0
        for piece in turn.parts:
            if type(piece) is ToolCall:
                place = max(places.get(piece.id, 0), taken)
                parts += own[taken:place]
                taken = place
            elif type(piece) is Reasoning:
                parts.append(piece)
        parts += own[taken:]
    return _with_author(replace(message, parts=tuple(parts)), turn)


def _places(parts: Iterable[Part], ids: Set[str]) -> list[str | None]:
    """Return the order of reasoning, as None, and of the calls with these ids."""
    own = (part for part in parts if type(part) is Reasoning or (type(part) is ToolCall and part.id in ids))
    return [part.id if type(part) is ToolCall else None for part in own]
