"""Everything at once, small: two tiers, admission, expiry, a pipeline, evaluation. Seconds on a laptop; for tests."""

from stepwell.data import ReaderConfig, SyntheticSource, criteo_features
from stepwell.models import DLRM
from stepwell.rows import TTL, AdaGrad, MinCount, TableSpec
from stepwell.store import SsdSettings, StoreConfig
from stepwell.train import DenseAdam, Task, TrainConfig

BATCH = 256
STEPS = 100


def debug_cpu() -> TrainConfig:
    """A hundred steps, most rows on SSD."""
    features = criteo_features()
    return TrainConfig(
        train=SyntheticSource(rows=BATCH * STEPS, vocabulary=10_000, rows_per_day=BATCH * STEPS),
        evaluate=SyntheticSource(
            rows=20 * BATCH, vocabulary=10_000, rows_per_day=BATCH * STEPS, first_row=BATCH * STEPS
        ),
        features=features,
        tasks=(Task(name="click"),),
        model=DLRM(bottom=(16,), top=(32,)),
        store=StoreConfig(
            tables=tuple(
                TableSpec(
                    name=feature.table,
                    dim=8,
                    optimizer=AdaGrad(lr=0.05),
                    admission=MinCount(n=2, expected_ids=10_000),
                    expiry=(TTL(steps=60),),
                )
                for feature in features.features_with_ids
            ),
            dram_bytes=4_500_000,
            ssd_bytes=1 << 28,
            ssd_directory="rows",
            ssd=SsdSettings(segment_bytes=1 << 20, write_buffer_bytes=1 << 20),
        ),
        reader=ReaderConfig(batch_size=BATCH, shuffle_rows=BATCH * 8, in_order=True),
        optimizer=DenseAdam(lr=2e-3),
        evaluate_every=50,
        depth=4,
        fetch_window=2,
        log_every=10,
    )
