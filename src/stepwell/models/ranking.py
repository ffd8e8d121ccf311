"""RankingModel: a dense network in two parts, user and score; ModelConfig: what builds one.

A model of one's own is a pair of classes, and is saved, loaded, trained and served like those of this folder:

    class TwoTowerNetwork(RankingModel):
        def __init__(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> None: ...
        def user(self, inputs: SideInputs) -> dict[str, Tensor]: ...       # [R, ...]: once per request
        def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]: ...  # task -> logits [N]

    @dataclass(frozen=True, kw_only=True, slots=True)
    class TwoTower(ModelConfig):
        hidden: tuple[int, ...] = (64,)

        def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> RankingModel: ...

The module that defines them must be imported before such a model is loaded. A network that cannot be cut in two leaves
`user` as it is and begins its `score` with `inputs = side_inputs(user)`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

from stepwell.config import Config
from stepwell.embedding.inputs import Sequence, SideInputs, SideSpec

_VALUES, _LENGTHS = "values.", "lengths."


class RankingModel(nn.Module, ABC):
    """Scores N items for R users; logits, not probabilities. In training R = N."""

    def user(self, inputs: SideInputs) -> dict[str, Tensor]:
        """What depends on the user's side alone: tensors [R, ...]. As it is here: the inputs themselves."""
        return side_tensors(inputs)

    @abstractmethod
    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        """Each task's logits, float32 [N], from `user`'s tensors, a row for each item [N, ...], and the items."""

    def forward(self, user: SideInputs, item: SideInputs) -> dict[str, Tensor]:
        """Both, with a user for each item."""
        return self.score(self.user(user), item)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig(Config, ABC):
    """Base of the models' configs."""

    @abstractmethod
    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> RankingModel:
        """A model for inputs of these shapes, weights drawn from torch's generator; ConfigError if they do not fit."""


def side_tensors(inputs: SideInputs) -> dict[str, Tensor]:
    """A side's inputs as tensors [n, ...] by name, which can be gathered."""
    tensors = {"dense": inputs.dense, "pooled": inputs.pooled}
    for name, sequence in inputs.sequences.items():
        tensors[_VALUES + name] = sequence.values
        tensors[_LENGTHS + name] = sequence.lengths
    return tensors


def side_inputs(tensors: dict[str, Tensor]) -> SideInputs:
    """What `side_tensors` took apart."""
    names = [key.removeprefix(_VALUES) for key in tensors if key.startswith(_VALUES)]
    sequences = {name: Sequence(tensors[_VALUES + name], tensors[_LENGTHS + name]) for name in names}
    return SideInputs(tensors["dense"], tensors["pooled"], sequences)


def gather_users(user: dict[str, Tensor], owner: Tensor) -> dict[str, Tensor]:
    """`user`'s tensors [R, ...] for each item [N, ...]: item n belongs to user owner[n]."""
    return {name: tensor.index_select(0, owner) for name, tensor in user.items()}
