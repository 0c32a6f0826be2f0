"""What the C library keeps of freed memory goes back to the system."""

import psutil
import pytest

from flwr_agent.rl.heap import trim


def resident() -> int:
    return psutil.Process().memory_info().rss


@pytest.mark.skipif(psutil.POSIX and not psutil.LINUX, reason="glibc's allocator")
def test_freed_blocks_between_live_ones_go_back_to_the_system():
    blocks = [b"x" * 20_000 for _ in range(10_000)]
    del blocks[1::2], blocks[: len(blocks) // 2]
    before = resident()
    trim()
    assert before - resident() > 50_000_000
    assert len(blocks) == 2500
