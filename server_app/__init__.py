"""Flower's ServerApp: configuration -> strategy, checkpoints, evaluation, ledger."""
