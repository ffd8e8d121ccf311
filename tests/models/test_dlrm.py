"""DLRM against the textbook on whole vectors."""

import pytest
import torch
from torch.nn.functional import linear, relu

from stepwell.embedding.inputs import SequenceSpec, SideInputs, SideSpec
from stepwell.errors import ConfigError
from stepwell.models import DLRM

USER = SideSpec(dense=5, pooled=(4, 4, 4), pooled_names=("age", "city", "device"))
ITEM = SideSpec(dense=0, pooled=(4, 4), pooled_names=("ad", "brand"))
N = 7


def inputs(spec: SideSpec, n: int = N) -> SideInputs:
    return SideInputs(torch.randn(n, spec.dense), torch.randn(n, sum(spec.pooled), requires_grad=True))


def layers(mlp, x):
    for layer in mlp.layers:
        x = relu(linear(x, layer.weight, layer.bias))
    return x


def test_equals_the_textbook():
    torch.manual_seed(1)
    model = DLRM(bottom=(6,), top=(8, 3)).build(USER, ITEM, ("click", "buy"))
    user, item = inputs(USER), inputs(ITEM)
    found = model(user, item)

    bottom = layers(model.user_bottom, user.dense)
    u = torch.cat([bottom, user.pooled], 1).view(N, 4, 4)
    i = item.pooled.view(N, 2, 4)
    uu = [(u[:, a] * u[:, b]).sum(1) for a in range(4) for b in range(a)]
    ui = [(u[:, a] * i[:, b]).sum(1) for a in range(4) for b in range(2)]
    first = model.top.first
    x = linear(torch.cat([bottom, torch.stack(uu, 1)], 1), first.user_weight, first.bias)
    x = relu(x + torch.cat([torch.stack(ui, 1), (i[:, 1] * i[:, 0]).sum(1, keepdim=True)], 1) @ first.item_weight.t())
    expected = linear(layers_but_last(model.top.rest, x), *last(model.top.rest))
    torch.testing.assert_close(torch.stack([found["click"], found["buy"]], 1), expected)

    weight = torch.randn(N)
    grads = [
        torch.autograd.grad((out * weight).sum(), [user.pooled, item.pooled, first.user_weight, bottom_weight(model)])
        for out in (found["buy"], expected[:, 1])
    ]
    for ours, textbook in zip(*grads, strict=True):
        torch.testing.assert_close(ours, textbook)


def layers_but_last(mlp, x):
    for layer in mlp.layers[:-1]:
        x = relu(linear(x, layer.weight, layer.bias))
    return x


def last(mlp):
    return mlp.layers[-1].weight, mlp.layers[-1].bias


def bottom_weight(model):
    return model.user_bottom.layers[0].weight


def test_gradients_by_differences():
    model = DLRM(bottom=(), top=()).build(USER, ITEM, ("click",)).double()
    user, item = inputs(USER, 3), inputs(ITEM, 3)

    def logits(dense, pooled, item_pooled):
        return model(SideInputs(dense, pooled), SideInputs(item.dense.double(), item_pooled))["click"].double()

    with torch.no_grad():
        weights = [t.double().requires_grad_() for t in (user.dense, user.pooled, item.pooled)]
    # `by_task` gives float32, so differences are coarse.
    assert torch.autograd.gradcheck(logits, weights, eps=1e-2, atol=1e-2, rtol=1e-2)


def test_dims_that_differ_are_named():
    item = SideSpec(pooled=(4, 8), pooled_names=("ad", "brand"))
    with pytest.raises(ConfigError, match=r"DLRM: dims .*user 'age' 4, .*item 'brand' 8; expected .* one dim"):
        DLRM().build(USER, item, ("click",))
    with pytest.raises(ConfigError, match="found none"):
        DLRM().build(SideSpec(dense=3), SideSpec(), ("click",))


def test_sequences_are_not_ignored():
    item = ITEM.replace(sequences=(SequenceSpec(name="tags", dim=4, max_len=3),))
    with pytest.raises(ConfigError, match="DLRM reads no sequences: found item sequence 'tags'"):
        DLRM().build(USER, item, ("click",))
