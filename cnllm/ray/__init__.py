"""Ask a model every row of a Ray dataset, by all workers together within one allowance.

    import cnllm.ray

    rows = ray.data.read_parquet("questions.parquet")
    rows = rows.map_batches(cnllm.ray.Model("glm-4.7", max_cost=20, currency="CNY"), concurrency=2, batch_size=256)
    rows.write_parquet("answers")

Each worker holds an async client and hundreds of requests. A named actor, `cnllm` in the namespace of the job, gives
out the permissions to send, so that all workers together keep the limits of the endpoint and the cap on cost. Keys are
read on each node, from its environment or its keys file, and never travel.
"""

from __future__ import annotations

from cnllm.ray.model import Model

__all__ = ["Model"]
