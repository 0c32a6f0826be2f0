"""How often two worlds answer the same action in the same state differently, on the states that a policy visits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envs.base import EnvAdapter, Step, Task, View

Policy = Callable[[Task, View], str]
"""What to do next, as the environment understands it (already parsed)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """A Monte-Carlo estimate of the on-policy kernel distance.

    Example:
        >>> Disagreement(num_compared=40, num_different=10, num_unforced=3).rate
        0.25
    """

    num_compared: int
    """Steps taken from a state that both worlds were in."""
    num_different: int
    """Those of them whose next states differ."""
    num_unforced: int
    """Steps of the policy at which the second world could not be brought into the first one's state."""

    @property
    def rate(self) -> float:
        """Share of compared steps whose next states differ, 0 if none could be compared."""
        return self.num_different / self.num_compared if self.num_compared else 0.0


async def disagreement(
    first: EnvAdapter, second: EnvAdapter, policy: Policy, tasks: Sequence[Task], *, seed: int, max_turns: int
) -> Disagreement:
    """Estimate `E[TV(P_first, P_second)]` over the states and actions of `policy` in the first world.

    The policy acts in `first`; `second` replays its actions. Where both then show the same (observation, admissible
    actions, end) they count as being in one state, and their next states are compared. This is exact for
    deterministic worlds whose view determines the state, and an upper bound for stochastic ones. After a difference
    the worlds may meet again; until they do, steps cannot be compared and are counted apart.
    """
    total = [0, 0, 0]
    for number, task in enumerate(tasks):
        counts = await _episode(first, second, policy, task, seed=seed + number, max_turns=max_turns)
        total = [a + b for a, b in zip(total, counts, strict=True)]
    return Disagreement(num_compared=total[0], num_different=total[1], num_unforced=total[2])


async def _episode(
    first: EnvAdapter, second: EnvAdapter, policy: Policy, task: Task, *, seed: int, max_turns: int
) -> tuple[int, int, int]:
    lead, follow = first.make(), second.make()
    compared = different = unforced = 0
    try:
        here, there = await lead.reset(task, seed=seed), await follow.reset(task, seed=seed)
        instruction = str(here.info.get("instruction", here.text))
        history: list[tuple[str, str]] = []
        while not here.done and len(history) < max_turns:
            view = View(instruction, here.text, here.admissible, tuple(history), len(history))
            action = policy(task, view)
            history.append((here.text, action))
            is_shared = _state(here) == _state(there)
            here, there = await lead.step(action), await follow.step(action)
            compared += is_shared
            unforced += not is_shared
            different += is_shared and _state(here) != _state(there)
    finally:
        await lead.close()
        await follow.close()
    return compared, different, unforced


def _state(step: Step) -> tuple[str, tuple[str, ...] | None, bool, float]:
    return step.text, step.admissible, step.done, step.reward
