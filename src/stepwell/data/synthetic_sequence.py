"""Synthetic samples with behaviour sequences: the click depends on how like the candidate the user's history is.

Items belong to categories, and categories have latent directions. A user prefers a few categories; the history shows
which. Attention from the candidate to the history finds the signal; a model without the history cannot.
"""

import numpy as np

from stepwell.data.columns import I64, Column
from stepwell.data.draws import F32, U32, EffectTable, IdSpace, PowerLaw, Stream, mix32
from stepwell.data.order import fold_key
from stepwell.data.teacher import calibrate, expected_auc

_CATEGORIES = 64
_LATENT = 4  # dims of a category's direction
_INTERESTS = np.array([0.45, 0.65, 0.8], np.float32)  # three of a user's own, else any category
_CANDIDATE_INTERESTS = np.array([0.2, 0.3, 0.4], np.float32)
_RECENT, _OLD_WEIGHT = 10, 0.3  # the last ten count fully
_SIMILARITY, _POPULARITY, _DENSE = 0.62, 0.23, 0.15  # shares of the teacher's logit
_CONVERT_AUC, _CONVERT_RATE = 0.75, 0.2  # among clicks
_CALIBRATION_ROWS = 1 << 14
_USER, _LENGTH, _CANDIDATE, _HISTORY, _DENSE_STREAM, _LABELS = range(200, 206)


class SequenceWorld:
    """Everything that does not depend on the row."""

    def __init__(
        self, seed: int, alpha: float, vocabulary: int, churn: float, auc: float, click_rate: float, max_history: int
    ) -> None:
        self._seed, self._max_history = seed, max_history
        # Slots of items: rank within the category times _CATEGORIES, plus the category.
        self._ranks = PowerLaw(max(vocabulary // _CATEGORIES, 1), alpha)
        self._items = IdSpace(PowerLaw(self._ranks.size * _CATEGORIES, alpha), fold_key((seed, 1)), churn)
        self._users = IdSpace(PowerLaw(max(vocabulary // 4, 4), min(alpha, 1.0)), fold_key((seed, 2)), churn)
        self._popular = PowerLaw(_CATEGORIES, 0.7)
        self._effects = EffectTable(self._ranks, fold_key((seed, 3)), num_slots=64, half=10.0, width=_CATEGORIES)
        directions = Stream(seed, 4).normal(_CATEGORIES * _LATENT).reshape(_CATEGORIES, _LATENT)
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        self._alike = (directions @ directions.T).astype(np.float32).reshape(-1)
        self._category_effect = Stream(seed, 5).normal(_CATEGORIES)
        n = _CALIBRATION_ROWS
        days = np.linspace(0, 1 / churn if churn else 1, n).astype(np.float32)
        self._similarity_mean, self._similarity_scale = np.float32(0), np.float32(1)
        similarity = self._rows(-1, n, days)[0]
        self._similarity_mean = np.float32(similarity.mean())
        self._similarity_scale = np.float32(1 / similarity.std())
        similarity, other, dense, _ = self._rows(-1, n, days)
        self._click = calibrate(similarity + other + dense, auc, click_rate)
        self._convert = calibrate(dense - other, _CONVERT_AUC, _CONVERT_RATE)
        self.dense_auc = expected_auc(dense, self._click.probability(similarity + other + dense))

    def _rows(self, block: int, n: int, days: F32) -> tuple[F32, F32, F32, dict[str, Column]]:
        """The teacher's click logit in three parts: similarity, what the item is, dense columns; the columns."""
        users = Stream(self._seed, block, _USER)
        user_slots = self._users.law.slots(users.uniform(n))
        user_generations = self._users.generations(user_slots, days, users.uniform(n)) if self._users.churn else None
        user = self._users.ids(user_slots, user_generations)
        own = user.astype(np.uint32)
        interests = np.stack([mix32(own, k + 1) % np.uint32(_CATEGORIES) for k in range(3)])  # [3, n]

        lengths = self._lengths(block, own, n)
        offsets: I64 = np.zeros(n + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        total = int(offsets[-1])
        of = np.repeat(np.arange(n), lengths)
        past = Stream(self._seed, block, _HISTORY)
        categories = self._categories(past, total, interests, of, _INTERESTS)
        history = self._item_ids(past, categories, days.take(of))
        candidates = Stream(self._seed, block, _CANDIDATE)
        category = self._categories(candidates, n, interests, np.arange(n), _CANDIDATE_INTERESTS)
        ranks = self._ranks.slots(candidates.uniform(n))
        slots = ranks * np.uint32(_CATEGORIES) + category
        generations = self._items.generations(slots, days, candidates.uniform(n)) if self._items.churn else None
        item = self._items.ids(slots, generations)

        age = np.repeat(offsets[1:], lengths) - np.arange(total)  # 1: the last
        weights = np.where(age <= _RECENT, 1, _OLD_WEIGHT).astype(np.float32)
        alike: F32 = self._alike.take(categories * np.uint32(_CATEGORIES) + category.take(of)) * weights
        mean = np.add.reduceat(alike, offsets[:-1]) / np.add.reduceat(weights, offsets[:-1])
        similarity: F32 = (
            (mean.astype(np.float32) - self._similarity_mean) * self._similarity_scale * np.float32(_SIMILARITY**0.5)
        )
        at = self._effects.at(ranks, generations)
        popular: F32 = self._effects.values[at, category] * np.float32((_POPULARITY / 2) ** 0.5)
        popular += self._category_effect.take(category) * np.float32((_POPULARITY / 2) ** 0.5)

        drawn = Stream(self._seed, block, _DENSE_STREAM)
        price, hour = drawn.normal(n), drawn.uniform(n) * np.float32(24)
        half = np.float32((_DENSE / 2) ** 0.5)
        dense: F32 = -price * half + np.sin(hour * np.float32(np.pi / 12)) * half * np.float32(2**0.5)
        columns = {
            "user": Column(user),
            "item": Column(item),
            "category": Column(category.astype(np.int64)),
            "history": Column(history, offsets),
            "history_category": Column(categories.astype(np.int64), offsets),
            "price": Column(np.exp(price)),
            "hour": Column(np.floor(hour)),
        }
        return similarity, popular, dense, columns

    def _lengths(self, block: int, own: U32, n: int) -> I64:
        """From 1 to max_history, about a user's own."""
        usual = (mix32(own, 77) >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)
        drawn = Stream(self._seed, block, _LENGTH).uniform(n)
        share = usual * np.float32(0.8) + drawn * np.float32(0.2)
        return 1 + (share * np.float32(self._max_history)).astype(np.int64).clip(0, self._max_history - 1)

    def _categories(self, stream: Stream, total: int, interests: U32, of: I64, shares: F32) -> U32:
        u = stream.uniform(total)
        found = self._popular.slots(stream.uniform(total))
        which = np.searchsorted(shares, u, side="right")
        mine = which < len(shares)
        found[mine] = interests[which[mine], of[mine]]
        return found

    def _item_ids(self, stream: Stream, categories: U32, days: F32) -> I64:
        slots = self._ranks.slots(stream.uniform(len(categories))) * np.uint32(_CATEGORIES) + categories
        drawn = stream.uniform(len(categories))
        return self._items.ids(slots, self._items.generations(slots, days, drawn) if self._items.churn else None)

    def block(self, block: int, n: int, days: F32) -> dict[str, Column]:
        """The first n rows of a block."""
        similarity, other, dense, columns = self._rows(block, n, days)
        teacher = self._click.probability(similarity + other + dense)
        converts = self._convert.probability(dense - other)
        labels = Stream(self._seed, block, _LABELS)
        click, convert = labels.uniform(n) < teacher, labels.uniform(n) < converts
        return {
            "click": Column(click.astype(np.int8)),
            "convert": Column((click & convert).astype(np.int8)),
            **columns,
            "teacher": Column(teacher),
            "teacher_convert": Column(teacher * converts),
        }
