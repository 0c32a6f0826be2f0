"""The sections of the configuration about what a run keeps and shows."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_agent.sections import knob


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointConfig:
    """What a run folder keeps."""

    keep: int = knob(2, "newest rounds whose model is kept", low=1)
    milestone_every: int = knob(0, "every n-th round whose model is kept for good; 0 keeps none but round 0", low=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportConfig:
    """What a run leaves for people."""

    page: bool = knob(True, "write report.html and its figures when the run ends")
    episodes: int = knob(
        0,
        "best and worst held-out episodes of each evaluation whose text is kept for the page; needs where=server",
        low=0,
    )
    trackers: str = knob("none", "where figures also go: tensorboard, wandb, mlflow, trackio; several with commas")
    project: str = knob("flwr-agent", "name of the project or experiment there")
