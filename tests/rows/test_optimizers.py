"""Each rule against a textbook formula in float64, written here a row at a time, and against torch where it is."""

import math

import numpy as np
import pytest

from stepwell.errors import ConfigError
from stepwell.rows import (
    FTRL,
    LAMB,
    SGD,
    AdaGrad,
    Adam,
    AdamW,
    MomentumScaledRowWiseAdaGrad,
    Optimizer,
    RowWiseAdaGrad,
    RowWiseAdam,
    row_mean_of_squares,
    row_norm,
    row_sum,
)

N, DIM, STEPS = 6, 10, 7
KINDS = {
    SGD: 0,
    AdaGrad: 1,
    RowWiseAdaGrad: 2,
    MomentumScaledRowWiseAdaGrad: 3,
    Adam: 4,
    AdamW: 5,
    RowWiseAdam: 6,
    FTRL: 7,
    LAMB: 8,
}


def new_state(spec: Optimizer, dim: int = DIM) -> dict[str, np.ndarray]:
    return {
        field.name: np.full((N, dim) if field.per == "element" else N, field.initial, np.float32)
        for field in spec.state_fields()
    }


def start() -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(N, DIM)).astype(np.float32), [rng.normal(size=(N, DIM)).astype(np.float32)] * STEPS


def run(spec: Optimizer) -> np.ndarray:
    weight, grads = start()
    state = new_state(spec)
    for step, grad in enumerate(grads, 1):
        before = grad.copy()
        spec.apply(weight, state, grad, step, spec.lr)
        np.testing.assert_array_equal(grad, before)
    return weight


# --- the textbook: one row, float64 -----------------------------------------------------------------------------------


def sgd(s, w, g, state, t):
    if not s.momentum:
        return w - s.lr * g
    state["m"] = s.momentum * state.get("m", 0) + g
    return w - s.lr * (g + s.momentum * state["m"] if s.nesterov else state["m"])


def adagrad(s, w, g, state, t):
    state["v"] = state.get("v", s.initial_accumulator) + g**2
    return w - s.lr * g / (np.sqrt(state["v"]) + s.eps)


def row_wise_adagrad(s, w, g, state, t):
    state["v"] = state.get("v", s.initial_accumulator) + np.mean(g**2)
    return w - s.lr * g / (math.sqrt(state["v"] / getattr(s, "scale", 1)) + s.eps)


def moments(s, state, g, square, t):
    state["m"] = s.beta1 * state.get("m", 0) + (1 - s.beta1) * g
    state["v"] = s.beta2 * state.get("v", 0) + (1 - s.beta2) * square
    return state["m"] / (1 - s.beta1**t) / (np.sqrt(state["v"] / (1 - s.beta2**t)) + s.eps)


def adam(s, w, g, state, t):
    return w - s.lr * moments(s, state, g, g**2, t)


def adamw(s, w, g, state, t):
    return w - s.lr * moments(s, state, g, g**2, t) - s.lr * s.weight_decay * w


def row_wise_adam(s, w, g, state, t):
    return w - s.lr * moments(s, state, g, np.mean(g**2), t)


def ftrl(s, w, g, state, t):
    n, z, alpha = state.get("n", 0), state.get("z", 0), s.alpha * s.lr
    z = z + g - (np.sqrt(n + g**2) - np.sqrt(n)) / alpha * w
    n = n + g**2
    state["n"], state["z"] = n, z
    return np.where(np.abs(z) <= s.l1, 0, -(z - np.sign(z) * s.l1) / ((s.beta + np.sqrt(n)) / alpha + s.l2))


def lamb(s, w, g, state, t):
    u = moments(s, state, g, g**2, t) + s.weight_decay * w
    return w - s.lr * np.linalg.norm(w) / np.linalg.norm(u) * u


CASES = [
    (SGD(lr=0.1), sgd),
    (SGD(lr=0.1, momentum=0.9), sgd),
    (SGD(lr=0.1, momentum=0.9, nesterov=True), sgd),
    (SGD(lr=0.1, weight_decay=0.01, max_row_norm_grad=1.5), sgd),
    (AdaGrad(lr=0.1), adagrad),
    (AdaGrad(lr=0.1, initial_accumulator=0.1, weight_decay=0.1), adagrad),
    (RowWiseAdaGrad(lr=0.1), row_wise_adagrad),
    (RowWiseAdaGrad(lr=0.1, initial_accumulator=0.1, max_row_norm_grad=2.0), row_wise_adagrad),
    (MomentumScaledRowWiseAdaGrad(lr=0.1, scale=4.0), row_wise_adagrad),
    (Adam(lr=0.1), adam),
    (Adam(lr=0.1, weight_decay=0.1, beta1=0.8, beta2=0.99), adam),
    (AdamW(lr=0.1, weight_decay=0.1), adamw),
    (RowWiseAdam(lr=0.1), row_wise_adam),
    (FTRL(), ftrl),
    (FTRL(lr=0.5, alpha=0.2, beta=0.7, l1=0.4, l2=0.3), ftrl),
    (LAMB(lr=0.1), lamb),
    (LAMB(lr=0.1, weight_decay=0.1, max_row_norm_grad=1.0), lamb),
]


@pytest.mark.parametrize(("spec", "rule"), CASES, ids=lambda case: getattr(case, "__name__", type(case).__name__))
def test_rule_is_the_textbook(spec, rule) -> None:
    weight, grads = start()
    expected = weight.astype(np.float64)
    for row in range(N):
        state: dict[str, object] = {}
        for step, grad in enumerate(grads, 1):
            g = grad[row].astype(np.float64)
            if spec.max_row_norm_grad:
                g *= min(1, spec.max_row_norm_grad / np.linalg.norm(g))
            if not isinstance(spec, (AdamW, LAMB)):
                g = g + spec.weight_decay * expected[row]
            expected[row] = rule(spec, expected[row], g, state, step)
    np.testing.assert_allclose(run(spec), expected, rtol=3e-5, atol=3e-6)
    assert not np.array_equal(expected, weight)


@pytest.mark.parametrize(
    ("spec", "name", "settings"),
    [
        (SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1), "SGD", {"momentum": 0.9, "nesterov": True}),
        (AdaGrad(lr=0.1, initial_accumulator=0.1), "Adagrad", {"initial_accumulator_value": 0.1}),
        (Adam(lr=0.1, weight_decay=0.1), "Adam", {}),
        (AdamW(lr=0.1, weight_decay=0.1), "AdamW", {}),
    ],
)
def test_rule_is_torchs(spec: Optimizer, name: str, settings: dict[str, object]) -> None:
    torch = pytest.importorskip("torch")
    weight, grads = start()
    parameter = torch.nn.Parameter(torch.from_numpy(weight))
    optimizer = getattr(torch.optim, name)([parameter], lr=spec.lr, weight_decay=spec.weight_decay, **settings)
    for grad in grads:
        parameter.grad = torch.from_numpy(grad.copy())
        optimizer.step()
    np.testing.assert_allclose(run(spec), parameter.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("spec", "rule"), CASES, ids=lambda case: getattr(case, "__name__", type(case).__name__))
def test_rows_do_not_see_each_other(spec: Optimizer, rule: object) -> None:
    weight, grads = start()
    for row in range(N):
        alone, state = weight[row : row + 1].copy(), {k: v[:1].copy() for k, v in new_state(spec).items()}
        for step, grad in enumerate(grads, 1):
            spec.apply(alone, state, grad[row : row + 1], step, spec.lr)
        np.testing.assert_array_equal(alone[0], run(spec)[row])


def test_kinds_are_frozen() -> None:
    assert {cls: cls.kind for cls in KINDS} == KINDS
    assert {type(spec) for spec, _ in CASES} == KINDS.keys()


def test_json_round_trip() -> None:
    for spec, _ in CASES:
        assert type(spec).from_json(spec.to_json()) == spec


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 64, 100])
def test_row_sum_is_the_halving_tree(dim: int) -> None:
    x = np.random.default_rng(dim).normal(size=(4, dim)).astype(np.float32)
    for row, total in zip(x, row_sum(x), strict=True):
        values = [*row] + [np.float32(0)] * ((1 << (dim - 1).bit_length()) - dim)
        while len(values) > 1:
            half = len(values) // 2
            values = [values[i] + values[i + half] for i in range(half)]
        assert values[0] == total
    np.testing.assert_allclose(row_norm(x), np.linalg.norm(x, axis=1), rtol=1e-6)
    np.testing.assert_allclose(row_mean_of_squares(x), (x**2).mean(axis=1), rtol=1e-6)


def test_zero_gradient_and_zero_weight_are_finite() -> None:
    for cls in KINDS:
        spec = cls()
        weight, state = np.zeros((N, DIM), np.float32), new_state(spec)
        spec.apply(weight, state, np.zeros((N, DIM), np.float32), 1, spec.lr)
        assert not weight.any()


def test_a_gradient_that_is_not_finite_stays_in_its_row() -> None:
    for spec in (RowWiseAdaGrad(max_row_norm_grad=1.0), Adam(), FTRL(), LAMB()):
        weight, grads = start()
        clean = weight.copy()
        bad = grads[0].copy()
        bad[2, 3] = np.nan
        spec.apply(weight, new_state(spec), bad, 1, spec.lr)
        spec.apply(clean, new_state(spec), grads[0], 1, spec.lr)
        others = np.arange(N) != 2
        np.testing.assert_array_equal(weight[others], clean[others])
        assert np.isnan(weight[2]).any()


def test_arrays_are_checked_before_any_change() -> None:
    weight, grads = start()
    spec, state = Adam(), new_state(Adam())
    before = weight.copy()
    for change, message in (
        ({"weight": weight.astype(np.float64)}, "weight: found float64"),
        ({"grad": grads[0][:, 1:]}, r"grad: found float32 \(6, 9\)"),
        ({"state": {"m": state["m"]}}, r"state: found \['m'\], expected \['m', 'v'\]"),
        ({"state": {**state, "v": state["v"][:, 0]}}, r"v: found float32 \(6,\)"),
        ({"step": 0}, "step: found 0"),
    ):
        arguments = {"weight": weight, "state": state, "grad": grads[0], "step": 1, "lr": 0.1, **change}
        with pytest.raises(ConfigError, match=message):
            spec.apply(**arguments)
    np.testing.assert_array_equal(weight, before)
    with pytest.raises(ConfigError, match=r"FTRL\.apply: lr: found 0"):
        FTRL().apply(weight, new_state(FTRL()), grads[0], 1, 0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(lr=-1.0), r"SGD\.lr: found -1\.0, expected a finite number >= 0\.0"),
        (lambda: SGD(nesterov=True), r"SGD\.nesterov"),
        (lambda: SGD(momentum=1.5), r"SGD\.momentum"),
        (lambda: Adam(beta1=1.0), r"Adam\.beta1"),
        (lambda: Adam(weight_decay=math.nan), r"Adam\.weight_decay"),
        (lambda: AdaGrad(eps=0.0), r"AdaGrad\.eps"),
        (lambda: FTRL(alpha=0.0), r"FTRL\.alpha"),
        (lambda: MomentumScaledRowWiseAdaGrad(scale=0.0), r"MomentumScaledRowWiseAdaGrad\.scale"),
        (lambda: LAMB(max_row_norm_grad=-1.0), r"LAMB\.max_row_norm_grad"),
        (Optimizer, "is a base"),
    ],
)
def test_what_cannot_work_is_an_error(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
