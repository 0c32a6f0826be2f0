"""The local agent-RL trainer; it never imports Flower."""
