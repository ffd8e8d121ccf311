"""THE five stages of training: read, route, fetch, compute, write_back. docs/training.md says why that is exact."""

from collections.abc import Callable, Iterator

from stepwell.data import Batch
from stepwell.errors import NotFinite
from stepwell.train.learner import Learner, Work
from stepwell.train.pipeline import END, Stage


def five_stages(
    learner: Learner,
    batches: Iterator[Batch],
    on_step: Callable[[int, Work], None],
    on_bad: Callable[[int, Work, NotFinite], None],
) -> tuple[Stage, ...]:
    """The stages over these batches, from the step after the store's last commit on.

    `on_step` is called in compute, after the step's commit; `on_bad` before NotFinite ends the run.
    """
    config, embedding, store = learner.config, learner.embedding, learner.store

    def read(step: int, _: object) -> Work | object:
        """A step's batches; the last step of the data may have fewer."""
        if config.steps and step > config.steps:
            return END
        taken = []
        for batch in batches:
            taken.append(batch)
            if len(taken) == config.accumulate:
                break
        return Work(tuple(taken)) if taken else END

    def route(step: int, work: Work) -> Work:
        """Unique ids."""
        work.routed = [embedding.route(batch.ids) for batch in work.batches]
        return work

    def fetch(step: int, work: Work) -> Work:
        """Rows up, pinned for their step."""
        work.fetched = [embedding.fetch(routed, step) for routed in work.routed]
        return work

    def fetch_window(step: int, window: list[Work]) -> Iterator[Work]:
        """The same for several steps, with one read of the SSD; a step goes on when its own rows are there."""
        wanted = [(routed, step + i) for i, work in enumerate(window) for routed in work.routed]
        rows = iter(embedding.fetch_window(wanted))
        for work in window:
            work.fetched = [next(rows) for _ in work.routed]
            yield work

    def compute(step: int, work: Work) -> Work:
        """Forward, backward, updates, commit."""
        try:
            learner.learn(step, work)
        except NotFinite as error:
            on_bad(step, work, error)
            raise
        on_step(step, work)
        return work

    def write_back(step: int, work: Work) -> None:
        """Rows that will have to leave soon go down now, so that fetching finds room."""
        store.evict_ahead()

    return (
        Stage(name="read", run=read),
        Stage(name="route", run=route),
        Stage(
            name="fetch",
            run=fetch_window if config.fetch_window > 1 else fetch,
            window=config.fetch_window,
            interrupt=store.stop_waiting,
        ),
        Stage(name="compute", run=compute, here=True),
        Stage(name="write_back", run=write_back),
    )
