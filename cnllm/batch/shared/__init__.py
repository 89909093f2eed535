"""Ask the rows of one run in several processes, within one allowance: what `cnllm.ray` is built on.

Each process has an `Asker`, which holds a client and hundreds of requests. An `Allowance`, which is in one place, gives
out the permissions to send, so that all processes together keep the limits of the endpoint and the cap on cost. A
`Link` carries the reports of the processes to the allowance, and the permissions back. Keys do not travel.

A `RemoteSender` is another division: the process that runs a batch builds the requests, and others send them.
"""

from cnllm.batch.shared.allowance import Allowance, Permissions, WorkerReport, decode_grant, decode_report, encode
from cnllm.batch.shared.remote import RemoteRequest, RemoteSender, Response, stand_in
from cnllm.batch.shared.sender import ADDED, COUNTS, Asker, Link, LinkLost, PendingRow
from cnllm.batch.shared.settings import ModelOptions, ModelSettings, model_settings

__all__ = [
    "ADDED",
    "COUNTS",
    "Allowance",
    "Asker",
    "Link",
    "LinkLost",
    "ModelOptions",
    "ModelSettings",
    "PendingRow",
    "Permissions",
    "RemoteRequest",
    "RemoteSender",
    "Response",
    "WorkerReport",
    "decode_grant",
    "decode_report",
    "encode",
    "model_settings",
    "stand_in",
]
