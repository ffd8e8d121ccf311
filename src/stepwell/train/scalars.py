"""TensorBoard scalars of a run. The one module that imports tensorboard, and only for a run that asks for it."""

from pathlib import Path
from typing import Any

from stepwell.errors import ConfigError

_FIGURES = ("loss", "samples_per_s", "lr_factor", "auc", "rss_bytes")
_TASK_FIGURES = ("auc", "normalised_entropy", "log_loss", "calibration", "grouped_auc")


class Scalars:
    """Writes a run's records as scalars into `tensorboard/` of its folder."""

    def __init__(self, directory: Path) -> None:
        """ConfigError where tensorboard is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                f"tensorboard: found True, and it cannot be imported ({error}): pip install tensorboard, or say False"
            ) from error
        self._writer = SummaryWriter(str(directory / "tensorboard"))

    def write(self, record: dict[str, Any]) -> None:
        """Add a "train" or "eval" line's figures at its step."""
        kind = record["kind"]
        figures: dict[str, float | None] = {}
        if kind == "train":
            figures = {name: record[name] for name in _FIGURES}
            figures |= {f"hit_rate/{name}": tier["hit_rate"] for name, tier in record["tiers"].items()}
        elif kind == "eval":
            figures = {
                f"{task}/{name}": values.get(name) for task, values in record["tasks"].items() for name in _TASK_FIGURES
            }
        for name, value in figures.items():
            if value is not None:
                self._writer.add_scalar(f"{kind}/{name}", value, record["step"])

    def close(self) -> None:
        """Flush and let go of the file."""
        self._writer.close()
