"""The table by type of task is a partition of one pass."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_app.summary import by_type

EPISODES = st.lists(st.tuples(st.sampled_from(["heat", "look", "pick"]), st.booleans(), st.booleans()), min_size=1)


@given(EPISODES)
def test_types_cut_one_pass_and_their_weighted_mean_is_the_whole(episodes):
    types, sampled, greedy = zip(*episodes, strict=True)
    scores = {"sampled/success": list(map(float, sampled)), "greedy/success": list(map(float, greedy))}
    table = by_type({"types": list(types), "outcomes": scores | {"sampled/task_score": [0.5] * len(types)}})
    assert set(table) == set(types)
    assert sum(row["n"] for row in table.values()) == len(types)
    for name, won in (("success_rate", sampled), ("greedy_success_rate", greedy)):
        mean = sum(row["n"] * row[name] for row in table.values()) / len(types)
        assert mean == pytest.approx(sum(won) / len(won))
        for kind, row in table.items():
            count = sum(one for one, other in zip(won, types, strict=True) if other == kind)
            assert row[name] == float(Fraction(count, row["n"]))
