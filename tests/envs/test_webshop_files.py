"""The user's own data: WebShop's file schema, read and refused."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from envs.webshop import WebShop, catalogue, shop
from envs.webshop.files import HUMAN, load
from envs.webshop.goals import NO_BOUND, price_bound, shuffled, synthetic_goals
from envs.webshop.products import parse_products
from flwr_agent.errors import ConfigError, DataError

ITEMS, INSTRUCTIONS, _ = catalogue.generate()


@pytest.fixture
def tables():
    return ITEMS[:80], INSTRUCTIONS


def write(folder: Path, items, instructions, human=None) -> Path:
    (folder / "items_shuffle.json").write_text(json.dumps(items), encoding="utf-8")
    (folder / "items_ins_v2.json").write_text(json.dumps(instructions), encoding="utf-8")
    if human is not None:
        (folder / HUMAN).write_text(json.dumps(human), encoding="utf-8")
    return folder


def record(**changes):
    return {**ITEMS[0], **changes}


def parse(**changes):
    return parse_products([record(**changes)], {}, "items.json")[0]


def test_a_folder_gives_the_goals_of_the_same_records(tmp_path, tables):
    items, instructions = tables
    products, splits, _ = load(write(tmp_path, items, instructions), "synthetic")
    assert [product.asin for product in products] == [item["asin"] for item in items]
    assert len(splits["val"]) == 500
    expected = shuffled(synthetic_goals(products, instructions))
    assert [*splits["val"], *splits["train"]] == expected
    embedded = shop.embedded_shop().goals
    assert all(goal.instruction == embedded[goal.id].instruction for goal in expected)


def test_the_order_of_the_records_changes_no_goal(tmp_path, tables):
    items, instructions = tables
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    a = load(write(tmp_path / "a", items, instructions), "synthetic")[1]
    b = load(write(tmp_path / "b", items[::-1], instructions), "synthetic")[1]
    texts = [{goal.id: goal.instruction for goals in split.values() for goal in goals} for split in (a, b)]
    assert texts[0] == texts[1]


def test_concurrent_builds_give_one_goal_list_and_touch_no_global_generator(tmp_path, tables):
    items, instructions = tables
    ranged = [{**item, "pricing": "$5.00$45.00"} for item in items]
    write(tmp_path, ranged, instructions)
    states = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 (the state that must not move)
    with ThreadPoolExecutor(4) as pool:
        builds = list(pool.map(lambda _: load(tmp_path, "synthetic"), range(4)))
    assert all(build == builds[0] for build in builds)
    assert states == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002


def test_prices_follow_the_published_rules():
    assert (parse(pricing="").price, parse(pricing="").price_tag) == (100.0, "$100.0")
    assert (parse(pricing="$1,847.00").price, parse(pricing="$1,847.00").price_tag) == (1847.0, "$1847.0")
    ranged = parse(pricing="$19.99$27.99$99")
    assert ranged.price_tag == "$19.99 to $27.99"
    assert 19.99 <= ranged.price == parse(pricing="$19.99$27.99").price <= 27.99


def test_options_are_lower_case_and_distinct_and_null_groups_are_dropped():
    choices = [{"value": value} for value in (" Red/Blue ", "red | blue", "GREEN", "")]
    product = parse(customization_options={"Color": choices, "Size": None, "Fit": []})
    assert product.options == {"color": ("red | blue", "green")}
    assert parse(customization_options="").options == {}
    assert "color: red | blue, and green" in product.document()


def test_records_with_unusable_asins_are_left_out():
    records = [record(), record(asin="nan"), record(asin="B" * 11), record(asin="LK_PRICE_B000000000")]
    asins = [product.asin for product in parse_products(records, {}, "items.json")]
    assert asins == [records[0]["asin"], "LK_PRICE_B000000000"]


def test_the_price_bound_is_the_larger_of_two_of_the_next_four_tens():
    for price in (0.5, 10.0, 25.0, 964.0):
        bound, words = price_bound(parse(pricing=f"${price}"), "synthetic")
        bands = [band for band in range(10, 1000, 10) if band > price][:4]
        assert bound in bands[1:]
        assert words == f", and price lower than {bound:.2f} dollars"
    assert price_bound(parse(pricing="$985.00"), "synthetic") == (NO_BOUND, "")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"pricing": float("nan")}, r"\[0\].pricing"),
        ({"pricing": "$abc"}, r"\[0\].pricing"),
        ({"pricing": "$" + "9" * 400}, r"\[0\].pricing"),
        ({"name": None}, r"\[0\].name"),
        ({"small_description": [1]}, r"\[0\].small_description"),
        ({"customization_options": {"Color": [{"price": 1}]}}, r"\[0\].customization_options.Color"),
        ({"customization_options": {"Color": "red"}}, r"\[0\].customization_options.Color"),
        ({"customization_options": [1]}, r"\[0\].customization_options"),
    ],
)
def test_a_bad_field_is_named_with_its_file(changes, field):
    with pytest.raises(DataError, match=rf"^items.json: {field}: "):
        parse(**changes)


@pytest.mark.parametrize("field", ["asin", "name", "full_description", "small_description", "pricing", "category",
                                   "query", "product_category", "customization_options"])  # fmt: skip
def test_a_missing_field_is_named(field):
    incomplete = record()
    del incomplete[field]
    with pytest.raises(DataError, match=rf"\[0\].{field}: missing"):
        parse_products([incomplete], {}, "items.json")


@pytest.mark.parametrize("records", [[], {}, [record(asin="nan")], ["text"]])
def test_an_empty_catalogue_is_refused(records):
    with pytest.raises(DataError, match=r"items\.json: "):
        parse_products(records, {}, "items.json")


def test_a_record_that_is_no_object_is_named():
    with pytest.raises(DataError, match=r"^items\.json: \[1\]: must be an object, not 2$"):
        parse_products([record(), 2], {}, "items.json")


def test_a_repeated_asin_is_refused():
    with pytest.raises(DataError, match=r"\[1\].asin: .* occurs twice"):
        parse_products([record(), record()], {}, "items.json")


def test_bad_files_are_named(tmp_path, tables):
    items, instructions = tables
    (tmp_path / "file").write_text("")
    for place, reason in ((str(tmp_path / "nowhere"), "No such file"), (str(tmp_path / "file"), "Not a directory"),
                          ("", "is empty"), ("~nobody_of_that_name/shop", "home"), ("a\0b", "null")):  # fmt: skip
        with pytest.raises(ConfigError, match=rf"env\.data_path=.*{reason}.*; name one with WebShop's items"):
            WebShop(data_path=place)
    with pytest.raises(DataError, match=r"items_\*\.json: must name exactly one file; found nothing"):
        load(tmp_path, "synthetic")
    write(tmp_path, items, instructions)
    with pytest.raises(DataError, match=HUMAN):
        load(tmp_path, "human")
    path = tmp_path / "items_shuffle.json"
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    with pytest.raises(DataError, match=r"items_shuffle\.json: JSON: cannot be read"):
        load(tmp_path, "synthetic")
    path.write_bytes(b"\xff\xfe[")
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path, "synthetic")
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=r"items_shuffle\.json: file: cannot be read \(Is a directory\)"):
        load(tmp_path, "synthetic")
    path.rmdir()
    write(tmp_path, items[:1], instructions)
    with pytest.raises(DataError, match="9 goals for these products; more than 500 are needed"):
        load(tmp_path, "synthetic")


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ([], "B0X: must be an object"),
        ({"attributes": "soft"}, "B0X.attributes"),
        ({"instruction": 3, "instruction_attributes": []}, "B0X.instruction: must be text"),
        ({"instruction": "Find me"}, "B0X.instruction_attributes: missing"),
    ],
)
def test_bad_instructions_are_named(tmp_path, tables, entry, field):
    items, instructions = tables
    with pytest.raises(DataError, match=rf"items_ins_v2\.json: {field}"):
        load(write(tmp_path, items, {**instructions, "B0X": entry}), "synthetic")


def human_entry(item, *, attributes=("soft",), number=0):
    options = {name.lower(): values[0]["value"] for name, values in item["customization_options"].items()}
    return {
        "asin": item["asin"],
        "instruction": f"i want thing number {number} in {item['name'].lower()}...",
        "attributes": ["soft"],
        "options": [f"{name}: {value}" for name, value in options.items()],
        "instruction_attributes": list(attributes),
        "instruction_options": [value.upper() for value in options.values()],
        "assignment_id": "a",
        "worker_id": "w",
    }


def test_human_goals_are_won_by_the_oracle(tmp_path, tables):
    items, instructions = tables
    human = {
        item["asin"]: [
            human_entry(item, attributes=instructions[item["asin"]]["attributes"][:1], number=i) for i in range(8)
        ]
        for item in items
    }
    human[items[0]["asin"]].append(human_entry(items[0], attributes=()))
    human["B0UNKNOWN0"] = [human_entry(items[0])]
    write(tmp_path, items, instructions, human)
    shop = WebShop(data_path=str(tmp_path), goals="human")
    tasks = [*shop.tasks("val"), *shop.tasks("train")]
    assert len(tasks) == 640
    assert shop.tasks("demo") == ()
    for task in tasks[::20]:
        goal = shop.shop.goals[task.id]
        assert goal.instruction.startswith(f"i want thing number {goal.instruction.split()[4]} in ")
        assert "..." not in goal.instruction
        assert {name for name, _ in goal.options} == set(goal.product.options)
        assert shop.oracle(task)
    assert shop.fingerprint() != WebShop(data_path=str(tmp_path)).fingerprint()


def test_human_goals_of_real_products_are_won_by_the_oracle(data_dir, tmp_path):
    folder = data_dir / "webshop_real"
    items, instructions = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("items_shuffle", "items_ins_v2")
    )
    known = {asin: entry["attributes"] for asin, entry in instructions.items() if entry.get("attributes")}
    products = [product for product in parse_products(items, {}, "items.json") if product.asin in known]
    human = {
        product.asin: [
            {
                "asin": product.asin,
                "instruction": f"i am looking for number {number} of {product.title.lower()}.",
                "attributes": known[product.asin],
                "options": [f"{name}: {values[number % len(values)]}" for name, values in product.options.items()],
                "instruction_attributes": known[product.asin][number % 2 : number % 2 + 2] or known[product.asin],
                "instruction_options": [values[number % len(values)] for values in product.options.values()],
                "assignment_id": f"a{number}",
                "worker_id": "w",
            }
            for number in range(8)
        ]
        for product in products
    }
    shop = WebShop(data_path=str(write(tmp_path, items, instructions, human)), goals="human")
    tasks = [*shop.tasks("val"), *shop.tasks("train")]
    assert len(tasks) > 800
    lost = [shop.shop.goals[task.id].instruction for task in tasks if shop.oracle(task) is None]
    assert len(lost) <= 0.01 * len(tasks), lost


def test_human_files_are_checked(tmp_path, tables):
    items, instructions = tables
    entry = human_entry(items[0])
    del entry["instruction_options"]
    with pytest.raises(DataError, match=r"items_human_ins\.json: B0.*\[0\]\.instruction_options: missing"):
        load(write(tmp_path, items, instructions, {items[0]["asin"]: [entry]}), "human")
    with pytest.raises(DataError, match="must be a list of instructions"):
        load(write(tmp_path, items, instructions, {items[0]["asin"]: entry}), "human")
    with pytest.raises(ConfigError, match=r"env\.goals"):
        WebShop(goals="human")
    with pytest.raises(ConfigError, match=r"env\.goals"):
        WebShop(goals="other")


@pytest.mark.parametrize("reward", ["strict", "upstream"])
def test_the_oracle_wins_real_goals(data_dir, reward):
    shop = WebShop(data_path=str(data_dir / "webshop_real"), reward=reward)
    tasks = [*shop.tasks("val"), *shop.tasks("train")][:: 1 if reward == "strict" else 4]
    lost = [shop.shop.goals[task.id] for task in tasks if shop.oracle(task) is None]
    causes = {goal.id: (goal.product.title, goal.instruction, goal.product.price) for goal in lost}
    assert len(lost) <= 0.01 * len(tasks), causes
