"""The fault schedule of a run, acted out on the SuperNodes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flwr_agent.faults import Fault
from flwr_agent.hosts.service import Service

CLIENT_APP = "flwr-clientapp"


class Rehearsal:
    """Kills SuperNodes at work and lets them come back, as the rounds of a run go by.

    Example:
        >>> rehearsal = Rehearsal(faults.scheduled(config), flower.services, lambda: Progress.read(ledger).round)
        >>> rehearsal.step()  # every half second
    """

    def __init__(self, faults: Sequence[Fault], services: Mapping[str, Service], finished: Callable[[], int]) -> None:
        """Prepare.

        Args:
            faults: the schedule.
            services: `supernode-CLIENT_ID` -> its process.
            finished: the last finished round.
        """
        self._nodes = {fault: services[f"supernode-{fault.client}"] for fault in faults}
        self._finished = finished

    def step(self) -> None:
        """Do what is due in the round that runs now."""
        if not self._nodes:
            return
        running = self._finished() + 1
        for fault, node in self._nodes.items():
            if fault.is_away(running) and node.is_up() and (running > fault.killed_in or node.has(CLIENT_APP)):
                node.kill()
            elif running == fault.back_in and node.is_held:
                node.release()
