"""What `make demo` trains: DLRM on the files that it made, with a DRAM budget that holds a part of the rows."""

from recipes.criteo_dlrm import criteo_dlrm
from stepwell.data import ParquetSource
from stepwell.rows import Adam
from stepwell.train import DenseAdam, LinearDecay, TrainConfig

_ROWS = 6_000_000
_FILES = "build/demo"  # from where make runs


def demo() -> TrainConfig:
    """One pass, in order of time; minutes on two cores."""
    run = criteo_dlrm()
    tables = tuple(table.replace(optimizer=Adam(lr=1e-3)) for table in run.store.tables)
    return run.replace(
        train=ParquetSource(paths=(f"{_FILES}/train",)),
        evaluate=ParquetSource(paths=(f"{_FILES}/evaluation",)),
        store=run.store.replace(tables=tables, dram_bytes=96 << 20, ssd_bytes=4 << 30),
        optimizer=DenseAdam(lr=3e-3),  # at 1e-3 some seeds end more than 0.01 below the best AUC
        schedule=LinearDecay(warmup_steps=100, steps=_ROWS // run.reader.batch_size, end_factor=0.1),
        log_every=20,
    )
