import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint

import pytest

import envs.registry as registry
from envs.base import EnvAdapter, Step, Task, Variant, View
from envs.check import check, play
from envs.registry import SHARED, create, knobs
from flwr_agent.errors import ConfigError


class Echo:
    """A third party's plain class: repeat the word."""

    def __init__(self, *, word: str = "tree", patience: int = 3):
        self.word, self.patience = word, patience

    def tasks(self, split):
        return [Task(f"{split}-{n}", split, {"category": "echo"}) for n in range(4)]

    def reset(self, task, seed):
        self.left = self.patience
        return f"say {self.word}"

    def step(self, action):
        self.left -= 1
        hit = action == self.word
        return ("yes" if hit else "no"), float(hit), hit, not hit and self.left == 0, {}

    def oracle(self, task):
        return [self.word]


@pytest.mark.parametrize("name", ["tinyguess", "minihouse"])
@pytest.mark.parametrize("style", ["paper", "compact"])
def test_every_built_in_environment_is_an_adapter_that_keeps_the_contract(name, style):
    adapter = create(name, {}, style=style)
    assert isinstance(adapter, EnvAdapter)
    assert check(adapter, splits=("train", "val", "demo")) == []


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"env\.name='minihous'.*did you mean 'minihouse'"):
        create("minihous", {})


def test_knobs_are_the_settings_of_the_constructor():
    assert knobs("tinyguess") == knobs("minihouse") == SHARED
    assert knobs(f"{__name__}:Echo") - SHARED == {"word", "patience"}


def test_a_setting_the_environment_does_not_take_is_refused():
    with pytest.raises(ConfigError, match=r"env\.search_return_n=50: environment 'tinyguess' does not use this key"):
        create("tinyguess", {"search_return_n": 50})


@pytest.mark.parametrize("name", ["tinyguess", "minihouse", f"{__name__}:Echo"])
def test_an_unknown_style_or_variant_is_refused(name):
    with pytest.raises(ConfigError, match=r"prompt\.style='fancy'"):
        create(name, {}, style="fancy")
    with pytest.raises(ConfigError, match=r"partition\.strategy='bm25_reweight'"):
        create(name, {}, variant=Variant("bm25_reweight"))


@pytest.mark.parametrize(
    ("name", "message"),
    [("no_such_module:Env", "cannot be found"), (f"{__name__}:Absent", "has no 'Absent'")],
)
def test_a_missing_module_or_class_is_named(name, message):
    with pytest.raises(ConfigError, match=message):
        create(name, {})


def test_a_missing_package_of_a_built_in_names_its_extra(tmp_path, monkeypatch):
    (tmp_path / "needs_engine.py").write_text("import an_engine_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "BUILTIN", {"heavy": "needs_engine:Env"})
    with pytest.raises(ConfigError, match=r"'an_engine_nobody_has': pip install 'flwr-agent\[heavy\]'"):
        create("heavy", {})


def test_an_entry_point_is_found_by_its_name(monkeypatch):
    point = EntryPoint("echo", f"{__name__}:Echo", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda **_: [point])
    assert create("echo", {"word": "sky"}).name == "echo"


@pytest.mark.parametrize("name", ["webshop", "minihouse", "tinyguess", f"{__name__}:Echo"])
def test_adapters_built_at_once_in_many_threads_serve_one_task_list(name):
    def facts(_):
        adapter = create(name, {})
        return adapter.fingerprint(), [task.id for task in adapter.tasks("train")]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(facts, range(16)))
    assert all(one == found[0] for one in found)
    assert found[0] == facts(None)


def test_nothing_is_imported_before_it_is_asked_for():
    code = "import sys, envs.registry as r; r.create('tinyguess', {}); print([m for m in sys.modules if 'house' in m])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_plain_class_becomes_an_adapter_that_keeps_the_contract():
    adapter = create(f"{__name__}:Echo", {"word": "sky"})
    assert check(adapter, episodes=2) == []
    assert "say sky" in adapter.render(View("say sky", "say sky", None))
    assert create(f"{__name__}:Echo", {}, style="compact").parse_action(" Tree \n") == ("tree", True)


def doubled(*, patience: int = 1, style: str, variant: Variant | None = None):
    return create(f"{__name__}:Echo", {"word": "tree tree", "patience": patience}, style=style, variant=variant)


def test_a_function_that_returns_an_adapter_is_named_like_a_class():
    assert knobs(f"{__name__}:doubled") == {"patience"} | SHARED
    adapter = create(f"{__name__}:doubled", {"patience": 2})
    assert adapter.oracle(adapter.tasks("train")[0]) == ["tree tree"]


def test_a_plain_class_plays_with_its_own_settings():
    adapter = create(f"{__name__}:Echo", {"word": "sky", "patience": 2})
    task = adapter.tasks("train")[0]
    won = asyncio.run(play(adapter, task, ["tree", "sky"], seed=0))
    assert [step.reward for step in won] == [0.0, 0.0, 1.0]
    assert won[-1].info["success"]
    lost = asyncio.run(play(adapter, task, ["a", "b", "sky"], seed=0))
    assert lost[-1] == Step("no", truncated=True, info={"success": False, "task_score": 0.0, "task_id": task.id})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('two\\nlines')", r"cannot be imported: RuntimeError: two lines \(.*odd\.py:1\)"),
        ("x = (", r"cannot be imported: SyntaxError: .*odd\.py:1\)"),
        ("import odd_package_nobody_has", "needs the package 'odd_package_nobody_has'"),
        (
            "class World:\n    make = None\n    def __init__(self, *, style, variant=None): {}['x']",
            r"cannot be made: KeyError: 'x' \(.*:3\)",
        ),
        (
            "class World:\n    make = None\n    def __init__(self): pass",
            "cannot be made: TypeError: .*unexpected keyword argument 'style'",
        ),
        (
            "def World(*, style, variant): return object()",
            "has no name and no version and no tasks and .* and no fingerprint; write tasks, reset",
        ),
        ("class World:\n    step = tasks = print", "has no reset; write tasks, reset and step"),
        ("raise SystemExit(4)", "cannot be imported: SystemExit: 4"),
        ("import json\n\njson.loads('{')", r"cannot be imported: JSONDecodeError: .* \(.*odd\.py:3\)"),
        ("World = 3", "is neither a class nor a function"),
        ("from datetime import datetime as World", "is no environment: ValueError: no signature found"),
    ],
)
def test_other_people_s_code_that_breaks_is_one_line_that_says_where(source, message, tmp_path, monkeypatch):
    (tmp_path / "odd.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "odd", raising=False)
    with pytest.raises(ConfigError, match=rf"^env\.name='odd:World': .*{message}") as caught:
        create("odd:World", {})
    assert "\n" not in str(caught.value)
    monkeypatch.delitem(sys.modules, "odd", raising=False)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (None, "tasks\\('val'\\) fails: TypeError"),
        (["a"], "gives 'a'; it must give envs.base.Task"),
        ([Task(1, "val", {"category": "a"})], "its id a text"),  # type: ignore[arg-type]
        ([Task("1", "val", None)], "its meta a mapping"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_list_of_tasks_is_one_line(listed, message, monkeypatch):
    monkeypatch.setattr(Echo, "tasks", lambda self, split: listed)
    with pytest.raises(ConfigError, match=message):
        create(f"{__name__}:Echo", {}).tasks("val")


def test_an_answer_that_is_no_step_is_named(monkeypatch):
    monkeypatch.setattr(Echo, "reset", lambda self, task, seed: None)
    with pytest.raises(TypeError, match="must give a Step, a text or Gymnasium's five values, not None"):
        asyncio.run(play(create(f"{__name__}:Echo", {}), Task("1", "val", {}), [], seed=0))


@pytest.mark.parametrize("answer", [("a", 1.0), ("a", 1.0, True, False, {}, 3)])
def test_a_tuple_of_another_length_is_named(answer, monkeypatch):
    monkeypatch.setattr(Echo, "step", lambda self, action: answer)
    with pytest.raises(TypeError, match=r"Gymnasium's five values, not \('a', 1.0"):
        asyncio.run(play(create(f"{__name__}:Echo", {}), Task("1", "val", {}), ["x"], seed=0))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("webshop", {"search_return_n": "abc"}, r"search_return_n='abc': must be of type int, not str"),
        ("harbor", {"max_commands": 1.5}, r"max_commands=1\.5: must be of type int, not float"),
        (f"{__name__}:Echo", {"patience": "x"}, r"env\.settings\.patience='x': must be of type int, not str"),
        (f"{__name__}:Echo", {"patience": True}, r"patience=True: must be of type int, not bool"),
        (f"{__name__}:Echo", {"word": 5}, r"word=5: must be of type str, not int"),
        (f"{__name__}:Texts", {"rate": "high"}, r"rate='high': must be of type float, not str"),
    ],
)
def test_a_setting_of_another_type_than_annotated_is_refused(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        create(name, settings)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (("a", 1.0, True, False, None), "info must be a mapping, not None"),
        (Step("a", admissible=5), "admissible must be a tuple of texts or None, not 5"),  # type: ignore[arg-type]
    ],
)
def test_a_part_of_a_step_that_is_of_another_kind_is_named(answer, message, monkeypatch):
    monkeypatch.setattr(Echo, "step", lambda self, action: answer)
    with pytest.raises(TypeError, match=message):
        asyncio.run(play(create(f"{__name__}:Echo", {}), Task("1", "val", {}), ["x"], seed=0))


class Texts(Echo):
    """Annotations as texts, and some that are not plain."""

    def __init__(self, *, rate: "float" = 1.0, words: "list[str] | None" = None, bare=1):
        super().__init__()


def test_a_setting_whose_annotation_is_not_plain_may_be_anything():
    assert create(f"{__name__}:Texts", {"rate": 2, "words": ["a"], "bare": "b"}).name == f"{__name__}:Texts"


class Needy(Echo):
    def __init__(self, *, word: str):
        super().__init__(word=word)


def test_a_setting_without_a_default_must_be_given():
    with pytest.raises(ConfigError, match=r"env\.settings\.word='': environment '.*:Needy' needs a value"):
        create(f"{__name__}:Needy", {})
    assert create(f"{__name__}:Needy", {"word": "sky"}).oracle(Task("t", "train")) == ["sky"]


def test_two_settings_have_two_fingerprints():
    one, two = (create(f"{__name__}:Echo", {"word": word}) for word in ("sky", "sea"))
    assert one.fingerprint() != two.fingerprint()
