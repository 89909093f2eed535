"""Recording and replaying of exchanges, as transports around or in place of another.

A cassette is a text file of one JSON object a line, each a request with what came back:

    {"when": …, "request": {"method", "url", "headers", "body"},
     "response": {"status", "headers", "chunks"}, "ended": …}

`chunks` are the pieces as they arrived, so that a replay is split as the original was: text, or {"base64": …}
where a piece is not UTF-8 by itself. `ended` is "whole", "abandoned" (nobody read on) or "failed", then with
`error`. No secret is in it: the values known to the recorder are taken out, those that the request carried, and
whatever stands under an auth-like name.
"""

from cnllm.cassette.record import AsyncRecorder, Recorder
from cnllm.cassette.replay import AsyncPlayer, Player

__all__ = ["AsyncPlayer", "AsyncRecorder", "Player", "Recorder"]
