"""A run whose ids churn and whose rows expire, watched: what its process takes, against what was predicted."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stepwell.data import ReaderConfig, SyntheticSource, criteo_features
from stepwell.models import DLRM
from stepwell.rows import TTL, AdaGrad, TableSpec
from stepwell.store import SsdSettings, StoreConfig
from stepwell.train import Task, TrainConfig, Trainer
from stepwell.train.memory import predict_memory

_BATCH = 2048
_ROWS = 1 << 31  # more than any machine reads in the time there is
_WARM_UP = 0.4  # of the time: then tiers, logs and the allocator have what they take


@dataclass(frozen=True, slots=True)
class Watched:
    """Bytes of the process, predicted and found after the warm-up."""

    predicted: int
    least: int
    most: int
    at_warm_up: int  # the mean of the first tenth after it
    at_end: int  # of the last tenth
    steps: int

    @property
    def off(self) -> float:
        """How far the worst line is from the prediction."""
        return max(abs(self.most - self.predicted), abs(self.least - self.predicted)) / self.predicted

    @property
    def growth(self) -> float:
        """From the warm-up to the end."""
        return self.at_end / self.at_warm_up - 1


def churning(*, dram_bytes: int, ttl_steps: int, expected_rows: int, touched_ids: int) -> TrainConfig:
    """Ids that appear and vanish faster than anybody's do."""
    features = criteo_features()
    tables = tuple(
        TableSpec(
            name=feature.table,
            dim=16,
            optimizer=AdaGrad(lr=0.02),
            expiry=(TTL(steps=ttl_steps),),
            expected_rows=expected_rows // len(features.features_with_ids),
        )
        for feature in features.features_with_ids
    )
    return TrainConfig(
        train=SyntheticSource(rows=_ROWS, vocabulary=200_000, rows_per_day=500_000, churn=0.3),
        features=features,
        tasks=(Task(name="click"),),
        model=DLRM(bottom=(64,), top=(128, 64)),
        store=StoreConfig(
            tables=tables,
            dram_bytes=dram_bytes,
            ssd_bytes=4 << 30,
            ssd_directory="rows",
            ssd=SsdSettings(segment_bytes=16 << 20),
            touched_ids=touched_ids,
        ),
        reader=ReaderConfig(batch_size=_BATCH, shuffle_rows=1 << 16, in_order=True),
        depth=6,
        fetch_window=3,
        log_every=10,
    )


def watch(config: TrainConfig, directory: Path, seconds: float) -> Watched:
    """Train for so long and look at every line. REQUIRES: a process of its own."""
    predicted = predict_memory(config).total_bytes
    seen: list[tuple[float, int]] = []
    trainer: Trainer

    def on_record(record: dict[str, Any]) -> None:
        if record["kind"] == "train":
            seen.append((record["time_s"], record["rss_bytes"]))
            if record["time_s"] >= seconds:
                trainer.stop()

    trainer = Trainer(config, directory, on_record=on_record)
    end = trainer.run()
    after = [found for at, found in seen if at >= _WARM_UP * seconds]
    tenth = max(1, len(after) // 10)
    return Watched(
        predicted=predicted,
        least=min(after),
        most=max(after),
        at_warm_up=sum(after[:tenth]) // tenth,
        at_end=sum(after[-tenth:]) // tenth,
        steps=end["step"],
    )


def main() -> None:
    """One JSON line about a run in the folder argv[1] that lasts argv[2] seconds."""
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    dram_bytes = min(192, round(seconds)) << 20  # full well before the warm-up ends
    config = churning(dram_bytes=dram_bytes, ttl_steps=1500, expected_rows=4_000_000, touched_ids=1 << 22)
    watched = watch(config, folder / "run", seconds)
    print(json.dumps({**asdict(watched), "off": watched.off, "growth": watched.growth}))
