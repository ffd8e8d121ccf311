"""Dense optimizers are torch's own."""

import pytest
import torch

from stepwell.errors import ConfigError
from stepwell.train import DenseAdaGrad, DenseAdam, DenseAdamW, DenseOptimizer, DenseSGD

CASES = [
    (DenseSGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), torch.optim.SGD),
    (DenseSGD(lr=0.1), torch.optim.SGD),
    (DenseAdaGrad(lr=0.1, initial_accumulator=0.5, eps=1e-6, weight_decay=0.02), torch.optim.Adagrad),
    (DenseAdam(lr=0.01, beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.03), torch.optim.Adam),
    (DenseAdamW(lr=0.01, beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.3), torch.optim.AdamW),
]
NAMES = {
    "lr": "lr",
    "weight_decay": "weight_decay",
    "momentum": "momentum",
    "nesterov": "nesterov",
    "initial_accumulator": "initial_accumulator_value",
    "eps": "eps",
}


@pytest.mark.parametrize(("config", "cls"), CASES)
def test_every_setting_reaches_torch(config: DenseOptimizer, cls: type[torch.optim.Optimizer]) -> None:
    parameters = [torch.nn.Parameter(torch.ones(3))]
    built = config.build(parameters)
    assert type(built) is cls
    assert built.defaults["fused"] is True
    settings = config.to_dict()
    for name, torch_name in NAMES.items():
        if name in settings:
            assert built.defaults[torch_name] == settings[name]
    if "beta1" in settings:
        assert built.defaults["betas"] == (settings["beta1"], settings["beta2"])
    parameters[0].grad = torch.ones(3)
    built.step()
    assert (parameters[0] < 1).all()
    assert DenseOptimizer.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DenseAdam(lr=-1.0), "lr: found -1.0"),
        (lambda: DenseAdam(beta1=1.0), "beta1: found 1.0, expected less than 1"),
        (lambda: DenseSGD(nesterov=True), "because momentum is 0"),
        (lambda: DenseAdaGrad(eps=float("nan")), "eps: found nan"),
    ],
)
def test_wrong_ones(make: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make()  # type: ignore[operator]
