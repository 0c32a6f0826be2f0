"""The published experiment matrix: 194 cells from one table of axes, their file names, and a run of each."""

from flwr_agent.matrix.cells import ARMS, Arm, Cell, cells, find
from flwr_agent.matrix.recipe import SCALES, to_flat

__all__ = ["ARMS", "SCALES", "Arm", "Cell", "cells", "find", "to_flat"]
