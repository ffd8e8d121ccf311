"""Samples in, Batch out. Knows nothing of stores or models."""
