"""The table of axes against the published counts and names."""

from collections import Counter

import pytest

from flwr_agent.errors import ConfigError
from flwr_agent.matrix import ARMS, Cell, cells, find

ROOT = "fed_webshop_grpo_total-100_cl-per-rd-2_rd-70_ep-per-cl-3_min-goals-per-cl-100"


def test_families_have_the_published_number_of_cells():
    counts = Counter(cell.family for cell in cells())
    assert counts == {"uniform": 112, "env_heterogeneity": 34, "task_heterogeneity": 24, "decentralized": 24}
    by_env = Counter(cell.env for cell in cells() if cell.family == "env_heterogeneity")
    assert by_env == {"webshop": 20, "alfworld": 14}


def test_arms_have_the_published_number_of_cells():
    counts = Counter((cell.label, cell.algorithm) for cell in cells() if cell.family == "env_heterogeneity")
    expected = {
        "catalog_split": (4, 1),
        "task_disjoint": (4, 0),
        "field_subset_index": (2, 1),
        "bm25_reweighting": (2, 1),
        "lookalike_injection": (2, 1),
        "rank_wrapper": (1, 1),
        "scene_disjoint": (4, 1),
        "obs_variant": (2, 1),
        "dyn_variant": (2, 1),
        "goal_variant": (2, 1),
    }
    assert {label: (counts[label, "grpo"], counts[label, "ppo"]) for label in expected} == expected


def test_every_path_reads_back_as_its_cell():
    assert len({cell.path for cell in cells()}) == 194
    assert [Cell.parse(f"{cell.path}.yaml") for cell in cells()] == list(cells())


@pytest.mark.parametrize(
    "path",
    [
        f"uniform/Qwen2.5-1.5B-Instruct/main/grpo/{ROOT}_p-uniform",
        "uniform/Llama-3.2-3B-Instruct/centralized/ppo/fed_alfworld_ppo_total-1_cl-per-rd-1_rd-1_ep-per-cl-210_min-goals-per-cl-100_p-uniform",
        "uniform/Qwen2.5-7B-Instruct/local_client3/grpo/fed_webshop_grpo_total-100_cl-per-rd-1_rd-70_ep-per-cl-3_min-goals-per-cl-100_p-uniform",
        f"env_heterogeneity/grpo/webshop/catalog_split/{ROOT}_p-catalog_split_div-0.3_keep-0.7",
        f"env_heterogeneity/grpo/webshop/task_disjoint/{ROOT}_p-task_disjoint_div-1.0_keep-0.7",
        f"env_heterogeneity/grpo/webshop/lookalike_injection/{ROOT}_p-lookalike_injection_N-2",
        f"env_heterogeneity/ppo/alfworld/scene_disjoint/{ROOT}_p-scene_disjoint_div-1.0_spc-8".replace(
            "webshop_grpo", "alfworld_ppo"
        ),
        f"task_heterogeneity/grpo/webshop/{ROOT}_p-hardness_success_std-256",
        "decentralized/ep_per_round_change/grpo/fed_webshop_grpo_total-100_cl-per-rd-2_rd-210_ep-per-cl-1_min-goals-per-cl-100_p-uniform",
        "decentralized/samples_change/ppo/fed_webshop_ppo_total-100_cl-per-rd-2_rd-70_ep-per-cl-3_min-goals-per-cl-1000_p-uniform",
        "decentralized/selected_cl_change/ppo/fed_alfworld_ppo_total-100_cl-per-rd-4_rd-70_ep-per-cl-3_min-goals-per-cl-100_p-uniform",
    ],
)
def test_published_paths_are_cells(path: str):
    assert Cell.parse(path) in cells()
    assert find(path) == Cell.parse(path)


def test_a_bare_name_is_read_as_the_anchor_model_s():
    assert Cell.parse(f"{ROOT}_p-coverage_std-256") == Cell(
        env="webshop", algorithm="grpo", label="coverage", values=("256",)
    )
    assert (
        Cell.parse("fed_webshop_ppo_total-1_cl-per-rd-1_rd-1_ep-per-cl-210_min-goals-per-cl-100_p-uniform") in cells()
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("demo", "is not named fed_"),
        (ROOT.replace("webshop", "chess") + "_p-uniform", "is not named fed_"),
        (f"{ROOT}_p-uniformly", "which is no arm with its knobs"),
        (f"{ROOT}_p-catalog_split_div-0.3", "which is no arm with its knobs"),
        (f"task_heterogeneity/ppo/webshop/{ROOT}_p-coverage_std-1", "is not where such a cell belongs"),
        (f"uniform/GPT-2/main/grpo/{ROOT}_p-uniform", "is not where such a cell belongs"),
    ],
)
def test_a_name_that_does_not_follow_the_grammar_is_refused(path: str, message: str):
    with pytest.raises(ConfigError, match=message):
        Cell.parse(path)


def test_a_cell_is_found_by_what_only_its_path_holds():
    assert find("ppo/alfworld/goal_variant").label == "goal_variant"
    with pytest.raises(ConfigError, match="is in the paths of 112 cells"):
        find("uniform/")
    with pytest.raises(ConfigError, match=r"no such cell.*nearest: env_heterogeneity/ppo/webshop/rank_wrapper"):
        find("env_heterogeneity/ppo/webshop/rank_wraper")


def test_the_table_names_the_arms_of_the_partition_table():
    from envs.partition.registry import STRATEGIES

    assert {arm.strategy for arm in ARMS.values()} == set(STRATEGIES) - {"site"}
