"""What cannot work together is an error when the config is made; a config goes to JSON and back."""

from typing import Any

import pytest

from stepwell.data import FeatureSet, IdFeature, ReaderConfig, SyntheticSource
from stepwell.errors import ConfigError
from stepwell.rows import TTL, TableSpec
from stepwell.store import StoreConfig
from stepwell.train import CosineDecay, DenseAdamW, EarlyStop, Task, TrainConfig
from tests.train.runs import FEATURES, TABLES, config, source

ANY = SyntheticSource(rows=1000)


def store(*tables: TableSpec, **changes: Any) -> StoreConfig:
    return StoreConfig(tables=tables or TABLES, **({"dram_bytes": 1 << 22} | changes))


def test_json_and_back() -> None:
    made = config(
        train=ANY,
        evaluate=ANY,
        optimizer=DenseAdamW(lr=0.1),
        schedule=CosineDecay(steps=7),
        evaluate_every=3,
        early_stop=EarlyStop(metric="log_loss"),
        tasks=(Task(name="a", label="label", weight=0.5), Task(name="bought")),
        frozen_tables=("items",),
    )
    assert TrainConfig.from_json(made.to_json()) == made
    assert made.labels == ("label", "bought")
    assert made.task_names == ("a", "bought")


def feature(**changes: Any) -> FeatureSet:
    user, *rest = FEATURES.features
    return FeatureSet(features=(user.replace(**changes), *rest))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"features": feature(table="usres")}, "feature 'user' names the table 'usres'.*did you mean 'users'"),
        ({"store": store(*TABLES, TableSpec(name="more", dim=8))}, "'more' is named by no feature"),
        ({"store": store(mode="read")}, "mode 'train'"),
        ({"frozen_tables": ("item",)}, "frozen_tables: found 'item'.*did you mean 'items'"),
        ({"tasks": ()}, "tasks: found ()"),
        ({"tasks": (Task(name="a"), Task(name="a"))}, "no two of one name"),
        ({"evaluate_every": 5}, "no source `evaluate`"),
        ({"early_stop": EarlyStop()}, "no source `evaluate`"),
        ({"evaluate": ANY, "early_stop": EarlyStop()}, "evaluate_every: found 0"),
        (
            {"evaluate": ANY, "evaluate_every": 1, "early_stop": EarlyStop(task="lable")},
            "task: found 'lable'.*did you mean 'label'",
        ),
        (
            {"evaluate": ANY, "evaluate_every": 1, "early_stop": EarlyStop(metric="grouped_auc")},
            "reader.group names no column",
        ),
        ({"fetch_window": 2}, "the store has no SSD tier"),
        (
            {"fetch_window": 4, "depth": 3, "store": store(ssd_bytes=1 << 28, ssd_directory="x")},
            "depth: found 3, expected at least 4",
        ),
        ({"depth": 0}, "depth: found 0"),
        ({"accumulate": 0}, "accumulate: found 0"),
        ({"autocast": "fp16"}, "'off' or 'bf16'"),
        ({"clip_norm": -1.0}, "clip_norm: found -1.0"),
        ({"log_every": 0}, "log_every: found 0"),
        ({"train": None}, "train: found None"),
        ({"evaluate": FEATURES}, "a Source or None"),
        (
            {"store": store(TABLES[0].replace(expiry=(TTL(seconds=1.0),)), *TABLES[1:])},
            "expires by seconds: expected event_time",
        ),
    ],
)
def test_what_cannot_work(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config(**changes)


def test_unknown_metric_of_early_stop() -> None:
    with pytest.raises(ConfigError, match=r"metric: found 'aucc'.*did you mean 'auc'"):
        EarlyStop(metric="aucc")


def test_a_task_is_named_like_a_variable() -> None:
    with pytest.raises(ConfigError, match="a name like a variable's"):
        Task(name="click through")
    assert Task(name="click", label="click through").column == "click through"


def test_event_time_is_needed_only_where_seconds_count() -> None:
    timed = store(TABLES[0].replace(expiry=(TTL(seconds=1.0),)), *TABLES[1:])
    assert config(store=timed, reader=ReaderConfig(batch_size=8, event_time="time")).needs_event_time
    assert not config(store=store(TABLES[0].replace(expiry=(TTL(steps=3),)), *TABLES[1:])).needs_event_time


def test_crosses_and_bins_name_tables_too() -> None:
    from stepwell.data import BinFeature, CrossFeature

    more = (
        BinFeature(name="bin", side="item", column="price", boundaries=(0.5,), table="bins"),
        CrossFeature(name="cross", side="item", features=("user", "bin"), table="crosses"),
    )
    with pytest.raises(ConfigError, match="'bin' names the table 'bins'"):
        config(features=FeatureSet(features=(*FEATURES.features, *more)))
    assert isinstance(FEATURES.features[0], IdFeature)
    assert source(64).units()
