import numpy as np
import pytest

from stepwell.errors import ConfigError
from stepwell.rows import RowLayout, StateField, decode_weights, encode_weights

ROW = StateField(name="v", per="row", initial=0.5)
ELEMENT = StateField(name="m", per="element")
FINGERPRINT = 0xCAFCB364D937DAD5  # of dim 64, fp32, row-wise v


@pytest.mark.parametrize(
    ("layout", "weight_bytes", "offsets", "count", "record"),
    [
        (RowLayout(dim=64, state=(ROW,)), 256, {"v": 256}, 260, 272),
        (RowLayout(dim=64), 256, {}, 256, 272),
        (RowLayout(dim=1, weight_dtype="bf16"), 16, {}, 16, 32),
        (RowLayout(dim=9, weight_dtype="fp16", state=(ELEMENT, ROW)), 32, {"m": 32, "v": 68}, 72, 80),
        (RowLayout(dim=3, state=(ROW, ELEMENT)), 16, {"v": 16, "m": 20}, 32, 48),
    ],
)
def test_offsets(layout: RowLayout, weight_bytes: int, offsets: dict[str, int], count: int, record: int) -> None:
    assert layout.weight_bytes == weight_bytes
    assert layout.state_offsets == offsets
    assert (layout.count_offset, layout.last_step_offset, layout.record_bytes) == (count, count + 4, record)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_views_write_the_record_and_do_not_overlap(dtype: str) -> None:
    layout = RowLayout(dim=5, weight_dtype=dtype, state=(ELEMENT, ROW))
    records = np.zeros((3, layout.record_bytes), np.uint8)
    views = layout.views(records)
    weights = np.arange(15, dtype=np.float32).reshape(3, 5)
    views.weight[:] = encode_weights(weights, dtype)
    views.state["m"][:] = weights + 100
    views.state["v"][:] = [7, 8, 9]
    views.count[:] = 0xFFFFFFFF
    views.last_step[:] = [1, 2, 3]
    again = layout.views(records.copy())
    np.testing.assert_array_equal(decode_weights(again.weight, dtype), weights)
    np.testing.assert_array_equal(again.state["m"], weights + 100)
    assert again.state["v"].tolist() == [7, 8, 9]
    assert again.count.tolist() == [0xFFFFFFFF] * 3 and again.last_step.tolist() == [1, 2, 3]
    assert not records[:, 5 * encode_weights(weights, dtype).itemsize : layout.weight_bytes].any()
    with pytest.raises(ConfigError, match="records: found uint8"):
        layout.views(records[:, :-1])


def test_initial_record() -> None:
    layout = RowLayout(dim=5, state=(ELEMENT, ROW))
    record = layout.initial_record()
    assert record.shape == (layout.record_bytes,) and record.dtype == np.uint8
    views = layout.views(record[None])
    assert views.state["v"].tolist() == [0.5]
    record[layout.state_offsets["v"] :][:4] = 0
    assert not record.any()


def test_fingerprint_is_frozen_and_tells_layouts_apart() -> None:
    layout = RowLayout(dim=64, state=(ROW,))
    assert layout.fingerprint == FINGERPRINT
    others = [
        layout.replace(dim=65),
        layout.replace(weight_dtype="bf16"),
        layout.replace(state=()),
        layout.replace(state=(ROW.replace(name="w"),)),
        layout.replace(state=(ROW.replace(per="element"),)),
        layout.replace(state=(ROW, ELEMENT)),
        layout.replace(state=(ELEMENT, ROW)),
    ]
    assert len({layout.fingerprint, *(other.fingerprint for other in others)}) == 8
    assert layout.replace(state=(ROW.replace(initial=1.0),)).fingerprint == layout.fingerprint
    assert RowLayout.from_json(layout.to_json()) == layout


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RowLayout(dim=0), r"RowLayout\.dim: found 0, expected an int from 1"),
        (lambda: RowLayout(dim=True), r"RowLayout\.dim: found True"),
        (lambda: RowLayout(dim=(1 << 24) + 1), r"RowLayout\.dim"),
        (lambda: RowLayout(dim=4, weight_dtype="int8"), r"RowLayout\.weight_dtype: found 'int8'"),
        (lambda: RowLayout(dim=4, state=(ROW, ROW)), r"RowLayout\.state"),
        (lambda: RowLayout(dim=4, state=[ROW]), r"RowLayout\.state.*a tuple of StateField"),
        (lambda: StateField(name="count", per="row"), r"StateField\.name: found 'count'"),
        (lambda: StateField(name="a b", per="row"), r"StateField\.name"),
        (lambda: StateField(name="a", per="column"), r"StateField\.per: found 'column'"),
    ],
)
def test_what_cannot_work_is_an_error(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]
