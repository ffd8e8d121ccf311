"""Stepwell: sparse recommendation models whose embedding tables are larger than memory."""

__version__ = "0.1.0"

__all__ = ["__version__"]
