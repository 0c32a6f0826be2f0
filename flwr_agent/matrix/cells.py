"""The cells of the published matrix, and the file names that say which is which.

A name is `fed_<env>_<algorithm>_total-<N>_cl-per-rd-<M>_rd-<T>_ep-per-cl-<E>_min-goals-per-cl-<L>_p-<arm>[_<knob>-<value>].yaml`;
the folder it lies in says the model and the seed. Both directions are exact: `Cell.parse(cell.path) == cell`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from flwr_agent.errors import ConfigError

ENVS, ALGORITHMS = ("webshop", "alfworld"), ("grpo", "ppo")
BACKBONES = {
    "Qwen2.5-1.5B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen2.5-3B-Instruct": "Qwen/Qwen2.5-3B-Instruct",
    "Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-7B-Instruct",
    "Llama-3.2-3B-Instruct": "meta-llama/Llama-3.2-3B-Instruct",
}
"""Folder name -> Hugging Face id."""
ANCHOR_MODEL = "Qwen2.5-1.5B-Instruct"
"""The one that every family but `uniform` uses."""
SETTINGS = ("main", "main_seed1", "main_seed2", "centralized", "local_client1", "local_client2", "local_client3")
UNIFORM, TASK, ENV, DECENTRALIZED = "uniform", "task_heterogeneity", "env_heterogeneity", "decentralized"
FAMILIES = (UNIFORM, ENV, TASK, DECENTRALIZED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How much is trained, by whom."""

    total_clients: int = 100
    """Clients in the federation (N)."""
    clients_per_round: int = 2
    """Clients asked each round (M)."""
    rounds: int = 70
    """Federated rounds (T)."""
    epochs_per_round: int = 3
    """Steps of a client in one round (E)."""
    tasks_per_client: int = 100
    """Tasks a client holds at least (L)."""


ANCHOR = Shape()
SHAPES = {
    "centralized": Shape(total_clients=1, clients_per_round=1, rounds=1, epochs_per_round=210),
    **{f"local_client{number}": Shape(clients_per_round=1) for number in (1, 2, 3)},
}
"""Settings that are not of the anchor's shape."""
CHANGES = {
    "ep_per_round_change": (Shape(rounds=210, epochs_per_round=1), Shape(rounds=42, epochs_per_round=5)),
    "samples_change": (Shape(tasks_per_client=500), Shape(tasks_per_client=1000)),
    "selected_cl_change": (Shape(clients_per_round=1), Shape(clients_per_round=4)),
}
"""Folder of the decentralized family -> the shapes in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One way to deal tasks and worlds to the clients."""

    strategy: str
    """`partition.strategy`."""
    family: str
    """Where its cells belong."""
    knobs: dict[str, str]
    """Word in the file name -> key of `partition`; an empty key is a mark of the control's counterpart."""
    points: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """`(env, algorithm, values)` of its cells; one value for each knob, spelled as in the file name."""

    def suffix(self, values: tuple[str, ...]) -> str:
        """What follows the arm's label in a file name."""
        return "".join(f"_{word}-{value}" for word, value in zip(self.knobs, values, strict=True))


def _everywhere(*values: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    return tuple((env, algorithm, (value,)) for algorithm, env, value in product(ALGORITHMS, ENVS, values))


def _sweep(
    env: str, grpo: tuple[str, ...], ppo: tuple[str, ...], *fixed: str
) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """All of a knob's values with GRPO, the most divergent one with PPO."""
    return (*((env, "grpo", (value, *fixed)) for value in grpo), *((env, "ppo", (value, *fixed)) for value in ppo))


_DIVERGENCES = ("0.0", "0.3", "0.7", "1.0")
ARMS = {
    "uniform": Arm(strategy="uniform", family=UNIFORM, knobs={}),
    "preference": Arm(strategy="preference", family=TASK, knobs={"omega": "omega"}, points=_everywhere("0.01", "0.99")),
    "coverage": Arm(strategy="coverage", family=TASK, knobs={"std": "size_std"}, points=_everywhere("1", "256")),
    "hardness": Arm(
        strategy="hardness", family=TASK, knobs={"success_std": "success_std"}, points=_everywhere("1", "256")
    ),
    "catalog_split": Arm(
        strategy="catalog_split",
        family=ENV,
        knobs={"div": "env_div", "keep": "keep_ratio"},
        points=_sweep("webshop", _DIVERGENCES, ("1.0",), "0.7"),
    ),
    "task_disjoint": Arm(
        strategy="task_disjoint",
        family=ENV,
        knobs={"div": "", "keep": ""},
        points=_sweep("webshop", _DIVERGENCES, (), "0.7"),
    ),
    "field_subset_index": Arm(
        strategy="bm25_field_subset",
        family=ENV,
        knobs={"N": "variant_n"},
        points=_sweep("webshop", ("4", "8"), ("4",)),
    ),
    "bm25_reweighting": Arm(
        strategy="bm25_reweight", family=ENV, knobs={"N": "variant_n"}, points=_sweep("webshop", ("4", "8"), ("4",))
    ),
    "lookalike_injection": Arm(
        strategy="lookalike", family=ENV, knobs={"N": "variant_n"}, points=_sweep("webshop", ("2", "4"), ("4",))
    ),
    "rank_wrapper": Arm(
        strategy="rank_wrapper", family=ENV, knobs={"N": "variant_n"}, points=_sweep("webshop", ("4",), ("4",))
    ),
    "scene_disjoint": Arm(
        strategy="scene_disjoint",
        family=ENV,
        knobs={"div": "env_div", "spc": "scenes_per_client"},
        points=_sweep("alfworld", _DIVERGENCES, ("1.0",), "8"),
    ),
    **{
        name: Arm(strategy=name, family=ENV, knobs={"N": "variant_n"}, points=_sweep("alfworld", ("2", "4"), ("4",)))
        for name in ("obs_variant", "dyn_variant", "goal_variant")
    },
}
"""Token in a file name -> the arm."""

_NAME = re.compile(
    r"fed_(?P<env>[a-z]+)_(?P<algorithm>[a-z]+)_total-(?P<total_clients>\d+)_cl-per-rd-(?P<clients_per_round>\d+)"
    r"_rd-(?P<rounds>\d+)_ep-per-cl-(?P<epochs_per_round>\d+)_min-goals-per-cl-(?P<tasks_per_client>\d+)_p-(?P<arm>.+)"
)
_NUMBERS = ("total_clients", "clients_per_round", "rounds", "epochs_per_round", "tasks_per_client")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One experiment.

    Example:
        >>> Cell(env="webshop", algorithm="grpo").path
        'uniform/Qwen2.5-1.5B-Instruct/main/grpo/fed_webshop_grpo_total-100_cl-per-rd-2_rd-70_ep-per-cl-3_min-goals-per-cl-100_p-uniform'
    """

    env: str
    """`webshop` or `alfworld`."""
    algorithm: str
    """`grpo` or `ppo`."""
    label: str = "uniform"
    """Its arm, a key of `ARMS`."""
    values: tuple[str, ...] = ()
    """Of the arm's knobs, spelled as in the file name."""
    shape: Shape = ANCHOR
    backbone: str = ANCHOR_MODEL
    """A key of `BACKBONES`."""
    setting: str = "main"
    """One of `SETTINGS`: which seed, or which baseline."""

    @property
    def arm(self) -> Arm:
        """How tasks and worlds are dealt."""
        return ARMS[self.label]

    @property
    def family(self) -> str:
        """One of `FAMILIES`."""
        return DECENTRALIZED if self.change else self.arm.family

    @property
    def change(self) -> str:
        """Folder of the decentralized family, empty outside it."""
        is_decentralized = self.label == "uniform" and self.setting == "main"
        return next((name for name, shapes in CHANGES.items() if is_decentralized and self.shape in shapes), "")

    @property
    def name(self) -> str:
        """File name without its ending."""
        shape = self.shape
        return (
            f"fed_{self.env}_{self.algorithm}_total-{shape.total_clients}_cl-per-rd-{shape.clients_per_round}"
            f"_rd-{shape.rounds}_ep-per-cl-{shape.epochs_per_round}_min-goals-per-cl-{shape.tasks_per_client}"
            f"_p-{self.label}{self.arm.suffix(self.values)}"
        )

    @property
    def path(self) -> str:
        """Where the cell is in the matrix: its folder and its file name without the ending."""
        folders = {
            UNIFORM: (self.backbone, self.setting, self.algorithm),
            TASK: (self.algorithm, self.env),
            ENV: (self.algorithm, self.env, self.label),
            DECENTRALIZED: (self.change, self.algorithm),
        }
        return "/".join((self.family, *folders[self.family], self.name))

    @classmethod
    def parse(cls, path: str) -> Cell:
        """The cell that a path or a bare file name says; without its folder it is the 1.5B model's with seed 42.

        Raises:
            ConfigError: the name does not follow the grammar, or its folder contradicts it.
        """
        *folders, name = path.removesuffix(".yaml").split("/")
        match = _NAME.fullmatch(name)
        if match is None or match["env"] not in ENVS or match["algorithm"] not in ALGORITHMS:
            raise ConfigError("cell", path, "is not named fed_<env>_<algorithm>_total-<N>_…_p-<arm>[_<knob>-<value>]")
        label, values = _arm(match["arm"], path)
        shape = Shape(**{field: int(match[field]) for field in _NUMBERS})
        alone = "centralized" if shape.total_clients == 1 else "main"
        backbone, setting = folders[1:3] if len(folders) == 4 and folders[0] == UNIFORM else (ANCHOR_MODEL, alone)
        cell = cls(
            env=match["env"],
            algorithm=match["algorithm"],
            label=label,
            values=values,
            shape=shape,
            backbone=backbone,
            setting=setting,
        )
        if (
            backbone not in BACKBONES
            or setting not in SETTINGS
            or (folders and "/".join((*folders, name)) != cell.path)
        ):
            raise ConfigError("cell", path, f"is not where such a cell belongs ({cell.path})")
        return cell


def _arm(text: str, path: str) -> tuple[str, tuple[str, ...]]:
    """Token and values of `<arm>[_<knob>-<value>]…`."""
    for label, arm in ARMS.items():
        pattern = re.escape(label) + "".join(rf"_{re.escape(word)}-([0-9.]+)" for word in arm.knobs)
        if match := re.fullmatch(pattern, text):
            return label, match.groups()
    raise ConfigError("cell", path, f"ends in p-{text}, which is no arm with its knobs", allowed=ARMS)


@cache
def cells() -> tuple[Cell, ...]:
    """All 194, family by family."""
    return tuple(_cells())


def _cells() -> Iterator[Cell]:
    for backbone, setting, algorithm, env in product(BACKBONES, SETTINGS, ALGORITHMS, ENVS):
        shape = SHAPES.get(setting, ANCHOR)
        yield Cell(env=env, algorithm=algorithm, shape=shape, backbone=backbone, setting=setting)
    for family in (ENV, TASK):
        for label, arm in ARMS.items():
            if arm.family == family:
                yield from (Cell(env=e, algorithm=a, label=label, values=v) for e, a, v in arm.points)
    for shapes, algorithm, env in product(CHANGES.values(), ALGORITHMS, ENVS):
        yield from (Cell(env=env, algorithm=algorithm, shape=shape) for shape in shapes)


def find(text: str) -> Cell:
    """The one cell whose path is, or contains, `text`.

    Raises:
        ConfigError: none or several; names the nearest.
    """
    text = text.removesuffix(".yaml")
    found = [cell for cell in cells() if text == cell.path] or [cell for cell in cells() if text in cell.path]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            "cell", text, f"is in the paths of {len(found)} cells, such as {found[0].path}; give more of it"
        )
    paths = [cell.path for cell in cells()]
    near = difflib.get_close_matches(text, paths, n=1, cutoff=0.3) or paths[:1]
    raise ConfigError("cell", text, f"no such cell; `matrix --list` shows all; nearest: {near[0]}")
