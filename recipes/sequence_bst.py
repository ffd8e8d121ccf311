"""BST: a transformer over what a user clicked before; histories and candidates share their tables."""

from stepwell.data import DenseFeature, FeatureSet, IdFeature, ReaderConfig, SequenceFeature, SyntheticSource
from stepwell.models import BST
from stepwell.rows import AdaGrad, TableSpec
from stepwell.store import StoreConfig
from stepwell.train import DenseAdam, LinearDecay, Task, TrainConfig

ROWS = 2_000_000
EVALUATION_ROWS = 200_000
MAX_LEN = 32


def sequence_bst() -> TrainConfig:
    """Synthetic samples whose clicks depend on how like the candidate the history is."""
    features = FeatureSet(
        features=(
            IdFeature(name="user", side="user", column="user", table="users"),
            SequenceFeature(name="history", side="user", column="history", table="items", max_len=MAX_LEN),
            SequenceFeature(
                name="history_category", side="user", column="history_category", table="categories", max_len=MAX_LEN
            ),
            DenseFeature(name="hour", side="user", columns=("hour",), standardise=True),
            IdFeature(name="item", side="item", column="item", table="items"),
            IdFeature(name="category", side="item", column="category", table="categories"),
            DenseFeature(name="price", side="item", columns=("price",), log1p=True, standardise=True),
        )
    )
    rows = AdaGrad(lr=0.02)
    return TrainConfig(
        train=SyntheticSource(rows=ROWS, shape="sequence"),
        evaluate=SyntheticSource(rows=EVALUATION_ROWS, shape="sequence", first_row=ROWS),
        features=features,
        tasks=(Task(name="click"),),
        model=BST(behaviours={"history": "item", "history_category": "category"}, num_blocks=1, num_heads=2),
        store=StoreConfig(
            tables=(
                TableSpec(name="users", dim=16, optimizer=rows, expected_rows=300_000),
                TableSpec(name="items", dim=16, optimizer=rows, expected_rows=2_000_000),
                TableSpec(name="categories", dim=16, optimizer=rows, expected_rows=64),
            ),
            dram_bytes=1 << 30,
        ),
        reader=ReaderConfig(batch_size=1024, shuffle_rows=1 << 17, in_order=True),
        optimizer=DenseAdam(lr=1e-3),
        schedule=LinearDecay(warmup_steps=100, steps=ROWS // 1024, end_factor=0.1),
        evaluate_every=500,
        evaluate_batches=50,
    )
