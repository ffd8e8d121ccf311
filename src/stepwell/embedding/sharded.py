"""ShardedEmbedding: ids in, a dense network's inputs out; the rows live in a TieredStore, which it trains.

`route` and `fetch` may be called from any thread, ahead of time. The rest belongs to one thread and comes in step
order: forward, backward, `apply`, and the store's `commit`.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from stepwell.embedding.inputs import SideInputs, SideSpec
from stepwell.embedding.lookup import Lookup
from stepwell.embedding.passes import FROZEN, U64, Pass, look_up, update_from
from stepwell.embedding.plan import Plan, RoutedIds
from stepwell.errors import ConfigError
from stepwell.jagged import JaggedIds
from stepwell.store import RowCopies, StepRows, TieredStore


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """A batch and where its rows are: in DRAM, pinned until `step` commits, or copies of them (step 0)."""

    routed: RoutedIds
    step: int
    rows: StepRows | RowCopies  # keeps copies alive

    @property
    def addresses(self) -> U64:
        """uint64 [U]: the record of each unique row."""
        return self.rows.addresses


class ShardedEmbedding(nn.Module):
    """Looks up the rows of `lookups` in `store`'s tables and trains them. It has no parameters.

    `dense` is how many dense columns go to the user side and to the item side: the first ones are the user's.
    """

    def __init__(self, lookups: Several[Lookup], store: TieredStore, dense: tuple[int, int] = (0, 0)) -> None:
        super().__init__()
        self.store = store
        self._plan = Plan(lookups, store, dense)
        self._anchor = torch.zeros(0, requires_grad=True)
        self._passes: list[Pass] = []
        self._passes_step = 0  # what they belong to
        self._applied_step = 0
        self._num_unique = 0

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """In the order of a batch's features."""
        return self._plan.lookups

    @property
    def user_spec(self) -> SideSpec:
        """The shape of the user side's inputs."""
        return self._plan.user

    @property
    def item_spec(self) -> SideSpec:
        """The shape of the item side's inputs."""
        return self._plan.item

    @property
    def num_unique(self) -> int:
        """Rows of the batch that was looked up last."""
        return self._num_unique

    @property
    def anchor(self) -> Tensor:
        """An empty tensor that requires a gradient and never gets one: where the graph of every look-up begins."""
        return self._anchor

    def route(self, ids: JaggedIds, *, gradients: bool = True) -> RoutedIds:
        """The batch's ids without repeats. ConfigError, naming the feature, unless the lookups can take the batch.

        Without `gradients`, which takes less time, the batch can be read and not trained.
        """
        return self._plan.route(ids, gradients=gradients)

    def fetch(self, routed: RoutedIds, step: int) -> Fetched:
        """The batch's rows, pinned until `step` commits; waits while other steps' rows leave no room."""
        (fetched,) = self.fetch_window([(routed, step)])
        return fetched

    def fetch_window(self, window: Iterable[tuple[RoutedIds, int]]) -> Iterator[Fetched]:
        """Batches' rows, steps not falling, with one read of the SSD for all; yields each as it is pinned.

        A batch waits for its room holding no pins: take each from the iterator, so that earlier ones can commit.
        """
        wanted = list(window)
        for routed, _ in wanted:
            self._check_own(routed)
        rows = self.store.fetch([(step, routed.ids) for routed, step in wanted])
        return (Fetched(routed, step, some) for (routed, step), some in zip(wanted, rows, strict=True))

    def read(self, routed: RoutedIds) -> Fetched:
        """Copies of the batch's rows as they are committed, first values where there is no row; any thread."""
        self._check_own(routed)
        return Fetched(routed, 0, self.store.read_rows(routed.ids))

    def forward(self, batch: JaggedIds | Fetched, dense: Tensor | None = None) -> tuple[SideInputs, SideInputs]:
        """The user side's and the item side's inputs.

        In training mode the rows are those of the step that commits next, and gradients flow back to them. In eval
        mode ids are read as they are committed, and nothing changes; an id without a row reads as its first values.
        """
        columns = self._checked_dense(dense, (batch.routed if isinstance(batch, Fetched) else batch).batch_size)
        fetched = batch if isinstance(batch, Fetched) else self._fetched_now(batch)
        routed = fetched.routed
        self._check_own(routed)
        if isinstance(fetched.rows, StepRows):
            self._check_step(fetched.step)
        elif self.training:
            raise ConfigError("found a batch that was read, in training mode: fetch it, or call eval() first")
        if self.training and torch.is_grad_enabled():
            if not routed.gradients:
                raise ConfigError("found a batch routed without gradients, in training mode; route it with them")
            keep = partial(self._keep, fetched.step)
            outputs = look_up(self._anchor, self._plan, routed, fetched.addresses, keep)
        else:
            outputs = self._plan.look_up(routed, fetched.addresses)
        self._num_unique = routed.num_unique
        return self._plan.side_inputs(routed, outputs, columns)

    def apply(self, lr_factor: float = 1.0, frozen: Collection[str] = ()) -> None:  # type: ignore[override]
        """Update every row of the step's batches once, at its table's rate times `lr_factor`; the step commits next.

        Rows of `frozen` tables, and of tables that no gradient reached, stay as they are.
        """
        rates = self._rates(lr_factor, frozen)
        passes, step = self._passes, self.store.step + 1
        if self._applied_step == step:
            raise ConfigError(f"apply: found it called twice for step {step}: commit first, by store.commit({step})")
        if not passes:
            raise ConfigError("apply: found no gradients; run forward in training mode and backward before it")
        self._check_passes(step)
        if len(passes) == 1:
            reached = passes[0].reached
            passes[0].update(step, [rate if table in reached else FROZEN for table, rate in enumerate(rates)])
        else:
            update_from(passes, step, rates)
        self._passes, self._applied_step = [], step

    def gradients_finite(self) -> bool:
        """Whether every gradient that backward left is finite. Finite ones whose sum overflows show a step later."""
        return all(one.is_finite() for one in self._passes)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients that no update has taken."""
        self._passes = []

    # Inside

    def _fetched_now(self, ids: JaggedIds) -> Fetched:
        if not self.training:
            return self.read(self.route(ids, gradients=False))
        step = self.store.step + 1
        self._check_step(step)
        return self.fetch(self.route(ids), step)

    def _keep(self, step: int, one: Pass) -> None:
        if step != self.store.step + 1 or step == self._applied_step:
            happened = "committed" if step <= self.store.step else "been updated by apply()"
            raise ConfigError(f"backward: found gradients for step {step}, which has {happened}; run it before that")
        self._passes_step = step
        self._passes.append(one)

    def _check_step(self, step: int) -> None:
        following = self.store.step + 1
        if step != following:
            raise ConfigError(
                f"found a batch fetched for step {step}, expected step {following}, the one after the last commit: "
                f"{'fetch it again' if step < following else f'commit step {following} first'}"
            )
        if self.training and step == self._applied_step:
            raise ConfigError(
                f"found a forward pass for step {step}, which apply() has updated: store.commit({step}) first"
            )
        self._check_passes(step)

    def _check_passes(self, step: int) -> None:
        if self._passes and self._passes_step != step:
            raise ConfigError(
                f"found gradients of step {self._passes_step}, which committed without them: call apply() before the "
                "commit, or zero_grad() where a step should not update rows"
            )

    def _check_own(self, routed: RoutedIds) -> None:
        if routed.plan is not self._plan:
            raise ConfigError("found a batch routed by another embedding; each routes its own")

    def _checked_dense(self, dense: Tensor | None, batch_size: int) -> Tensor:
        wanted = (batch_size, self.user_spec.dense + self.item_spec.dense)
        if dense is None and wanted[1] == 0:
            return torch.empty(wanted)
        if dense is None or dense.dtype != torch.float32 or dense.shape != wanted:
            found = f"{dense.dtype} {tuple(dense.shape)}" if dense is not None else "none"
            raise ConfigError(
                f"dense: found {found}, expected torch.float32 {wanted}: {self.user_spec.dense} columns of the user "
                f"side, then {self.item_spec.dense} of the item side"
            )
        return dense

    def _rates(self, lr_factor: float, frozen: Collection[str]) -> list[float]:
        if not 0.0 <= lr_factor < math.inf:
            raise ConfigError(f"lr_factor: found {lr_factor}, expected a finite number >= 0")
        for name in frozen:
            self.store.tables.named(name)
            if name not in self._plan.specs:
                raise ConfigError(f"frozen: found table {name!r}, which no lookup uses")
        return [FROZEN if name in frozen else spec.optimizer.lr * lr_factor for name, spec in self._plan.specs.items()]
