"""Whole runs, as functions that return a `TrainConfig`. They import stepwell; nothing imports them."""
