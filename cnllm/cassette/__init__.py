"""Record and replay exchanges, with transports around or in place of another one.

A cassette is a text file with one JSON object per line, each a request with its response:

    {"when": …, "request": {"method", "url", "headers", "body"},
     "response": {"status", "headers", "chunks", "times"}, "ended": …}

`chunks` are the pieces as they arrived, so that a replay is split like the original: text, or {"base64": …} where a
piece is not UTF-8 by itself. `times` are the seconds from the request to each of them. `ended` is "whole", "abandoned"
(the reader stopped early) or "failed", then with `error`. A cassette holds no secret: the recorder removes the values
that it knows, the secrets of the request, and every value under an auth-like name.
"""

from cnllm.cassette.record import AsyncRecorder, Recorder
from cnllm.cassette.replay import AsyncPlayer, Player

__all__ = ["AsyncPlayer", "AsyncRecorder", "Player", "Recorder"]
