"""The fast transports: `Fast` for `Client`, `AsyncFast` for `AsyncClient`. Needs httptools: `cnllm[fast]`.

    from cnllm import Client
    from cnllm.transports.fast import Fast

    client = Client(transport=Fast(connections=64))  # without an argument, a `Client` makes one of its own

httptools parses HTTP/1.1 in C (llhttp); sockets and TLS are Python's own. The libraries that do all of it were measured
too: the synchronous ones cost eight times the limit of a chunk or thirteen times that of a request (urllib3, niquests)
or cannot be read from (pycurl calls back), and aiohttp forgets what it has received when a connection breaks, which is
just what a client that tells the truth about cut streams must not.
"""

from cnllm.transports.fast_async import AsyncFast
from cnllm.transports.fast_sync import Fast

__all__ = ["AsyncFast", "Fast"]
