"""What was measured, one module a page: `python -m benchmarks.NAME`."""
