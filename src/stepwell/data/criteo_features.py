"""Features for the columns of the Criteo data sets: label, int_1 .. int_13, cat_1 .. cat_26."""

from typing import Final

from stepwell.data.feature_set import FeatureSet
from stepwell.data.feature_specs import DenseFeature, IdFeature, Side
from stepwell.errors import ConfigError

CRITEO_LABEL: Final = "label"
CRITEO_INTS: Final = tuple(f"int_{i}" for i in range(1, 14))
CRITEO_CATS: Final = tuple(f"cat_{i}" for i in range(1, 27))


def criteo_features(*, num_user_ints: int = 6, num_user_cats: int = 13, table: str = "") -> FeatureSet:
    """13 ints, of which log1p is taken, and 26 hex ids, each with a table of its own name unless `table` names one.

    The data sets do not say what their columns mean, so which are the user's is a choice: the first ones.
    """

    def side(is_user: bool) -> Side:
        return "user" if is_user else "item"

    for name, found, most in (("num_user_ints", num_user_ints, 13), ("num_user_cats", num_user_cats, 26)):
        if not 0 <= found <= most:
            raise ConfigError(f"{name}: found {found}, expected an int from 0 to {most}")
    user, item = CRITEO_INTS[:num_user_ints], CRITEO_INTS[num_user_ints:]
    dense = [
        DenseFeature(name=f"{who}_ints", side=who, columns=names, log1p=True)
        for who, names in ((side(True), user), (side(False), item))
        if names
    ]
    ids = [
        IdFeature(name=name, side=side(i < num_user_cats), column=name, table=table or name, hash="hex")
        for i, name in enumerate(CRITEO_CATS)
    ]
    return FeatureSet(features=(*dense, *ids))
