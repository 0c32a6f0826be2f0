import pytest

from envs import registry
from envs.base import Task
from envs.tasklists import from_dataset, to_dataset
from flwr_agent.errors import DataError

datasets = pytest.importorskip("datasets")


@pytest.mark.parametrize("name", ["tinyguess", "minihouse", "webshop"])
def test_a_task_list_comes_back_from_a_dataset_on_disk_as_it_went(name, tmp_path):
    tasks = list(registry.create(name, {}).tasks("val"))
    to_dataset(tasks).to_parquet(tmp_path / "tasks.parquet")
    back = datasets.Dataset.from_parquet(str(tmp_path / "tasks.parquet"), cache_dir=str(tmp_path))
    assert from_dataset(back, split="val") == tasks


def test_the_columns_of_a_foreign_dataset_become_what_a_task_holds():
    rows = datasets.Dataset.from_dict(
        {"name": ["a", "b"], "category": ["x", "y"], "answer": [1, 2], "split": ["?", "?"]}
    )
    assert from_dataset(rows, split="train", id_column="name") == [
        Task("a", "train", {"category": "x", "answer": 1}),
        Task("b", "train", {"category": "y", "answer": 2}),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"name": "a"}], r"row 0: id: has no value; columns are \['name'\]"),
        ([{"id": None}], "row 0: id: has no value"),
        ([{"id": "a"}, {"id": "a"}], "row 1: id: 'a' comes twice"),
        ([{"id": "a", "when": object()}], "row 0: meta: .*drop or convert the column"),
        ([{"id": "a", "meta": "{"}], "row 0: meta: "),
    ],
)
def test_a_bad_row_is_named_with_its_field(rows, message):
    with pytest.raises(DataError, match=message):
        from_dataset(rows, split="train")
