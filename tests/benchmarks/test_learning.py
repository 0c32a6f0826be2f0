import pytest

from benchmarks.learning import has_learnt

TASKS = 256


def evaluation(round_: int, sampled: float, greedy: float, tasks: int = TASKS) -> dict:
    outcomes = {f"{mode}/success": [float(i < rate * tasks) for i in range(tasks)] for mode, rate in
                (("sampled", sampled), ("greedy", greedy))}  # fmt: skip
    return {"round": round_, "outcomes": outcomes}


def test_a_run_that_ends_well_above_its_start_has_learnt():
    assert has_learnt(
        [evaluation(0, 0.14, 0.07), evaluation(1, 0.2, 0.2), evaluation(2, 0.7, 0.6), evaluation(3, 0.7, 0.6)]
    )


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ((0.14, 0.07), [(0.7, 0.6), (0.0, 0.6)]),  # the mean of the last two, not the best
        ((0.14, 0.07), [(0.7, 0.15), (0.7, 0.15)]),  # greedy decoding too
        ((0.05, 0.05), [(0.7, 0.6), (0.7, 0.6)]),  # a start that knows nothing
        ((0.45, 0.07), [(0.9, 0.6), (0.9, 0.6)]),  # a start without room
    ],
)
def test_anything_less_is_no_evidence(first: tuple[float, float], last: list[tuple[float, float]]):
    assert not has_learnt([evaluation(0, *first), *(evaluation(i + 1, *scores) for i, scores in enumerate(last))])


def test_few_tasks_are_no_evidence():
    assert not has_learnt([evaluation(0, 0.14, 0.07, 64), evaluation(1, 0.9, 0.9, 64), evaluation(2, 0.9, 0.9, 64)])
