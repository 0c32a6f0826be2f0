"""What compression has cost a client so far, on the client's own disk (error feedback; Karimireddy et al., ICML 2019)."""

from __future__ import annotations

from pathlib import Path

from flwr_agent import arrays as model
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import Arrays

FOLDER = Path("~/.cache/flwr_agent/residuals")


class Residual:
    """One client's loss in one run, by the round whose reply left it.

    A loss counts once the server says that the reply has been folded: a reply that was dropped, or a round that is run
    again, starts from the last loss that counts.

    Example:
        >>> residual = Residual("experiment", client_id=0)
        >>> lost = residual.after(folded)  # the request says which reply of this client was folded last
        >>> residual.keep(folded, round_, lost_now)
    """

    def __init__(self, experiment: str, client_id: int) -> None:
        self._folder = FOLDER.expanduser() / experiment / f"client-{client_id}"

    def after(self, folded: int) -> Arrays:
        """The loss left by the reply of round `folded`; nothing before the first.

        Raises:
            ProtocolError: this disk does not hold it.
        """
        if folded == 0:
            return {}
        if not (file := self._file(folded)).is_file():
            raise ProtocolError(
                f"{file} is missing, so the loss of round {folded} cannot be made good; restore it, or start the run "
                "again with strategy.error_feedback=false"
            )
        return model.load(file)

    def keep(self, folded: int, round_: int, lost: Arrays) -> None:
        """Write the loss that the reply of `round_` leaves, and drop all others but that of `folded`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        model.save(self._file(round_), lost)
        for file in self._folder.glob("*.safetensors"):
            if file not in (self._file(folded), self._file(round_)):
                file.unlink()

    def _file(self, round_: int) -> Path:
        return self._folder / f"round-{round_:05d}.safetensors"
