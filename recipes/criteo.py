"""What the runs on Criteo's columns share: data, features, tables, budgets. The model is the run's own."""

from stepwell.data import ReaderConfig, SyntheticSource, criteo_features
from stepwell.models import ModelConfig
from stepwell.rows import AdaGrad, TableSpec
from stepwell.store import StoreConfig
from stepwell.train import DenseAdam, LinearDecay, Task, TrainConfig

DIM = 16
ROWS = 4_000_000
EVALUATION_ROWS = 400_000


def criteo_run(model: ModelConfig) -> TrainConfig:
    """Samples in order of time, shuffled within windows; evaluation on what comes after.

    For files instead of synthetic samples, replace `train` and `evaluate`, and name the label:
    `run.replace(train=CriteoSource(...), evaluate=CriteoSource(...), tasks=(Task(name="click", label="label"),))`.
    """
    features = criteo_features()
    return TrainConfig(
        train=SyntheticSource(rows=ROWS),
        evaluate=SyntheticSource(rows=EVALUATION_ROWS, first_row=ROWS),
        features=features,
        tasks=(Task(name="click"),),
        model=model,
        store=StoreConfig(
            tables=tuple(
                TableSpec(name=feature.table, dim=DIM, optimizer=AdaGrad(lr=0.02))
                for feature in features.features_with_ids
            ),
            dram_bytes=1 << 30,
            ssd_bytes=32 << 30,
            ssd_directory="rows",
        ),
        reader=ReaderConfig(batch_size=2048, shuffle_rows=1 << 18, in_order=True),
        optimizer=DenseAdam(lr=1e-3),
        schedule=LinearDecay(warmup_steps=100, steps=ROWS // 2048, end_factor=0.1),
        evaluate_every=500,
        evaluate_batches=50,
        depth=10,
        fetch_window=4,
    )
