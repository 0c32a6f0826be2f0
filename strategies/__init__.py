"""How a federated round is run and how updates become a model (NumPy and Flower only)."""
