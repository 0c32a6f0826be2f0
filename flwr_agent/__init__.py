"""Federated reinforcement learning of LLM agents: shared vocabulary, configuration, command line and report."""
