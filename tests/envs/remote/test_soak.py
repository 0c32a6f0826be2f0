import pytest

from benchmarks.served import soak


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_64_episodes_at_once_for_ten_minutes_lose_nothing_and_hold_no_memory():
    found = soak(600.0, at_once=64)
    assert found.played.failed == 0
    assert found.played.episodes > 5_000
    assert found.num_taken == 0
    for sizes in (found.client_mib, found.server_mib):
        settled = sizes[len(sizes) // 4 :]
        assert max(settled) - min(settled) < 4.0, sizes
