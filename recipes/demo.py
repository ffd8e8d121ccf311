"""What `make demo` trains: DLRM on the files that it made, with a DRAM budget that holds a part of the rows."""

from recipes.criteo_dlrm import criteo_dlrm
from stepwell.data import ParquetSource
from stepwell.train import LinearDecay, TrainConfig

_ROWS = 2_000_000
_FILES = "build/demo"  # from where make runs


def demo() -> TrainConfig:
    """One pass, in order of time; minutes on two cores."""
    run = criteo_dlrm()
    return run.replace(
        train=ParquetSource(paths=(f"{_FILES}/train",)),
        evaluate=ParquetSource(paths=(f"{_FILES}/evaluation",)),
        store=run.store.replace(dram_bytes=96 << 20, ssd_bytes=4 << 30),
        schedule=LinearDecay(warmup_steps=100, steps=_ROWS // run.reader.batch_size, end_factor=0.1),
        log_every=20,
    )
