"""Synthetic samples of Criteo's shape: 13 counts, 26 ids, a user key, two labels, the teacher's probabilities."""

import math

import numpy as np

from stepwell.data.columns import Column, Mask
from stepwell.data.criteo_features import CRITEO_CATS, CRITEO_INTS
from stepwell.data.draws import F32, U32, EffectTable, IdSpace, PowerLaw, Stream
from stepwell.data.order import fold_key
from stepwell.data.teacher import calibrate, expected_auc

_NUM_COUNTS, _NUM_IDS = len(CRITEO_INTS), len(CRITEO_CATS)
_COUNT_VARIANCE, _ID_VARIANCE, _CROSS_VARIANCE = 0.15, 0.75, 0.10  # shares of the teacher's logit
_CROSSES = ((3, 7), (5, 10), (8, 12), (6, 14))  # pairs of id columns, neither tiny nor huge
_CROSS_WIDTH = 2
_CONVERTING = (1, 4, 9, 13, 17)  # id columns that also say whether a click converts
_CONVERT_AUC, _CONVERT_RATE = 0.75, 0.2  # among clicks
_SMALLEST_CHURNING = 1000  # slots: smaller columns are things like weekdays, whose ids stay
_CALIBRATION_ROWS = 1 << 16
_USER, _LABELS = 200, 201  # numbers of streams; counts have 1 to 13, ids 100 to 125


class CriteoWorld:
    """Everything that does not depend on the row."""

    def __init__(self, seed: int, alpha: float, vocabulary: int, churn: float, auc: float, click_rate: float) -> None:
        self._seed = seed
        sizes = np.exp(np.linspace(math.log(4), math.log(max(vocabulary, 4)), _NUM_IDS)).astype(int)
        self._spaces = [
            IdSpace(PowerLaw(int(size), alpha), fold_key((seed, c)), churn if size >= _SMALLEST_CHURNING else 0.0)
            for c, size in enumerate(sizes)
        ]
        self._users = IdSpace(PowerLaw(max(vocabulary // 10, 4), min(alpha, 1.0)), fold_key((seed, _USER)), churn)
        self._effects = [self._effect_table(c, 1) for c in range(_NUM_IDS)]
        weights = 0.9 ** np.abs(np.arange(_NUM_IDS) - _NUM_IDS // 2)  # middling columns say most
        self._weights = np.sqrt(_ID_VARIANCE * weights / weights.sum()).astype(np.float32)
        self._crosses = [(i, j, self._cross_table(i, 2), self._cross_table(j, 3)) for i, j in _CROSSES]
        self._converting = [(c, self._effect_table(c, 4)) for c in _CONVERTING]
        counts = Stream(seed, 5)
        self._count_scale = 0.8 + counts.uniform(_NUM_COUNTS)
        self._count_mean = 3 * counts.uniform(_NUM_COUNTS)
        self._count_missing = np.maximum(0, counts.uniform(_NUM_COUNTS) * 0.5 - 0.1)
        falling = 0.75 ** np.arange(_NUM_COUNTS)
        signs = np.where(counts.uniform(_NUM_COUNTS) < 0.3, -1, 1)
        self._count_weights = (np.sqrt(_COUNT_VARIANCE * falling / falling.sum()) * signs).astype(np.float32)
        self._id_missing = np.where(np.arange(_NUM_IDS) % 5 == 2, 0.05, 0.0).astype(np.float32)
        self._calibrate(auc, click_rate)

    def _effect_table(self, column: int, use: int) -> EffectTable:
        return EffectTable(self._spaces[column].law, fold_key((self._seed, column, use)), num_slots=1024, half=60.0)

    def _cross_table(self, column: int, use: int) -> EffectTable:
        key = fold_key((self._seed, column, use))
        return EffectTable(self._spaces[column].law, key, num_slots=64, half=5.0, width=_CROSS_WIDTH)

    def _calibrate(self, auc: float, click_rate: float) -> None:
        n = _CALIBRATION_ROWS
        days = np.linspace(0, 1 / max(space.churn for space in self._spaces) if self._churns else 1, n)
        raw, dense, convert, _ = self._rows(-1, n, days.astype(np.float32))
        self._click = calibrate(raw, auc, click_rate)
        p = self._click.probability(raw)
        self._convert = calibrate(convert, _CONVERT_AUC, _CONVERT_RATE)
        self.dense_auc = expected_auc(dense, p)

    @property
    def _churns(self) -> bool:
        return any(space.churn for space in self._spaces)

    def _rows(self, block: int, n: int, days: F32) -> tuple[F32, F32, F32, dict[str, Column]]:
        """The teacher's click logit before its link, the counts' part of it, the conversion's; the columns."""
        columns: dict[str, Column] = {}
        raw, convert = np.zeros(n, np.float32), np.zeros(n, np.float32)
        for k in range(_NUM_COUNTS):
            columns[CRITEO_INTS[k]] = self._count(k, block, n, raw)
        dense = raw.copy()
        wanted = {c for pair in _CROSSES for c in pair}
        places: dict[int, tuple[U32, U32 | None, Mask | None]] = {}
        for c, space in enumerate(self._spaces):
            stream = Stream(self._seed, block, c + 100)
            slots = space.law.slots(stream.uniform(n))
            generations = space.generations(slots, days, stream.uniform(n)) if space.churn else None
            missing = stream.uniform(n) < self._id_missing[c] if self._id_missing[c] else None
            ids = space.ids(slots, generations)
            if missing is not None:
                ids[missing] = 0
            columns[CRITEO_CATS[c]] = Column(ids, None, ~missing if missing is not None else None)
            effects = self._effects[c]
            raw += effects.values[:, 0].take(effects.at(slots, generations, missing)) * self._weights[c]
            if c in wanted or c in _CONVERTING:
                places[c] = slots, generations, missing
        for i, j, left, right in self._crosses:
            at, to = left.at(*places[i]), right.at(*places[j])
            share = np.float32(math.sqrt(_CROSS_VARIANCE / len(_CROSSES) / _CROSS_WIDTH))
            for k in range(_CROSS_WIDTH):
                raw += left.values[:, k].take(at) * right.values[:, k].take(to) * share
        for c, effects in self._converting:
            convert += effects.values[:, 0].take(effects.at(*places[c]))
        return raw, dense, convert, columns

    def _count(self, k: int, block: int, n: int, raw: F32) -> Column:
        """Counts that are heavy-tailed and sometimes missing; what they say is linear in log1p of them."""
        stream = Stream(self._seed, block, k + 1)
        normal = stream.normal(n)
        counts = np.exp(normal * self._count_scale[k] + self._count_mean[k]).astype(np.int32)
        seen = np.log1p(counts.astype(np.float32))
        seen = (seen - self._count_mean[k]) / self._count_scale[k]
        missing = None
        if self._count_missing[k] > 0:
            missing = stream.uniform(n) < self._count_missing[k]
            counts[missing] = 0
            seen[missing] = 0
        raw += seen * self._count_weights[k]
        return Column(counts, None, ~missing if missing is not None else None)

    def block(self, block: int, n: int, days: F32) -> dict[str, Column]:
        """The first n rows of a block."""
        raw, _, convert, columns = self._rows(block, n, days)
        teacher = self._click.probability(raw)
        converts = self._convert.probability(convert)
        labels = Stream(self._seed, block, _LABELS)
        click = labels.uniform(n) < teacher
        users = Stream(self._seed, block, _USER)
        slots = self._users.law.slots(users.uniform(n))
        generations = self._users.generations(slots, days, users.uniform(n)) if self._users.churn else None
        return {
            "click": Column(click.astype(np.int8)),
            "convert": Column((click & (Stream(self._seed, block, _LABELS + 1).uniform(n) < converts)).astype(np.int8)),
            "user": Column(self._users.ids(slots, generations)),
            **columns,
            "teacher": Column(teacher),
            "teacher_convert": Column(teacher * converts),
        }
