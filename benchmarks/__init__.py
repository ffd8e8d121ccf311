"""Benchmarks that stand alone: `python -m benchmarks.NAME` runs ours and the peer side by side."""
