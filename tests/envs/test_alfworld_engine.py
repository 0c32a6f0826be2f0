"""Three engines, one behaviour: MiniHouse == fast TextWorld, and fast == stock TextWorld; hence all three agree."""

import json
import random
import time

import pytest

from envs.minihouse.engine import House
from envs.minihouse.oracle import solve
from envs.minihouse.rules import KINDS
from envs.minihouse.world import generate
from flwr_agent.errors import DataError
from tests.envs.alfworld_games import crowded, modern, old_vocabulary

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
pytest.importorskip("textworld", reason="needs the extra alfworld")

from envs.alfworld.engine import open_engine  # noqa: E402
from envs.alfworld.fast import FastEngine, parse_grammar, translate  # noqa: E402
from envs.alfworld.rewrite import rewrite  # noqa: E402

BINDING = [key for key in KINDS if key[1] != "default"]


@pytest.fixture(scope="module")
def engine():
    return open_engine()


def house_scene(house, text):
    return text, house.admissible(), house.is_won


def assert_equal_play(engine, content, house, *, num_steps, seed):
    """Both play the same random commands and show the same; `help` is worded differently on purpose."""
    draw = random.Random(seed)
    scene = engine.load(content)
    assert tuple(scene) == house_scene(house, house.intro())
    for _ in range(num_steps):
        command = draw.choice([*scene.admissible, "dance"])
        scene = engine.step(command)
        text = house.step(command)
        assert tuple(scene) == house_scene(house, scene.text if command == "help" else text), command


def play(engine, content, commands):
    return [engine.load(content), *map(engine.step, commands)]


@pytest.mark.slow
def test_minihouse_equals_textworld_on_60_worlds_of_80_random_steps(engine):
    for number in range(60):
        content = modern(f"demo-{number}")
        assert_equal_play(engine, content, House(generate(f"demo-{number}")), num_steps=80, seed=number)


def test_minihouse_equals_textworld_on_six_worlds(engine):
    for number in range(6):
        content = modern(f"train-{number}")
        assert_equal_play(engine, content, House(generate(f"train-{number}")), num_steps=80, seed=number)


@pytest.mark.parametrize("key", BINDING, ids=" ".join)
def test_minihouse_equals_textworld_under_every_variant(engine, key):
    for number in range(3, 6):
        name, rules = f"demo-{number}", KINDS[key]
        content = rewrite(modern(name), rules, name)
        assert_equal_play(engine, content, House(generate(name), rules), num_steps=60, seed=number)
        scenes = play(engine, content, solve(generate(name), rules))
        assert [scene.is_won for scene in scenes].index(True) == len(scenes) - 1


@pytest.mark.slow
def test_the_oracle_wins_every_game_at_its_last_command(engine):
    for number in range(60):
        name = f"val-{number}"
        scenes = play(engine, modern(name), solve(generate(name)))
        assert [scene.is_won for scene in scenes].index(True) == len(scenes) - 1, name


@pytest.mark.parametrize("form", [modern, lambda n: old_vocabulary(modern(n)), lambda n: crowded(modern(n))])
@pytest.mark.parametrize("number", [3, 5])
def test_the_fast_engine_equals_the_stock_one(engine, form, number):
    content, draw = form(f"demo-{number}"), random.Random(number)
    stock = open_engine(is_stock=True)
    assert not isinstance(stock, FastEngine)
    one, two = engine.load(content), stock.load(content)
    for _ in range(20):
        assert one == two
        command = draw.choice([*one.admissible, "dance"])
        one, two = engine.step(command), stock.step(command)
    assert one == two


def test_old_games_are_played_and_won_in_their_own_words(engine):
    content = old_vocabulary(modern("demo-3"))
    scenes = play(engine, content, content["walkthrough"])
    assert scenes[-1].is_won
    assert "help" not in scenes[0].admissible
    assert any(command.startswith("put ") for command in scenes[-2].admissible)
    assert scenes[-1].text.startswith("You put the ")


def test_receptacles_at_one_place_are_reached_together(engine):
    scene = engine.load(crowded(modern("demo-3")))
    first = next(command for command in scene.admissible if command.startswith("go to "))
    examined = [c for c in engine.step(first).admissible if c.startswith("examine ")]
    assert len(examined) == 2


def test_an_engine_is_reused_without_a_trace_of_the_last_game(engine):
    content, commands = modern("demo-4"), solve(generate("demo-4"))
    first = play(engine, content, commands)
    play(engine, modern("demo-5"), ["look", "inventory"])
    assert play(engine, content, commands) == first


def test_games_that_differ_in_their_sentence_share_one_parsed_grammar():
    (one, sentence), (two, other) = (parse_grammar(modern(name)["grammar"]) for name in ("demo-3", "demo-4"))
    assert one is two
    assert [str(symbol) for symbol in sentence["task"][0].rhs] != [str(symbol) for symbol in other["task"][0].rhs]


def test_a_template_that_calls_python_is_refused(engine):
    content = modern("demo-3")
    evil = content["grammar"].replace("You open the {r.name}.", "You open the {r.__class__}.")
    engine.load({**content, "grammar": evil})
    place = next(c for c in solve(generate("demo-3")) if c.startswith("open "))
    engine.step(place.replace("open", "go to"))
    with pytest.raises(DataError, match="cannot read the expression"):
        engine.step(place)


def test_a_rewrite_that_does_not_fit_the_file_is_refused():
    content = modern("demo-3")
    broken = {**content, "grammar": content["grammar"].replace("GotoLocation.feedback", "Walk.feedback")}
    with pytest.raises(DataError, match=r"demo-3: grammar: .* occurs 0 times"):
        rewrite(broken, KINDS["obs_variant", "v_terse_goto"], "demo-3")


@pytest.mark.parametrize("key", BINDING, ids=" ".join)
def test_old_games_take_every_variant_too_and_keep_their_sentence(engine, key):
    content = old_vocabulary(modern("demo-3"))
    scene = engine.load(rewrite(content, KINDS[key], "demo-3"))
    assert scene.text.endswith(f"Your task is to: {generate('demo-3').goal.text}.")


def test_nested_goals_as_published_are_rewritten_once_per_receptacle():
    goal = """(:goal (and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 MugType)
        (receptacleType ?r ShelfType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2))
        (objectType ?o2 MugType) (receptacleType ?r ShelfType) (inReceptacle ?o2 ?r))))))))"""
    changed = rewrite({"pddl_problem": f"(p {goal})"}, KINDS["goal_variant", "v_both"], "g")["pddl_problem"]
    assert changed.count("(checked ?r)") == changed.count("(not (opened ?r))") == 2
    light = "(:goal (and (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o)))))"
    changed = rewrite({"pddl_problem": f"(p {light})"}, KINDS["goal_variant", "v_both"], "g")["pddl_problem"]
    assert "(holds ?a ?o) (checked ?o)" in changed
    assert "opened" not in changed


@pytest.mark.slow
def test_cached_play_makes_15_episodes_a_second_and_20_times_the_stock_step_rate(engine):
    content = modern("demo-3")
    stock = open_engine(is_stock=True)

    def seconds_per_step(player, num_steps):
        scene, draw = player.load(content), random.Random(0)
        start = time.process_time()
        for _ in range(num_steps):
            scene = player.step(draw.choice(scene.admissible))
        return (time.process_time() - start) / num_steps

    seconds_per_step(engine, 30)
    ratios = [seconds_per_step(stock, 10) / seconds_per_step(engine, 100) for _ in range(2)]
    assert max(ratios) >= 20
    start = time.process_time()
    for _ in range(20):
        seconds_per_step(engine, 30)
    assert 20 / (time.process_time() - start) >= 15


def test_a_translation_is_made_once_per_game(engine):
    content = modern("demo-7")
    engine.load(content)
    before = translate.cache_info().misses
    engine.load(json.loads(json.dumps(content)))
    assert translate.cache_info().misses == before
