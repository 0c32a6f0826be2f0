"""The command line: `python -m flwr_agent`."""
