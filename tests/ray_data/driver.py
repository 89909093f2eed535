"""A program that answers a dataset on a Ray cluster of its own: `python driver.py '{…}'`. It prints what came of it.

rows, blocks, workers, calls, batch   the dataset, and how it is mapped; `parquet`: rows from that folder
options                               those of `cnllm.ray.Model`; `registry` is the path of an overlay
out, checkpoint                       a folder of Parquet, and Ray's own checkpoints
ids                                   False: rows without an id
hidden                                variables that the workers do not see
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from typing import Any


def main(spec: dict[str, Any]) -> None:
    hidden = {name: os.environ.pop(name) for name in spec.get("hidden", ())}
    import ray

    ray.init(
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=200_000_000,
        log_to_driver=False,
        **({"_temp_dir": spec["temporary"]} if "temporary" in spec else {}),
    )
    os.environ.update(hidden)
    import ray.data

    import cnllm.ray

    ray.data.DataContext.get_current().enable_progress_bars = False
    if "checkpoint" in spec:
        from ray.data.checkpoint import CheckpointConfig

        config = CheckpointConfig(
            id_column="id", checkpoint_path=spec["checkpoint"], delete_checkpoint_on_success=False
        )
        config.checkpoint_actor_memory_bytes = 100_000_000
        ray.data.DataContext.get_current().checkpoint_config = config
    options = dict(spec["options"])
    name = options.pop("model", "home/m")
    if "registry" in options:
        options["registry"] = cnllm.Registry.load(options["registry"])
    start, count = spec.get("start", 0), spec["rows"]
    items = [{"id": f"r{n}", "prompt": f"p{n}"} for n in range(start, start + count)]
    if not spec.get("ids", True):
        items = [{"prompt": item["prompt"]} for item in items]
    if "parquet" in spec:  # checkpoints filter what is read from files
        dataset = ray.data.read_parquet(spec["parquet"], override_num_blocks=spec.get("blocks", 8))
    else:
        dataset = ray.data.from_items(items, override_num_blocks=spec.get("blocks", 8))
    compute = ray.data.ActorPoolStrategy(
        size=spec.get("workers", 2), max_concurrent_calls_per_actor=spec.get("calls", 2)
    )
    answers = dataset.map_batches(
        cnllm.ray.Model(name, **options), batch_size=spec.get("batch", 128), num_cpus=0.5, compute=compute
    )
    if "out" in spec:
        answers.write_parquet(spec["out"])
        answers = ray.data.read_parquet(spec["out"])
        ray.data.DataContext.get_current().checkpoint_config = None
    rows = answers.take_all()
    right = sum(row["text"] == f"re: {row['prompt']}" for row in rows)
    errors = Counter(row["error"]["type"] for row in rows if row["error"] is not None)
    spent = sum(row["cost"]["amount"] for row in rows if row["cost"] is not None)
    prompts = len({row["prompt"] for row in rows})
    result = {
        "rows": len(rows),
        "prompts": prompts,
        "right": right,
        "errors": errors,
        "spent": str(spent),
        "first": rows[0],
    }
    sys.stdout.write(f"RESULT {json.dumps(result, default=str)}\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
