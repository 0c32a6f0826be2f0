"""Synthetic task pools of the published sizes."""

import json
from pathlib import Path

from envs.base import Task

ALFWORLD_TYPES = {
    "pick_clean_then_place_in_recep": 650,
    "pick_heat_then_place_in_recep": 459,
    "pick_and_place_simple": 790,
    "pick_cool_then_place_in_recep": 533,
    "pick_two_obj_and_place": 813,
    "look_at_obj_in_light": 308,
}
"""Train games by type, in the order that the published category totals were drawn with."""


def pool(num_tasks: int, categories: int = 1) -> list[Task]:
    return [Task(f"t{i}", "train", {"category": f"c{i % categories}"}) for i in range(num_tasks)]


def alfworld_by_type() -> list[Task]:
    return [
        Task(f"{kind}-{i}", "train", {"category": kind}) for kind, count in ALFWORLD_TYPES.items() for i in range(count)
    ]


def labels_file(folder: Path, labels: dict[str, object]) -> str:
    rows = [{"task_info": {"task_id": key}, "traj_info": {"success": value}} for key, value in labels.items()]
    path = folder / "labels.json"
    path.write_text(json.dumps({"metadata": {}, "trajectories": rows}))
    return str(path)
