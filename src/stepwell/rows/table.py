"""TableSpec: all that says what a table's rows are."""

from dataclasses import dataclass, field

import numpy as np

from stepwell.config import Config
from stepwell.rows.generator import MAX_DIM, table_key
from stepwell.rows.initializers import Initializer, Normal
from stepwell.rows.layout import U8, WEIGHT_DTYPES, RowLayout, WeightDtype, decode_weights, encode_weights
from stepwell.rows.optimizers import Optimizer, RowWiseAdaGrad
from stepwell.rows.policies import LRU, Admission, Always, Eviction, Expiry


@dataclass(frozen=True, kw_only=True, slots=True)
class TableSpec(Config):
    """A set of rows with one dim, one initializer, one optimizer and one set of policies; features share tables."""

    name: str
    dim: int
    weight_dtype: WeightDtype = "fp32"
    initializer: Initializer = field(default_factory=lambda: Normal(std=0.01))
    optimizer: Optimizer = field(default_factory=RowWiseAdaGrad)
    admission: Admission = field(default_factory=Always)
    eviction: Eviction = field(default_factory=LRU)
    expiry: tuple[Expiry, ...] = ()  # at most one of each class
    expected_rows: int = 0  # for planning; 0: not known

    def __post_init__(self) -> None:
        self._require(_is_table_name(self.name), "name", "1 to 200 bytes of UTF-8 without '/' or NUL, not '.' or '..'")
        self._require_int("dim", 1, MAX_DIM)
        self._require(self.weight_dtype in WEIGHT_DTYPES, "weight_dtype", f"one of {WEIGHT_DTYPES}")
        self._require_instance("initializer", Initializer)
        self._require_instance("optimizer", Optimizer)
        self._require_instance("admission", Admission)
        self._require_instance("eviction", Eviction)
        self._require_tuple_of("expiry", Expiry)
        self._require(len({type(p) for p in self.expiry}) == len(self.expiry), "expiry", "at most one of each class")
        self._require_int("expected_rows", 0, 1 << 48)
        reach = np.array([self.initializer.program(self.dim).max_abs], np.float32)
        finite = bool(np.isfinite(decode_weights(encode_weights(reach, self.weight_dtype), self.weight_dtype)).all())
        self._require(finite, "initializer", f"values that {self.weight_dtype} holds: this reaches {reach[0]}")

    @property
    def layout(self) -> RowLayout:
        """The layout of this table's records."""
        return RowLayout(dim=self.dim, weight_dtype=self.weight_dtype, state=self.optimizer.state_fields())

    def key(self, seed: int) -> int:
        """The key of this table's draws (see generator.table_key)."""
        return table_key(self.name, seed)

    def initial_record(self) -> U8:
        """uint8 [record_bytes]: a new row's record but for its weights, which are zero."""
        return self.layout.initial_record()


def _is_table_name(name: object) -> bool:
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode()) <= 200
    except UnicodeEncodeError:
        return False
