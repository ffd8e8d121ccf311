"""Training on one machine: the pipeline, the trainer, its configuration and its metrics."""
