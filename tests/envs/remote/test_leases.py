"""No slot is lost, no step is applied twice, nothing waits for ever: whatever clients do."""

import asyncio
import random

import pytest

from envs.base import Step, Task
from envs.remote.leases import NUM_REMEMBERED, BusyError, Leases, LostError
from flwr_agent.errors import EnvError
from tests.envs.remote.hosting import Tally

TASK = Task("t", "train")


class Jumping(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next thing due, so that waits cost nothing and a slow machine changes nothing."""

    def __init__(self):
        super().__init__()
        self.now, select = 0.0, self._selector.select

        def jump(timeout=None):
            assert timeout is not None, "everything waits for ever"
            self.now += timeout
            return select(0)

        self._selector.select = jump

    def time(self):
        return self.now


def run(scenario):
    Tally.live, Tally.misused = 0, []
    with asyncio.Runner(loop_factory=Jumping) as runner:
        runner.run(scenario())
    assert (Tally.live, Tally.misused) == (0, [])


def test_two_thousand_random_clients_lose_no_slot_and_apply_no_step_twice():  # noqa: C901
    async def client(leases: Leases, number: int) -> str:  # noqa: C901
        draw = random.Random(number)
        key, seq, asked = f"episode-{number}", 0, []
        await asyncio.sleep(draw.random() * 20)

        async def patiently(make_call) -> Step:
            """Ask, give up now and then, ask the same again, sometimes twice at once."""
            while True:
                copies = [asyncio.ensure_future(make_call()) for _ in range(draw.choice((1, 1, 2)))]
                done, late = await asyncio.wait(copies, timeout=draw.choice((0.001, 0.01, 5.0, 5.0)))
                for copy in late:
                    copy.cancel()
                answers = [copy.result() for copy in done if not copy.exception()]
                if answers:
                    assert all(answer == answers[0] for answer in answers)
                    return answers[0]
                for copy in done:
                    if not isinstance(copy.exception(), BusyError):
                        raise copy.exception()
                await asyncio.sleep(draw.random() * 0.5)

        try:
            await patiently(lambda: leases.reset(key, lambda: Tally(draw), TASK, seed=0))
            for seq in range(1, draw.randrange(8)):
                asked.append(await patiently(lambda seq=seq: leases.step(key, seq, "go")))  # noqa: PERF401
        except LostError:
            return "lost"
        assert [step.text for step in asked] == [f"go {n + 1}" for n in range(len(asked))]
        if draw.random() < 0.04:
            return "left"
        for _ in range(draw.choice((1, 2, 3))):
            leases.close(key)
        return "closed"

    async def scenario():
        leases = Leases(slots=32, wait_s=0.5, step_s=5.0, ttl_s=1.0)
        ends = await asyncio.gather(*(client(leases, number) for number in range(2_000)))
        assert {end: ends.count(end) for end in set(ends)}["closed"] > 1_000
        assert ends.count("left") > 20
        await asyncio.sleep(1.5)
        assert leases.num_taken == 0
        assert await asyncio.gather(*(leases.reset(f"n{n}", Tally, TASK, seed=0) for n in range(32)))
        await leases.aclose()
        assert leases.num_taken == 0

    run(scenario)


def test_a_reset_that_comes_twice_takes_one_slot():
    async def scenario():
        leases = Leases(slots=4)
        both = await asyncio.gather(*(leases.reset("a", Tally, TASK, seed=0) for _ in range(2)))
        assert both[0] == both[1]
        assert leases.num_taken == 1
        await leases.aclose()

    run(scenario)


def test_only_the_last_request_may_be_repeated_and_only_the_next_one_follows():
    async def scenario():
        leases = Leases(slots=1)
        await leases.reset("a", Tally, TASK, seed=0)
        assert (await leases.step("a", 1, "x")).text == (await leases.step("a", 1, "x")).text == "x 1"
        assert (await leases.step("a", 2, "x")).text == "x 2"
        for seq in (0, 1, 4):
            with pytest.raises(LostError, match="does not follow"):
                await leases.step("a", seq, "x")
        with pytest.raises(LostError, match="gone on"):
            await leases.reset("a", Tally, TASK, seed=0)
        await leases.aclose()

    run(scenario)


def test_a_reset_that_arrives_after_the_close_begins_nothing():
    async def scenario():
        leases = Leases(slots=1)
        leases.close("a")
        with pytest.raises(LostError, match="closed"):
            await leases.reset("a", Tally, TASK, seed=0)
        assert leases.num_taken == 0

    run(scenario)


def test_closed_episodes_are_remembered_in_bounded_memory():
    async def scenario():
        leases = Leases(slots=1)
        for number in range(NUM_REMEMBERED + 10):
            leases.close(str(number))
        assert len(leases._closed) == NUM_REMEMBERED

    run(scenario)


def test_a_full_house_refuses_in_time_and_serves_again():
    async def scenario():
        leases = Leases(slots=1, wait_s=0.05)
        await leases.reset("a", Tally, TASK, seed=0)
        with pytest.raises(BusyError, match="all 1 slots"):
            await leases.reset("b", Tally, TASK, seed=0)
        leases.close("a")
        assert await leases.reset("b", Tally, TASK, seed=0)
        await leases.aclose()

    run(scenario)


def test_closing_an_episode_that_waits_for_a_slot_frees_its_place_in_the_queue():
    async def scenario():
        leases = Leases(slots=1)
        await leases.reset("a", Tally, TASK, seed=0)
        waiting = [asyncio.ensure_future(leases.reset(key, Tally, TASK, seed=0)) for key in ("b", "c")]
        await asyncio.sleep(0)
        leases.close("b")
        leases.close("a")
        with pytest.raises(LostError):
            await waiting[0]
        assert await waiting[1]
        await leases.aclose()

    run(scenario)


def test_a_silent_client_loses_its_slot_and_a_talking_one_keeps_it():
    async def scenario():
        leases = Leases(slots=2, ttl_s=0.2)
        await leases.reset("silent", Tally, TASK, seed=0)
        await leases.reset("talking", Tally, TASK, seed=0)
        for seq in range(1, 6):
            await asyncio.sleep(0.08)
            await leases.step("talking", seq, "x")
        assert leases.num_taken == 1
        with pytest.raises(LostError):
            await leases.step("silent", 1, "x")
        await leases.aclose()

    run(scenario)


def test_an_environment_that_hangs_fails_its_episode_and_gives_its_slot_back():
    class Hanging(Tally):
        async def step(self, action):
            await asyncio.sleep(3600)

    async def scenario():
        leases = Leases(slots=1, step_s=0.05)
        await leases.reset("a", Hanging, TASK, seed=0)
        for seq in (1, 1, 2):
            with pytest.raises(EnvError, match=r"no answer of the environment in 0\.05 s"):
                await leases.step("a", seq, "x")
        leases.close("a")
        await leases.aclose()
        assert leases.num_taken == 0

    run(scenario)


@pytest.mark.parametrize("broken", ["make", "reset", "step", "close"])
def test_an_environment_that_raises_anywhere_costs_no_slot(broken):
    async def failing(*_, **__):
        raise ZeroDivisionError("inside")

    def make():
        if broken == "make":
            raise ZeroDivisionError("inside")
        return type("Broken", (Tally,), {broken: failing})()

    async def scenario():
        leases = Leases(slots=1)
        for key in ("a", "b"):
            if broken in ("make", "reset"):
                with pytest.raises(EnvError, match="ZeroDivisionError: inside"):
                    await leases.reset(key, make, TASK, seed=0)
            else:
                await leases.reset(key, make, TASK, seed=0)
            if broken == "step":
                with pytest.raises(EnvError, match="ZeroDivisionError: inside"):
                    await leases.step(key, 1, "x")
            leases.close(key)
        await leases.aclose()
        assert leases.num_taken == 0

    asyncio.run(scenario())


def test_a_close_during_a_step_waits_until_the_step_is_over():
    class Slow(Tally):
        async def step(self, action):
            self.is_busy = True
            await asyncio.sleep(0.05)
            self.is_busy = False
            return Step("slow")

    async def scenario():
        leases = Leases(slots=1)
        await leases.reset("a", Slow, TASK, seed=0)
        stepping = asyncio.ensure_future(leases.step("a", 1, "x"))
        await asyncio.sleep(0)
        leases.close("a")
        assert (await stepping).text == "slow"
        await leases.aclose()

    run(scenario)
