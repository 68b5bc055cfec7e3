"""The planned network: stages by hand, predictions, parameters and their names, state, views, engines."""
import gc
import os
import weakref
from pathlib import Path

import numpy as np
import pytest
from conftest import Residual, below, hand_net, residual_net

import gradaccum as ga
from gradaccum import nn, optim


def two_layers(micro_batch=4, dtype="float64", **options):
    """x (2) -> linear -> relu -> linear -> y (1), with small whole numbers."""
    net = ga.plan(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)), input_shape=(2,), loss=nn.MSELoss(), micro_batch=micro_batch,
                  dtype=dtype, keep="all", **options)
    net.load_state_dict({"0.weight": [[1, -1], [2, 0]], "0.bias": [0, 1], "2.weight": [[1, 1]], "2.bias": [0.5]})
    return net


# ---- stages ----

@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_array_of_one_micro_batch_worked_by_hand(dtype):
    """x = (1, 2): z = (-1, 3), h = (0, 3), y = 3.5; target 1: loss 6.25, dy = 5."""
    net = two_layers(dtype=dtype)
    assert net.forward([[1.0, 2.0]]).tolist() == [[3.5]]
    assert net.loss([[1.0]]) == (6.25, 1.0)
    net.backward()
    assert [node.output.tolist() for node in net.nodes[:3]] == [[[-1, 3]], [[0, 3]], [[3.5]]]
    assert [node.output_grad.tolist() for node in net.nodes[:3]] == [[[0, 5]], [[5, 5]], [[5]]]
    grads = {name: p.grad.tolist() for name, p in net.parameters().items()}
    assert grads == {"0.weight": [[0, 0], [5, 10]], "0.bias": [0, 5], "2.weight": [[0, 15]], "2.bias": [5]}
    assert net.grads.tolist() == [0, 0, 5, 10, 0, 5, 0, 15, 5]


def test_backward_adds_and_sample_losses_show_the_sums():
    net = two_layers()
    for _ in range(3):
        net.forward([[1.0, 2.0], [0.0, 0.0]])
        loss_sum, weight = net.loss([[1.0], [1.5]], [1.0, 4.0])
        losses, weights = net.sample_losses()
        net.backward()
    assert (loss_sum, weight) == (6.25, 5.0) and losses.tolist() == [6.25, 0.0] and weights.tolist() == [1.0, 4.0]
    assert net.parameters()["2.weight"].grad.tolist() == [[0, 45]]
    net.zero_grad()
    assert not net.grads.any() and net.stage == "clear"


def test_stage_names_follow_the_calls():
    net = two_layers()
    seen = [net.stage]
    for call in (lambda: net.forward([[1.0, 2.0]]), lambda: net.loss([[1.0]]), net.backward):
        call()
        seen.append(net.stage)
    assert seen == ["clear", "forward", "loss", "backward"]


def test_the_output_is_a_live_view_and_predict_a_new_array():
    net = two_layers()
    first = net.forward([[1.0, 2.0]])
    kept = net.predict([[1.0, 2.0]])
    assert kept.flags.writeable and kept.flags.owndata and first.base is not None
    second = net.forward([[0.0, 0.0]])
    assert second.tolist() == first.tolist() == [[1.5]] and kept.tolist() == [[3.5]]
    assert second.ctypes.data == first.ctypes.data


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 103])
def test_predict_and_evaluate_take_any_number_of_rows(n):
    rng = np.random.default_rng(n)
    net = two_layers()
    x, y, weight = rng.normal(size=(n, 2)), rng.normal(size=(n, 1)), rng.random(n)
    h = np.maximum(x @ [[1.0, 2.0], [-1.0, 0.0]] + [0, 1], 0)
    expected = h.sum(axis=1, keepdims=True) + 0.5
    assert net.predict(x) == pytest.approx(expected, rel=1e-14)
    squares = (expected - y)[:, 0] ** 2
    assert net.evaluate(x, y) == pytest.approx(squares.mean(), rel=1e-13)
    assert net.evaluate(x, y, weight) == pytest.approx(squares @ weight / weight.sum(), rel=1e-13)
    assert np.isnan(net.evaluate(x, y, np.zeros(n))) and not net.grads.any()


def test_training_and_evaluation():
    net = ga.plan(nn.Sequential(nn.Linear(4, 200), nn.Dropout(0.5)), input_shape=(4,), micro_batch=2, seed=9)
    x = np.ones((2, 4))
    full = net.predict(x)
    assert net.training and np.array_equal(net.eval().forward(x), full) and not net.training
    dropped = net.train().forward(x).copy()
    assert 60 < np.count_nonzero(dropped[0] == 0) < 140
    kept = dropped != 0
    assert np.array_equal(dropped[kept], 2 * full[kept]) and not np.array_equal(kept[0], kept[1])
    assert np.array_equal(net.forward(x), dropped)           # the same micro-batch of the same window: the same mask
    assert np.array_equal(net.predict(x), full)              # looking is always evaluation


def test_predict_waits_for_accumulate():
    """After backward the sums of the micro-batch still have to go into the window."""
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net, lr=1.0))
    net.forward([[2.0]])
    net.loss(below(1))
    net.backward()
    for call in (lambda: net.predict([[1.0]]), lambda: net.evaluate([[1.0]], below(1))):
        with pytest.raises(ga.StageError, match='in stage "backward"; allowed now: accumulate'):
            call()
    acc.accumulate()
    assert (acc.loss_sum, acc.weight_sum, acc.buffer[0]) == (1000.0, 1.0, 2.0)


# ---- inputs ----

class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(5, 3)

    def forward(self, a, b):
        return self.left(a) + self.right(b)


def test_several_inputs_by_name_or_in_order():
    rng = np.random.default_rng(0)
    net = ga.plan(TwoInputs(), inputs={"a": (2,), "b": (5,)}, loss=nn.MSELoss(), micro_batch=3, dtype="float64")
    a, b = rng.normal(size=(7, 2)), rng.normal(size=(7, 5))
    p = {name: v.data for name, v in net.parameters().items()}
    expected = a @ p["left.weight"].T + p["left.bias"] + b @ p["right.weight"].T + p["right.bias"]
    for x in ({"a": a, "b": b}, {"b": b, "a": a}, (a, b), [a, b]):
        assert net.predict(x) == pytest.approx(expected, rel=1e-13, abs=1e-13)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1))
    first = acc.update((a, b), np.zeros((7, 3)))
    assert first.micro_steps == 3 and [e.stage for e in acc.stages({"a": a, "b": b}, np.zeros((7, 3)))][-1] == "clear"
    with pytest.raises(ValueError, match=r"inputs: got \['a', 'c'\], the network has \['a', 'b'\]"):
        net.predict({"a": a, "c": b})
    with pytest.raises(ValueError, match="2 inputs: give a dict or a tuple of a, b"):
        net.predict(a)
    with pytest.raises(ValueError, match="b: got 6 samples, but the other arrays have 7"):
        net.predict((a, b[:6]))


def test_sequences_may_be_shorter_than_planned():
    rng = np.random.default_rng(1)
    net = ga.plan(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5)), input_shape=(6, 3), loss=nn.CrossEntropyLoss(), micro_batch=2)
    x, y = rng.normal(size=(4, 6, 3)), rng.integers(0, 5, (4, 6))
    full = net.predict(x)
    assert full.shape == (4, 6, 5) and np.array_equal(net.predict(x[:, :2]), full[:, :2])
    assert net.forward(x[:2, :1]).shape == (2, 1, 5) and net.loss(y[:2, :1])[1] == 2.0
    results = []
    for length in (6, 3):                                    # cut off, or ignored: the same tokens count
        net = ga.plan(nn.Linear(3, 5), input_shape=(6, 3), loss=nn.CrossEntropyLoss(), micro_batch=2)
        labels = y.copy()
        labels[:, 3:] = -100
        ga.Accumulator(net, optim.SGD(net, lr=1.0)).update(x[:, :length], labels[:, :length])
        results.append(net.params.copy())
    assert np.allclose(results[0], results[1], rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match=r"x: got shape \(1, 7, 3\), expected \(n, up to 6, 3\)"):
        net.predict(np.zeros((1, 7, 3)))


def test_images_have_pytorchs_axes():
    """Stored channels last inside; nobody outside sees it."""
    x = np.arange(2 * 3 * 2 * 4, dtype=np.float32).reshape(2, 3, 2, 4)
    net = ga.plan(nn.Sequential(nn.Identity(), nn.Flatten()), input_shape=(3, 2, 4), micro_batch=2, keep="all")
    assert np.array_equal(net.forward(x), x.reshape(2, 24))
    assert np.array_equal(net.nodes[0].output, x) and net.nodes[0].output.shape == (2, 3, 2, 4)
    net = ga.plan(nn.ReLU(), input_shape=(3, 2, 4), micro_batch=2)
    assert np.array_equal(net.predict(x - 20), np.maximum(x - 20, 0))
    assert np.array_equal(net.predict(np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)), x)


def test_weights_and_targets_of_pixels():
    """Per-pixel cross entropy with a weight per pixel, against NumPy."""
    rng = np.random.default_rng(2)
    x, y, weight = rng.normal(size=(3, 4, 2, 5)), rng.integers(0, 4, (3, 2, 5)), rng.random((3, 2, 5))
    net = ga.plan(nn.Identity(), input_shape=(4, 2, 5), loss=nn.CrossEntropyLoss(), micro_batch=3, dtype="float64")
    net.forward(x)
    loss, total = net.loss(y, weight)
    picked = np.take_along_axis(x, y[:, None], axis=1)[:, 0] - np.log(np.exp(x).sum(axis=1))
    assert loss == pytest.approx(-(weight * picked).sum(), rel=1e-13) and total == pytest.approx(weight.sum(), rel=1e-15)
    net = ga.plan(nn.Identity(), input_shape=(4, 2, 5), loss=nn.MSELoss(), micro_batch=3, dtype="float64")
    target, weight = rng.normal(size=x.shape), rng.random(x.shape)
    net.forward(x)
    loss, total = net.loss(target, weight)
    assert loss == pytest.approx((weight * (x - target) ** 2).sum(), rel=1e-13) and total == pytest.approx(weight.sum(), rel=1e-15)


# ---- parameters and nodes ----

def test_names_shapes_and_order_are_pytorchs():
    net = ga.plan(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 5, bias=False), nn.Linear(5, 2))), input_shape=(3,),
                  micro_batch=1)
    assert {name: p.shape for name, p in net.parameters().items()} == {
        "0.weight": (4, 3), "0.bias": (4,), "2.0.weight": (5, 4), "2.1.weight": (2, 5), "2.1.bias": (2,)}
    assert net.params.size == net.grads.size == 12 + 4 + 20 + 10 + 2
    assert [(n.name, n.kind, n.shape, n.inputs, n.parameters) for n in net.nodes] == [
        ("0", "linear", (4,), ["x"], ["0.weight", "0.bias"]), ("1", "relu", (4,), ["0"], []),
        ("2.0", "linear", (5,), ["1"], ["2.0.weight"]), ("2.1", "linear", (2,), ["2.0"], ["2.1.weight", "2.1.bias"])]
    assert net.node("2.1") is net.nodes[3]
    with pytest.raises(KeyError, match="there is no node 'fc'; the nodes are 0, 1, 2.0, 2.1"):
        net.node("fc")


def test_flat_arrays_and_shaped_views_are_the_same_memory():
    net, _ = residual_net()
    offset = 0
    for p in net.parameters().values():
        assert np.shares_memory(p.data, net.params) and np.shares_memory(p.grad, net.grads)
        assert p.data.ctypes.data == net.params.ctypes.data + 4 * offset and p.data.flags.c_contiguous
        offset += p.data.size
    assert offset == net.params.size
    assert all(a.ctypes.data % 64 == 0 for a in (net.params, net.grads))


def test_initial_values_depend_on_the_seed_alone():
    a, b = residual_net()[0], residual_net(5)[0]
    assert np.array_equal(a.params, b.params)
    assert np.array_equal(residual_net(dtype="float64")[0].params.astype("float32"), a.params)
    other = ga.plan(Residual(), input_shape=(12,), micro_batch=1, seed=4)
    assert not np.array_equal(other.params, a.params)
    for name, p in a.parameters().items():
        bound = 1 / np.sqrt(12)
        assert np.abs(p.data).max() <= bound and len(np.unique(p.data)) == p.data.size, name
        assert p.data.size < 100 or np.abs(p.data).max() > 0.9 * bound


def test_state_dict_goes_round():
    a, opt = residual_net()
    ga.Accumulator(a, opt).update(np.ones((3, 12)), [0, 1, 2])
    state = a.state_dict()
    assert list(state) == ["a.weight", "a.bias", "b.weight", "b.bias", "tied.weight", "out.weight", "out.bias"]
    assert np.array_equal(state["tied.weight"], state["a.weight"])
    state["a.bias"][...] = 7                                 # a copy
    assert not np.any(a.parameters()["a.bias"].data == 7)
    b = ga.plan(Residual(), input_shape=(12,), micro_batch=2, seed=99)
    b.load_state_dict(a.state_dict())
    assert np.array_equal(a.params, b.params)
    x = np.random.default_rng(0).normal(size=(5, 12))
    assert np.array_equal(a.predict(x), b.predict(x))


def test_load_state_dict_converts_dtypes_and_layouts():
    net = two_layers(dtype="float32")
    net.load_state_dict({"0.weight": np.asfortranarray([[1, 2], [3, 4]]), "0.bias": [True, False], "2.weight": np.float16([[0.5, 1]]),
                         "2.bias": np.array([9], dtype=">i2")})
    assert net.params.tolist() == [1, 2, 3, 4, 1, 0, 0.5, 1, 9]
    assert net.predict([[1.0, 0.0]]).tolist() == [[13.0]]    # z = (2, 3); 0.5 * 2 + 3 + 9: packed copies are made anew


def test_snapshot_copies_everything():
    net = two_layers()
    shot = net.snapshot()
    net.forward([[1.0, 2.0]])
    net.loss([[1.0]])
    net.backward()
    assert set(shot) == {f"{name}{end}" for name in net.parameters() for end in ("", ".grad")}
    assert not shot["2.bias.grad"].any() and net.snapshot()["2.bias.grad"].tolist() == [5.0]


def test_frozen_parameters_have_no_gradient():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).requires_grad_(False)
    model[2].bias.requires_grad = True
    net = ga.plan(model, input_shape=(2,), loss=nn.MSELoss(), micro_batch=2)
    frozen = [name for name, p in net.parameters().items() if p.frozen]
    assert frozen == ["0.weight", "0.bias", "2.weight"] and net.parameters()["0.weight"].grad is None
    before = net.state_dict()
    ga.Accumulator(net, optim.AdamW(net, lr=0.1, weight_decay=0.5), ema=0.5).update(np.ones((4, 2)), np.full((4, 1), 9.0))
    changed = [name for name, value in net.state_dict().items() if not np.array_equal(value, before[name])]
    assert changed == ["2.bias"] and np.count_nonzero(net.grads) == 0
    with pytest.raises(ValueError, match="0: nothing needs the gradient of this value"):
        net.nodes[0].output_grad


def test_reprs_name_what_there_is():
    net, opt = residual_net()
    text = repr(net)
    assert len(text.splitlines()) == 2 and str(net) == f"{text}\n{net.table()}"
    text = str(net)
    assert "Network: 377 parameters, float32, micro-batches of up to 96, stage 'clear'" in text
    assert "a.weight" in text and "cross_entropy_loss" in text and "Node('a', linear, x -> (12,))" in repr(net.nodes[0])
    assert repr(net.parameters()["a.bias"]).startswith("NetworkParameter('a.bias', shape=(12,)): out 12, float32, 48 B, last written by ga.plan")
    assert "AdamW(lr=0.01" in repr(opt) and "micro-step 0 of any" in repr(ga.Accumulator(net, opt))


# ---- engines ----

@pytest.mark.parametrize("features", [(1, 1), (1, 3), (3, 1), (3, 2), (17, 33), (64, 10)], ids=str)
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-13)])
def test_the_openblas_engine_agrees(features, dtype, tolerance):
    if ga.info()["openblas"] == "none":
        pytest.skip("no OpenBLAS is loaded")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, features[0])), rng.normal(size=(6, features[1]))
    gradients, outputs = [], []
    for engine in ("native", "openblas"):
        net = ga.plan(nn.Sequential(nn.Linear(*features), nn.Tanh(), nn.Linear(features[1], features[1])), input_shape=features[:1],
                      loss=nn.MSELoss(), micro_batch=4, dtype=dtype, engine=engine)
        acc = ga.Accumulator(net, optim.SGD(net, lr=1.0))
        outputs.append(net.predict(x))
        before = net.params.copy()
        acc.update(x, y)
        gradients.append(before - net.params)
        assert net.engine == engine
    assert np.abs(outputs[0] - outputs[1]).max() <= tolerance
    assert np.abs(gradients[0] - gradients[1]).max() <= tolerance * 10 and np.abs(gradients[0]).max() > 0.01


def test_info_says_what_is_in_use():
    info = ga.info()
    assert set(info) == {"gradaccum", "python", "numpy", "openblas", "cpu", "bf16", "threads"}
    flags = Path("/proc/cpuinfo").read_text().split() if os.path.exists("/proc/cpuinfo") else None
    assert info["bf16"] == ("avx512_bf16" in flags) if flags else info["bf16"] in (True, False)
    assert info["cpu"] in ("baseline", "avx2", "avx512") and info["threads"] == ga.get_num_threads() and info["numpy"] == np.__version__


# ---- lifetime ----

def test_a_network_goes_with_its_last_reference():
    gc.collect()
    gc.disable()
    try:
        net = hand_net()
        dead = weakref.ref(net)
        del net
        assert dead() is None
    finally:
        gc.enable()
        gc.collect()


def test_windows_and_optimizers_keep_their_network():
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net, lr=1.0))
    dead = weakref.ref(net)
    del net
    gc.collect()
    assert acc.update([[3.0]], below(1)).loss == 1000.0 and acc.net.params.tolist() == [-3.0]
    del acc
    gc.collect()
    assert dead() is None


def test_two_networks_of_one_module_are_independent():
    module = nn.Linear(2, 1)
    a, b = (ga.plan(module, input_shape=(2,), loss=nn.MSELoss(), micro_batch=m) for m in (1, 3))
    before = b.params.copy()
    assert np.array_equal(a.params, before)
    ga.Accumulator(a, optim.SGD(a, lr=0.1)).update(np.ones((2, 2)), np.full((2, 1), 9.0))
    assert np.array_equal(b.params, before) and not np.array_equal(a.params, before)
