"""The linear part of Wide & Deep and DeepFM: features of dim 1 are weights of their ids."""

from torch import Tensor, nn

from stepwell.embedding.inputs import SideSpec
from stepwell.models.columns import Columns
from stepwell.models.layers import Dense


class LinearSide(nn.Module):
    """One side's: the sum of its features of dim 1, for all tasks, and a linear function of dense columns per task."""

    def __init__(self, spec: SideSpec, num_tasks: int) -> None:
        super().__init__()
        self.columns = Columns(spec.pooled, [dim == 1 for dim in spec.pooled])
        self.deep_width = self.columns.widths[1]
        self.dense = Dense(spec.dense, num_tasks) if spec.dense else None
        self.num_tasks = num_tasks

    def forward(self, dense: Tensor, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """The side's part of the logits [n, tasks], and the columns of the features of other dims [n, deep_width]."""
        wide, deep = self.columns.split(pooled)
        logits = wide.sum(1, keepdim=True).expand(-1, self.num_tasks)
        return (logits + self.dense(dense) if self.dense is not None else logits), deep
