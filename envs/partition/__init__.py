"""Which tasks and which world each client gets: pure functions of (tasks, strategy, seed)."""
