import dataclasses

import pytest

from envs.base import Variant
from envs.check import check
from envs.minihouse import MiniHouse
from envs.minihouse.engine import NOTHING_HAPPENS, House
from envs.minihouse.oracle import solve
from envs.minihouse.rules import KINDS, Rules, rules_of
from envs.minihouse.world import generate
from flwr_agent.errors import ConfigError

NAMES = [f"demo-{number}" for number in range(120)]


@pytest.mark.parametrize(("variant", "kind"), KINDS)
def test_every_variant_stays_solvable_by_an_errand_whose_last_command_wins(variant, kind):
    rules = KINDS[variant, kind]
    for name in NAMES:
        house = House(generate(name), rules)
        won = []
        for command in solve(generate(name), rules):
            assert house.step(command) != NOTHING_HAPPENS
            won.append(house.is_won)
        assert won.index(True) == len(won) - 1, name


@pytest.mark.parametrize(
    ("variant", "kind"),
    [("dyn_variant", "v_examine_gate"), ("goal_variant", "v_examined"), ("goal_variant", "v_closed")],
)
def test_a_variant_that_binds_defeats_the_standard_errand_in_some_games(variant, kind):
    def wins(name):
        house = House(generate(name), KINDS[variant, kind])
        for command in solve(generate(name)):
            house.step(command)
        return house.is_won

    assert not all(map(wins, NAMES))


def test_wording_variants_change_answers_and_not_the_world():
    standard = House(generate("demo-3"))
    for kind in ("v_terse_goto", "v_blind_intro", "v_paraphrase"):
        house = House(generate("demo-3"), KINDS["obs_variant", kind])
        assert house.admissible() == standard.admissible()
        texts = [house.intro(), *map(house.step, solve(generate("demo-3")))]
        other = House(generate("demo-3"))
        assert texts != [other.intro(), *map(other.step, solve(generate("demo-3")))]
        assert house.is_won
        assert house.intro().endswith(f"Your task is to: {generate('demo-3').goal.text}.")


def test_putting_shuts_the_receptacle_when_it_closes_itself():
    house = House(generate("demo-3"), Rules(closes_itself=True))
    commands = solve(generate("demo-3"))
    target = commands[-1].partition(" to ")[2]
    for command in commands:
        house.step(command)
    expected = f"The {target} is closed." if f"open {target}" in commands else "you see"
    assert expected in house.step(f"examine {target}")


def test_a_variant_adapter_keeps_the_contract():
    assert check(MiniHouse(variant=Variant("dyn_variant", {"kind": "v_both", "index": 3})), episodes=3) == []


def test_restricting_the_scenes_leaves_a_generated_household_alone():
    rules = rules_of(Variant("scene_disjoint", {"scenes": [1, 2]}))
    assert rules == Rules(is_worded_alike=True)
    for name in NAMES[:12]:
        one, other = House(generate(name), rules), House(generate(name))
        commands = solve(generate(name))
        assert [one.intro(), *map(one.step, commands)] == [other.intro(), *map(other.step, commands)]


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match=r"dyn_variant\.kind='v_closed': no such kind"):
        rules_of(Variant("dyn_variant", {"kind": "v_closed"}))


def test_fingerprints_tell_variants_apart():
    kinds = [Variant(name, {"kind": kind}) for name, kind in KINDS if kind != "default"]
    assert len({MiniHouse(variant=variant).fingerprint() for variant in kinds}) == len(kinds)


def test_every_rule_is_in_some_variant():
    every = [*KINDS.values(), rules_of(Variant("scene_disjoint", {"scenes": [1]}))]
    used = {field for rules in every for field, value in dataclasses.asdict(rules).items() if value}
    assert used == {field.name for field in dataclasses.fields(Rules)}
