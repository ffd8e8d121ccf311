"""What all models promise: the user's part once per request, JSON and files, autocast, empty and bad inputs."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from stepwell.embedding.inputs import Sequence, SequenceSpec, SideInputs, SideSpec
from stepwell.errors import ConfigError
from stepwell.models import (
    BST,
    DIN,
    DLRM,
    MODELS,
    DCNv2,
    DeepFM,
    MMoE,
    ModelConfig,
    RankingModel,
    WideDeep,
    gather_users,
    side_inputs,
)
from stepwell.models.layers import flat

TASKS = ("click", "buy")
USER = SideSpec(dense=3, pooled=(1, 8, 8), pooled_names=("age_weight", "age", "city"))
ITEM = SideSpec(dense=2, pooled=(8, 1, 8), pooled_names=("ad", "ad_weight", "shop"))
EVEN_USER = SideSpec(dense=3, pooled=(8, 8), pooled_names=("age", "city"))
EVEN_ITEM = SideSpec(dense=2, pooled=(8, 8), pooled_names=("ad", "shop"))
HISTORY = tuple(SequenceSpec(name=name, dim=8, max_len=5) for name in ("past_ads", "past_shops"))
WITH_HISTORY = USER.replace(sequences=HISTORY)
BEHAVIOURS = {"past_ads": "ad", "past_shops": "shop"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bilinear(ModelConfig):
    """A model of one's own, without the split."""

    scale: float = 1.0

    def build(self, user: SideSpec, item: SideSpec, tasks: tuple[str, ...]) -> "BilinearNetwork":
        return BilinearNetwork(self.scale, user.dense + sum(user.pooled), item.dense + sum(item.pooled), tasks)


class BilinearNetwork(RankingModel):
    def __init__(self, scale: float, user: int, item: int, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.scale, self.tasks = scale, tasks
        self.product = nn.Bilinear(user, item, len(tasks))

    def score(self, user: dict[str, Tensor], item: SideInputs) -> dict[str, Tensor]:
        logits = self.scale * self.product(flat(side_inputs(user)), flat(item))
        return dict(zip(self.tasks, logits.float().unbind(1), strict=True))


CASES = {
    "WideDeep": (WideDeep(), USER, ITEM),
    "DeepFM": (DeepFM(deep=(16,)), USER, ITEM),
    "DLRM": (DLRM(bottom=(8,), top=(16, 8)), EVEN_USER, EVEN_ITEM),
    "DLRM, all on one side": (DLRM(), EVEN_USER, SideSpec()),
    "DLRM, all on the other": (DLRM(), SideSpec(), EVEN_ITEM),
    "DCNv2": (DCNv2(), USER, ITEM),
    "DCNv2, low rank, parallel": (DCNv2(rank=4, structure="parallel", deep=(16,)), USER, ITEM),
    "DCNv2, parallel, no user": (DCNv2(num_cross=1, structure="parallel"), SideSpec(), ITEM),
    "DIN": (DIN(behaviours=BEHAVIOURS, attention=(16, 8)), WITH_HISTORY, ITEM),
    "BST": (BST(behaviours=BEHAVIOURS, num_blocks=2, num_heads=4), WITH_HISTORY, ITEM),
    "MMoE": (MMoE(num_experts=3, expert=(16, 8)), USER, ITEM),
    "MMoE, shallow": (MMoE(expert=(8,), tower=()), USER, ITEM),
    "Bilinear": (Bilinear(scale=0.5), USER, ITEM),
}
every_model = pytest.mark.parametrize("case", CASES)


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def inputs(spec: SideSpec, n: int, grad: bool = False) -> SideInputs:
    sequences = {}
    for sequence in spec.sequences:
        lengths = torch.arange(n) % (sequence.max_len + 1)
        held = torch.arange(sequence.max_len) < lengths[:, None]
        values = torch.where(held[:, :, None], torch.randn(n, sequence.max_len, sequence.dim), 0.0)
        sequences[sequence.name] = Sequence(values.requires_grad_(grad), lengths)
    dense, pooled = torch.randn(n, spec.dense), torch.randn(n, sum(spec.pooled)).requires_grad_(grad)
    return SideInputs(dense, pooled, sequences)


def take(side: SideInputs, rows: Tensor) -> SideInputs:
    sequences = {name: Sequence(s.values[rows], s.lengths[rows]) for name, s in side.sequences.items()}
    return SideInputs(side.dense[rows], side.pooled[rows], sequences)


def built(case: str, seed: int = 0) -> tuple[RankingModel, SideSpec, SideSpec]:
    config, user, item = CASES[case]
    torch.manual_seed(seed)
    return config.build(user, item, TASKS), user, item


def test_every_class_is_in_the_registry():
    assert {name.split(",")[0] for name in CASES} - {"Bilinear"} == set(MODELS)
    assert all(name == cls.__name__ and issubclass(cls, ModelConfig) for name, cls in MODELS.items())


@every_model
def test_user_once_per_request_gives_the_scores_of_training(case):
    model, user_spec, item_spec = built(case)
    users, items = inputs(user_spec, 6), inputs(item_spec, 40)
    owner = torch.arange(40) % 6
    outputs = model.user(users)
    assert all(tensor.shape[0] == 6 for tensor in outputs.values())
    served = model.score(gather_users(outputs, owner), items)
    trained = model(take(users, owner), items)
    assert list(served) == list(trained) == list(TASKS)
    for task in TASKS:
        assert served[task].shape == (40,) and served[task].dtype == torch.float32
        torch.testing.assert_close(served[task], trained[task], rtol=1e-5, atol=1e-5)


@every_model
def test_gathered_users_are_the_same_bits(case):
    model, user_spec, item_spec = built(case)
    users, items = inputs(user_spec, 40), inputs(item_spec, 40)
    outputs = model.user(users)
    before = {name: tensor.clone() for name, tensor in outputs.items()}
    found = model.score(gather_users(outputs, torch.arange(40)), items)
    for task, logits in model(users, items).items():
        assert torch.equal(found[task], logits)
    model.score(outputs, items)  # what a request shares is not written to
    assert all(torch.equal(before[name], tensor) for name, tensor in outputs.items())


@every_model
def test_every_weight_and_every_input_learns(case):
    model, user_spec, item_spec = built(case)
    user, item = inputs(user_spec, 64, grad=True), inputs(item_spec, 64, grad=True)
    out = model(user, item)
    labels = (torch.arange(64) % 3 == 0).float()
    sum(nn.functional.binary_cross_entropy_with_logits(out[task], labels) for task in TASKS).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.abs().sum() > 0, name
    for side, spec in ((user, user_spec), (item, item_spec)):
        if spec.pooled:
            assert (side.pooled.grad.abs().sum(0) > 0).all()
        for sequence in side.sequences.values():
            assert (sequence.values.grad.abs().sum((0, 2)) > 0).all()
            held = torch.arange(sequence.values.shape[1]) < sequence.lengths[:, None]
            assert not sequence.values.grad[~held].any()  # padding is not read


@every_model
def test_learns(case):
    model, user_spec, item_spec = built(case)
    user, item = inputs(user_spec, 128), inputs(item_spec, 128)
    labels = (flat(user if user_spec.dense else item)[:, 0] > 0).float()
    optimizer = torch.optim.Adam(model.parameters(), 0.01, fused=True)
    losses = []
    for _ in range(50):
        loss = nn.functional.binary_cross_entropy_with_logits(model(user, item)["buy"], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] < 4.0 and losses[-1] < 0.4


@every_model
def test_drawn_from_the_seed_alone(case):
    first, again, other = built(case)[0], built(case)[0], built(case, seed=1)[0]
    assert all(torch.equal(t, again.state_dict()[name]) for name, t in first.state_dict().items())
    assert any(not torch.equal(t, other.state_dict()[name]) for name, t in first.state_dict().items())


@every_model
def test_json_and_back(case):
    config, _, _ = CASES[case]
    assert ModelConfig.from_json(config.to_json()) == config


@every_model
def test_autocast(case):
    model, user_spec, item_spec = built(case)
    user, item = inputs(user_spec, 32, grad=True), inputs(item_spec, 32, grad=True)
    exact = model(user, item)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(user, item)
        loss = sum(nn.functional.binary_cross_entropy_with_logits(found[task], torch.ones(32)) for task in TASKS)
    loss.backward()
    for task in TASKS:
        assert found[task].dtype == torch.float32
        torch.testing.assert_close(found[task], exact[task], rtol=0.1, atol=0.15)
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())


@every_model
def test_no_samples(case):
    model, user_spec, item_spec = built(case)
    out = model(inputs(user_spec, 0, grad=True), inputs(item_spec, 0, grad=True))
    assert all(out[task].shape == (0,) for task in TASKS)
    sum(out.values()).sum().backward()


@every_model
def test_batches_that_differ_in_size_agree(case):
    """A sample's logit does not depend on the samples beside it: no statistics of the batch."""
    model, user_spec, item_spec = built(case)
    user, item = inputs(user_spec, 30), inputs(item_spec, 30)
    some = torch.arange(4, 9)
    for task, logits in model(take(user, some), take(item, some)).items():
        torch.testing.assert_close(logits, model(user, item)[task][some], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [DIN(behaviours=BEHAVIOURS), BST(behaviours=BEHAVIOURS)])
@pytest.mark.parametrize(
    ("user", "item", "match"),
    [
        (USER, ITEM, r"behaviours: found 'past_ads', expected one of the user's sequence features, \[\]"),
        (WITH_HISTORY, ITEM.replace(pooled_names=()), r"found 'ad' as the target of 'past_ads', expected .* \[\]"),
        (
            WITH_HISTORY,
            ITEM.replace(pooled=(4, 1, 8)),
            r"'past_ads' of dim 8 and its target 'ad' of dim 4, expected one",
        ),
        (
            USER.replace(sequences=(HISTORY[0], HISTORY[1].replace(max_len=6))),
            ITEM,
            "max_len: found 'past_ads' 5, 'past_shops' 6, expected one",
        ),
        (
            USER.replace(sequences=(*HISTORY, HISTORY[0].replace(name="other"))),
            ITEM,
            "found no use for the sequences 'other'",
        ),
        (WITH_HISTORY, ITEM.replace(sequences=HISTORY[:1]), "found no use for the sequences 'past_ads'"),
    ],
)
def test_behaviours_that_do_not_fit(config, user, item, match):
    with pytest.raises(ConfigError, match=match):
        config.build(user, item, TASKS)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: DLRM().build(USER, ITEM, TASKS), r"DLRM: dims .*'age_weight' 1, user 'age' 8.* one dim"),
        (lambda: DLRM().build(EVEN_USER.replace(pooled_names=()), ITEM, TASKS), "user pooled feature 0 8"),
        (
            lambda: DeepFM().build(USER.replace(pooled=(1, 8, 4)), ITEM, TASKS),
            r"DeepFM: dims .*'city' 4.*besides .* 1",
        ),
        (lambda: WideDeep().build(EVEN_USER, EVEN_ITEM, TASKS), "WideDeep: dims .* found 8; expected some of dim 1"),
        (lambda: MMoE().build(WITH_HISTORY, ITEM, TASKS), "MMoE reads no sequences: found user sequence 'past_ads'"),
        (lambda: DCNv2().build(SideSpec(), SideSpec(), TASKS), "DCNv2: found no inputs"),
        (lambda: DCNv2(rank=64).build(EVEN_USER, EVEN_ITEM, TASKS), r"DCNv2.rank: found 64, expected less than 37"),
        (lambda: DCNv2().build(USER, ITEM, ()), r"tasks: found \(\)"),
        (lambda: DCNv2().build(USER, ITEM, ("a", "a")), "no two the same"),
        (lambda: BST(behaviours=BEHAVIOURS, num_heads=3).build(WITH_HISTORY, ITEM, TASKS), "num_heads: found 3, .*16"),
        (lambda: DIN(behaviours={}), "DIN.behaviours"),
        (lambda: DLRM(top=(0,)), "DLRM.top"),
        (lambda: DLRM(bottom=64), "DLRM.bottom"),
        (lambda: MMoE(expert=()), "MMoE.expert"),
        (lambda: DCNv2(structure="parallel", deep=()), "DCNv2.deep"),
        (lambda: SideSpec(pooled=(4, 4), pooled_names=("a",)), "pooled_names"),
        (lambda: SideSpec(pooled=(4, 4), pooled_names=("a", "a")), "names that differ"),
    ],
)
def test_what_does_not_fit_is_named(make, match):
    with pytest.raises(ConfigError, match=match):
        make()


def test_bst_knows_the_order_of_acts_and_din_their_intensity():
    for config in (BST(behaviours={"past_ads": "ad"}), DIN(behaviours={"past_ads": "ad"})):
        torch.manual_seed(0)
        model = config.build(USER.replace(sequences=HISTORY[:1]), ITEM, TASKS)
        user, item = inputs(USER.replace(sequences=HISTORY[:1]), 8), inputs(ITEM, 8)
        values, lengths = user.sequences["past_ads"].values.clone(), torch.full((8,), 3)
        values[:, :3] = torch.randn(8, 3, 8)
        swapped = values.clone()
        swapped[:, [0, 1, 2]] = values[:, [2, 0, 1]]
        a, b = (
            model(replace(user, sequences={"past_ads": Sequence(v, lengths)}), item)["click"] for v in (values, swapped)
        )
        assert torch.allclose(a, b, atol=1e-5) == isinstance(config, DIN)


def test_models_need_neither_safetensors_nor_pyarrow():
    program = "import sys; import stepwell.models; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=os.environ)
    assert not {"safetensors", "pyarrow", "fsspec", "rich"} & set(run.stdout.split())
