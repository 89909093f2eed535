"""The fast transports: `Fast` for `Client`, `AsyncFast` for `AsyncClient`. Needs the extra `fast`.

    from cnllm import Client
    from cnllm.transports.fast import Fast

    client = Client(transport=Fast(connections=64))  # without this argument a `Client` creates its own

httptools parses HTTP/1.1 in C (llhttp); sockets and TLS are Python's own. Complete libraries were measured too: the
synchronous ones cost eight times the limit of a chunk or thirteen times that of a request (urllib3, niquests), or offer
only callbacks (pycurl). aiohttp drops received bytes when a connection breaks, and cnllm must report those of a cut
stream.
"""

from cnllm.transports.fast_async import AsyncFast
from cnllm.transports.fast_sync import Fast

__all__ = ["AsyncFast", "Fast"]
