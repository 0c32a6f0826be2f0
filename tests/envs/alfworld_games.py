"""ALFWorld game files made for tests: the layout, vocabularies and scene features of the published ones."""

import functools
import json
import re
import runpy
from importlib.util import find_spec
from pathlib import Path

from envs.minihouse.oracle import solve
from envs.minihouse.pddl import game
from envs.minihouse.world import generate, kind


def package():
    return Path(find_spec("alfworld").submodule_search_locations[0])


@functools.cache
def goal_library():
    """Type of task -> its goal and its two wordings, of the installed package."""
    return runpy.run_path(str(package() / "gen" / "goal_library.py"))["gdict"]


def logic():
    """Domain and grammar of the installed package."""
    data = package() / "data"
    return tuple((data / name).read_text() for name in ("alfred.pddl", "alfred.twl2"))


def modern(name, **changes):
    """The game of a generated household, as a dict."""
    world = generate(name)
    return {**json.loads(game(world, *logic(), solve(world))), **changes}


def old_vocabulary(content):
    """The same game in the words of the 2.1.1 release: `put X in/on Y`, and no help."""
    grammar = content["grammar"].replace("move {o} to {r}", "put {o} in/on {r}")
    grammar = grammar.replace("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}.")
    grammar = re.sub(r"action help \{.*", "", grammar, flags=re.DOTALL)
    domain = re.sub(r"\(:action help.*", ")", content["pddl_domain"], flags=re.DOTALL)
    walkthrough = [re.sub(r"^move (.*) to ", r"put \1 in/on ", command) for command in content["walkthrough"]]
    return {**content, "grammar": grammar, "pddl_domain": domain, "walkthrough": walkthrough}


def crowded(content):
    """The same game with its receptacles standing two by two at one place."""
    problem = content["pddl_problem"]
    merged = re.sub(r"loc_bar_(\d+)", lambda m: f"loc_bar_{(int(m[1]) + 1) // 2}", problem)
    declared = sorted(set(re.findall(r"loc_bar_\d+ - location", merged)))
    merged = re.sub(r"loc_bar_\d+ - location ?", "", merged)
    return {**content, "pddl_problem": merged.replace("(:objects ", f"(:objects {' '.join(declared)} ")}


def published(content, goal, *, wording=0):
    """The same game with its goal and its sentence as ALFWorld's own generator writes them, in one of two wordings."""
    library = goal_library()[goal.type]
    names = {"obj": goal.object, "recep": goal.target, "toggle": goal.target}
    wanted, sentence = library["pddl"].replace("#", "-"), library["templates"][wording].format(**names)
    for name in names:
        wanted = wanted.replace(
            "{" + name + "}Type", re.search(rf"(?i)\b{names[name]}Type\b", content["pddl_problem"])[0]
        )
    start = content["pddl_problem"].partition("(:goal")[0]
    grammar = content["grammar"].replace(f"Your task is to: {goal.text}.", f"Your task is to: {sentence}.")
    return {**content, "pddl_problem": start + wanted, "grammar": grammar}


def write(folder, split, name, content, *, trial="trial_T1", spec=None):
    """A game file at the place a data folder has it; its split-relative path."""
    world = generate(name)
    spec = spec or f"{world.goal.type}-{kind(world.goal.object)}-None-{world.goal.target}-{world.scene}"
    path = folder / split / spec / trial / "game.tw-pddl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path.relative_to(folder / split).as_posix()
