"""Bad input: the right class, a text that says where, what was given, what was expected, and nothing changed afterwards."""
import gc
import re
import threading

import numpy as np
import pytest
from conftest import below, hand_net

import gradaccum as ga
from gradaccum import nn, optim


@pytest.fixture
def acc():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    net = ga.plan(model, input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=8)
    acc = ga.Accumulator(net, optim.AdamW(net, lr=0.1), accumulation_steps=3)
    acc.step(np.ones((2, 4)), [0, 1])                    # a window is open
    return acc


def state(acc):
    return acc.net.snapshot() | acc.optimizer.state_dict() | acc._core.get_state()


X, Y = np.ones((3, 4)), np.array([0, 1, 2])
BATCHES = [
    ("feature count", np.ones((3, 5)), Y, None, ValueError, r"x: got shape \(3, 5\), expected \(n, 4\)"),
    ("one sample without its axis", np.ones(4), Y, None, ValueError, r"x: got shape \(4,\), expected \(n, 4\).*x\[None\]"),
    ("rows above the plan", np.ones((9, 4)), np.zeros(9, int), None, ValueError, "has 9 samples, but the network is planned for at most 8"),
    ("no rows", np.ones((0, 4)), np.zeros(0, int), None, ValueError, "x: the batch has no samples"),
    ("labels (n, 1)", X, Y[:, None], None, ValueError, r"y: got shape \(3, 1\), expected \(n,\).*no broadcasting"),
    ("other number of labels", X, Y[:2], None, ValueError, "y: got 2 samples, but (the other arrays have|forward had) 3"),
    ("label below 0", X, [0, -1, 2], None, IndexError, r"loss: sample 1 has the label -1; allowed are 0 to 2, and ignore_index=-100"),
    ("label beyond the classes", X, [0, 1, 3], None, IndexError, "loss: sample 2 has the label 3; allowed are 0 to 2"),
    ("float labels", X, [0.0, 1.0, 2.0], None, TypeError, r"y: got dtype float64, expected integers.*astype"),
    ("complex input", X * 1j, Y, None, TypeError, "x: got dtype complex128, expected real"),
    ("object input", X.astype(object), Y, None, TypeError, "x: got dtype object"),
    ("text", np.full((3, 4), "a"), Y, None, TypeError, "x: got dtype <U1"),
    ("NaN weight", X, Y, [1, np.nan, 1], ValueError, "weight: sample 1 has nan; weights are finite and not negative"),
    ("negative weight", X, Y, [1, 1, -2], ValueError, "weight: sample 2 has -2"),
    ("infinite weight", X, Y, [np.inf, 1, 1], ValueError, "weight: sample 0 has inf"),
    ("weight of another length", X, Y, [1, 1], ValueError, "weight: got 2 samples"),
]


CASES = [pytest.param(way, *b[1:], id=f"{way}-{b[0]}") for way in ("step", "update", "by hand", "evaluate") for b in BATCHES
         if way in ("step", "by hand") or b[0] != "rows above the plan"]         # the others cut the batch themselves


@pytest.mark.parametrize("way, x, y, weight, error, text", CASES)
def test_batch(acc, way, x, y, weight, error, text):
    if way == "update":
        acc.clear(discard=True)
    before = state(acc)
    with pytest.raises(error, match=text):
        if way == "step":
            acc.step(x, y, weight)
        elif way == "update":
            acc.update(x, y, weight)
        elif way == "evaluate":
            acc.net.evaluate(x, y, weight)
        else:
            acc.net.forward(x)
            acc.net.loss(y, weight)
    if way == "by hand":
        before["stage"] = acc.net.stage
    after = state(acc)
    assert all(np.array_equal(before[k], after[k]) for k in before)
    assert acc.net.stage in ("clear", "accumulate", "forward")
    if way == "by hand":
        acc.clear(discard=True)
    acc.update(X, Y) if acc.micro_step == 0 else acc.step(X, Y)      # and it goes on


def test_ignore_index_is_accepted(acc):
    assert acc.step(X, [0, -100, 2]).weight == 2


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.L1Loss(), nn.BCEWithLogitsLoss()], ids=repr)
def test_no_broadcasting_between_n_and_n_1(loss):
    """(n,) against (n, 1) would broadcast to (n, n) and train on nonsense."""
    net = ga.plan(nn.Linear(4, 1), input_shape=(4,), loss=loss, micro_batch=3)
    acc = ga.Accumulator(net, optim.SGD(net))
    for call in (lambda: acc.update(X, np.ones(3)), lambda: acc.step(X, np.ones(3)), lambda: net.evaluate(X, np.ones(3))):
        with pytest.raises(ValueError, match=r"y: got shape \(3,\), expected \(n, 1\).*no broadcasting"):
            call()
    with pytest.raises(ValueError, match=r"weight: got shape \(3, 2\), expected \(n, 1\)"):
        acc.update(X, np.ones((3, 1)), np.ones((3, 2)))
    assert acc.update(X, np.ones((3, 1)), np.ones(3)).weight == 3


def test_a_label_in_a_sequence_is_named_by_its_place():
    net = ga.plan(nn.Linear(2, 3), input_shape=(5, 2), loss=nn.CrossEntropyLoss(ignore_index=9), micro_batch=4)
    y = np.zeros((6, 5), int)
    y[0, 1], y[4, 3] = 9, 7
    acc = ga.Accumulator(net, optim.SGD(net))
    with pytest.raises(IndexError, match="loss: sample 4 position 3 has the label 7; allowed are 0 to 2, and ignore_index=9"):
        acc.update(np.ones((6, 5, 2)), y)
    assert acc.micro_steps == 0                              # sample 4 is in the second piece: all is checked first
    y[4, 3] = 2
    assert acc.update(np.ones((6, 5, 2)), y).tokens == 29


@pytest.mark.parametrize("y, error, text", [
    (None, TypeError, "y: got dtype object"), ([0, 1, None], TypeError, "y: got dtype object"),
    (["a", "b", "c"], TypeError, "y: got dtype <U1"), (np.array([1, 2, 3], "M8[s]"), TypeError, r"y: got dtype datetime64"),
    ([[0, 1], [2]], ValueError, "inhomogeneous"), (np.zeros(3, [("a", int)]), TypeError, "y: got dtype"),
    (1, ValueError, r"y: got shape \(\), expected \(n,\)"), ([0.0, 1.0, 2.0], TypeError, "convert with .astype"),
], ids=str)
def test_targets_that_are_no_labels(acc, y, error, text):
    before = state(acc)
    for call in (lambda: acc.step(X, y), lambda: acc.net.evaluate(X, y)):
        with pytest.raises(error, match=text):
            call()
    assert all(np.array_equal(before[k], v) for k, v in state(acc).items())


def test_a_number_that_float32_cannot_hold():
    net = hand_net()
    with pytest.warns(RuntimeWarning, match="overflow"):
        net.predict([[1e300]])
    acc = ga.Accumulator(net, optim.SGD(net))
    with pytest.warns(RuntimeWarning), pytest.raises(FloatingPointError, match="NaN or infinity"):
        acc.update([[1e300]], below(1))
    assert net.params.tolist() == [0.0] and net.stage == "clear"


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "bool", ">f4"])
def test_other_real_dtypes_and_layouts_are_converted(dtype):
    x = np.random.default_rng(0).integers(0, 2, (6, 4)).astype(dtype)
    results = []
    for a in (x.astype("float32"), x, np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], x[::-1][::-1], x.tolist()):
        net = ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=6)
        ga.Accumulator(net, optim.SGD(net, lr=1.0)).update(a, np.arange(6, dtype=np.uint8) % 3)
        results.append(net.params.copy())
    assert all(np.array_equal(r, results[0]) for r in results)


# ---- plans ----

@pytest.mark.parametrize("options, error, text", [
    ({"micro_batch": 0}, ValueError, r"micro_batch=0: expected a whole number of samples, at least 1, or \"auto\""),
    ({"micro_batch": -3}, ValueError, "micro_batch=-3"),
    ({"micro_batch": 1.5}, ValueError, "micro_batch=1.5"),
    ({"micro_batch": True}, ValueError, "micro_batch=True"),
    ({"micro_batch": 2**40}, ValueError, "more rows than"),
    ({"dtype": "float16"}, ValueError, "dtype='float16': expected \"float32\" or \"float64\""),
    ({"engine": "mkl"}, ValueError, "engine='mkl': expected one of native, auto, openblas"),
    ({"keep": "some"}, ValueError, "keep='some'"),
    ({"ties": "loose"}, ValueError, "ties='loose'"),
    ({"seed": -1}, ValueError, "seed=-1"),
    ({"input_shape": (5,)}, ValueError, r"Linear\(4, 3\): the input has shape \(5,\) per sample, so in_features should be 5"),
    ({"input_shape": (4, 4, 4)}, ValueError, r"fc|linear.*shape \(4, 4, 4\) per sample, expected \(features,\).*Flatten"),
    ({"input_shape": (0,)}, ValueError, r"shape \(0,\) has a dimension below 1"),
    ({"input_shape": (1, 2, 3, 4)}, ValueError, "x: 4 dimensions per sample, at most 3"),
    ({"input_shape": (2**31 - 1, 2**31 - 1, 2**31 - 1)}, ValueError, "more elements than can be counted"),
    ({"memory_limit": "8 parsecs"}, ValueError, "memory_limit: expected a number of bytes"),
    ({"memory_limit": 0}, ValueError, "memory_limit=0"),
    ({"loss": "mse"}, TypeError, "loss: got str, expected a loss"),
    ({"inputs": {"x": (4,)}}, ValueError, "give either input_shape"),
])
def test_plan(options, error, text):
    with pytest.raises(error, match=text):
        ga.plan(nn.Linear(4, 3), **({"input_shape": (4,), "micro_batch": 2} | options))


def test_sizes_that_overflow():
    model = nn.Sequential(nn.Linear(4, 2**30), nn.Linear(2**30, 2**30))
    with pytest.raises((ValueError, MemoryError), match="can be counted|no memory"):
        ga.plan(model, input_shape=(4,), micro_batch=2**20)


def test_more_bytes_than_can_be_counted():
    """2^31 outputs for each of 2^30 samples."""
    with pytest.raises(ValueError, match="micro_batch=1073741824: the plan has more bytes than can be counted"):
        ga.plan(nn.Linear(1, 2**31 - 1, bias=False), input_shape=(1,), micro_batch=2**30)


@pytest.mark.parametrize("options, text", [
    ({"seed": 1.5}, "seed=1.5"), ({"seed": "a"}, "seed='a'"), ({"input_shape": ("a",)}, "input_shape"), ({"input_shape": 2.5}, "input_shape"),
])
def test_plan_names_the_argument(options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        ga.plan(nn.Linear(4, 3), **({"input_shape": (4,), "micro_batch": 2} | options))


def test_an_input_that_nothing_uses_is_named():
    class Half(nn.Module):
        def forward(self, x, extra):
            return nn.functional.relu(x)

    with pytest.raises(ValueError, match="extra: nothing uses it"):
        ga.plan(Half(), inputs={"x": (2,), "extra": (2,)}, micro_batch=1)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (-1, 3)])
def test_linear_sizes(sizes):
    with pytest.raises(ValueError, match="expected a whole number, at least 1"):
        nn.Linear(*sizes)


@pytest.mark.parametrize("sizes", [(2, 2.7), (2.5, 3), ("2", 3)])
def test_linear_sizes_are_whole_numbers(sizes):
    with pytest.raises((ValueError, TypeError), match="Linear: .*features"):
        nn.Linear(*sizes)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss, nn.MSELoss, nn.L1Loss, nn.BCEWithLogitsLoss])
def test_a_loss_has_no_reduction(loss):
    with pytest.raises(ValueError, match=r"reduction='mean' is not an argument here.*Accumulator\(..., reduction="):
        loss(reduction="mean")
    with pytest.raises(TypeError, match="unknown argument 'speed'"):
        loss(speed=1)
    with pytest.raises(ValueError, match="per='token', expected \"element\" or \"sample\""):
        loss(per="token")


@pytest.mark.parametrize("name", ["size_average", "reduce"])
def test_the_old_names_of_reduction_are_named(name):
    with pytest.raises(ValueError, match=f"MSELoss: {name}=False"):
        nn.MSELoss(**{name: False})


@pytest.mark.parametrize("make, text", [
    (lambda: nn.CrossEntropyLoss(label_smoothing=1.5), "label_smoothing=1.5, expected a number in"),
    (lambda: nn.CrossEntropyLoss(weight=[1, -1]), "weight: expected a list of finite numbers, none negative"),
    (lambda: nn.BCEWithLogitsLoss(pos_weight=[np.nan]), "pos_weight: expected a list of finite numbers"),
    (lambda: ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=nn.CrossEntropyLoss(weight=[1, 2]), micro_batch=1),
     "weight has 2 classes, the logits have 3"),
    (lambda: ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=nn.BCEWithLogitsLoss(pos_weight=[1, 2]), micro_batch=1),
     "pos_weight has 2 numbers, the prediction has 3 features"),
    (lambda: nn.GELU(approximate="no"), "approximate='no', expected"),
    (lambda: nn.Flatten(0), "only start_dim=1, end_dim=-1 is supported"),
    (lambda: ga.plan(nn.Softmax(0), input_shape=(4,), micro_batch=1), "Softmax: dim=0 .* use dim=1"),
    (lambda: nn.Dropout(2), "p=2, expected a probability"),
])
def test_options_of_layers_and_losses(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_unknown_layer_and_option():
    net = ga._core.Net(0, 0, 0)
    x = net.add_input("x", (4,), False, False)
    with pytest.raises(ValueError, match='thing: there is no layer "conv9d"'):
        net.add_node("conv9d", "thing", {}, [x], None)
    with pytest.raises(ValueError, match=r"fc \(linear\): unknown option wings"):
        net.add_node("linear", "fc", {"out_features": 3, "wings": 2}, [x], None)
    with pytest.raises(ValueError, match=r"fc \(linear\): option out_features is missing"):
        net.add_node("linear", "fc", {}, [x], None)
    assert net.nodes() == []


def test_calling_a_module_with_numbers():
    with pytest.raises(TypeError, match=r"Linear describes a computation and holds no numbers: plan it first"):
        nn.Linear(4, 3)(np.ones((2, 4)))


@pytest.mark.parametrize("options, text", [
    ({"accumulation_steps": 2, "effective_batch_size": 64}, "both set the size of a window"),
    ({"accumulation_steps": 2, "gradient_accumulation_steps": 2}, "are the same argument"),
    ({"accumulation_steps": 0}, "accumulation_steps=0: expected a whole number"),
    ({"accumulation_steps": 2.5}, "accumulation_steps=2.5"),
    ({"accumulation_steps": lambda u: 0}, r"accumulation_steps\(0\)=0"),
    ({"effective_batch_size": 0}, "effective_batch_size=0"),
    ({"reduction": "average"}, "reduction='average': expected one of 'mean', 'mean_of_means', 'sum'"),
    ({"tail": "wag"}, "tail='wag'"),
    ({"accumulator": "float8"}, "accumulator='float8'"),
    ({"max_grad_norm": 0}, "max_grad_norm=0: expected a number above 0"),
    ({"on_non_finite": "ignore"}, "on_non_finite='ignore'"),
    ({"loss_scale": 0.0}, "loss_scale=0"),
    ({"ema": 1.5}, "ema=1.5"),
])
def test_accumulator_options(options, text):
    net = hand_net()
    with pytest.raises(ValueError, match=text):
        ga.Accumulator(net, optim.SGD(net), **options)
    ga.Accumulator(net, optim.SGD(net))                  # the network is as it was


def test_things_of_another_type():
    net = hand_net()
    for call, text in [
        (lambda: ga.plan("model", input_shape=(1,), micro_batch=1), "module: got str, expected an nn.Module"),
        (lambda: ga.Accumulator(nn.Linear(1, 1)), "net: got Linear, expected a network from ga.plan"),
        (lambda: ga.Accumulator(net, "sgd"), "optimizer: got str, expected one of gradaccum.optim"),
        (lambda: optim.SGD(nn.Linear(1, 1)), "SGD: got Linear, expected a network from ga.plan"),
    ]:
        with pytest.raises(TypeError, match=text):
            call()


@pytest.mark.parametrize("options, text", [
    ({"micro_batches": 0}, "micro_batches=0"), ({"accumulation_steps": 1.5}, "accumulation_steps=1.5"), ({"epochs": -1}, "epochs=-1"),
    ({"tail": "wag"}, "tail='wag'"),
])
def test_planned_updates_options(options, text):
    with pytest.raises(ValueError, match=f"{text}: expected"):
        ga.planned_updates(**({"micro_batches": 4, "accumulation_steps": 2} | options))


def test_update_refuses_more_samples_than_the_effective_batch():
    net = hand_net(micro_batch=32)
    acc = ga.Accumulator(net, optim.SGD(net), effective_batch_size=64)
    with pytest.raises(ValueError, match="effective_batch_size"):
        acc.update(np.ones((200, 1)), below(200))
    assert acc.updates == 0


def test_a_function_for_k_that_goes_wrong_later_changes_nothing():
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net), accumulation_steps=lambda update: 1 - update)
    acc.step([[1.0]], below(1))
    before = state(acc)
    with pytest.raises(ValueError, match=r"accumulation_steps\(1\)=0: expected a whole number"):
        acc.step([[1.0]], below(1))
    assert all(np.array_equal(before[k], v) for k, v in state(acc).items())


def test_a_bad_batch_leaves_the_learning_rate():
    net = hand_net()
    acc = ga.Accumulator(net, optim.SGD(net, lr=1.0), schedule=lambda update: 0.125)
    with pytest.raises(ValueError):
        acc.update(np.ones((3, 2)), below(3))
    assert acc.optimizer.lr == 1.0


def test_optimizer_of_another_network():
    a, b = hand_net(), hand_net()
    with pytest.raises(ValueError, match="it was built for another network"):
        ga.Accumulator(a, optim.SGD(b))


@pytest.mark.parametrize("make, text", [
    (lambda net: optim.SGD(net, lr=-1), "lr=-1"),
    (lambda net: optim.SGD(net, lr=float("nan")), "lr=nan"),
    (lambda net: optim.SGD(net, nesterov=True), "nesterov=True needs momentum"),
    (lambda net: optim.SGD(net, weight_decay=-1), "weight_decay=-1"),
    (lambda net: optim.Adam(net, betas=(0.9, 1.0)), r"betas=\(0.9, 1\)"),
    (lambda net: optim.Adam(net, betas=0.9), "betas=0.9, expected two numbers"),
    (lambda net: optim.Adam(net, eps=-1), "eps=-1"),
    (lambda net: optim.SGD(net, groups=[{"params": ["nothing"]}]), "no parameter is named 'nothing'; there are 0.weight"),
    (lambda net: optim.SGD(net, groups=[{"lr": 1.0}]), "needs \"params\""),
    (lambda net: optim.SGD(net).set(speed=1), "unknown speed"),
    (lambda net: optim.SGD(net).set(momentum=0.9), "needs a state array"),
])
def test_optimizer_options(make, text):
    with pytest.raises(ValueError, match=text):
        make(hand_net())


def test_an_optimizer_that_is_not_the_windows():
    net = hand_net()
    mine, other = optim.SGD(net), optim.SGD(net)
    acc = ga.Accumulator(net, mine)
    acc.begin()
    net.forward([[1.0]])
    net.loss(below(1))
    net.backward()
    acc.accumulate()
    acc.normalize()
    with pytest.raises(ga.StageError, match="this network's window belongs to an Accumulator with another optimizer"):
        other.step()
    assert (mine.updates, other.updates, net.params.tolist()) == (0, 0, [0.0])


def test_the_state_of_another_optimizer():
    net = hand_net()
    opt = optim.Adam(net)
    good = opt.state_dict()
    for state_dict, text in [
        ({"exp_avg": 1}, r"got \['exp_avg'\], expected \['exp_avg', 'exp_avg_sq'\] and updates"),
        (good | {"exp_avg": np.ones(2)}, r"exp_avg has shape \(2,\), expected \(1,\)"),
        (good | {"updates": -1}, "0 or more"),
        (optim.SGD(net, momentum=0.9).state_dict(), "momentum_buffer"),
    ]:
        with pytest.raises(ValueError, match=text):
            opt.load_state_dict(state_dict)
        assert all(np.array_equal(good[k], v) for k, v in opt.state_dict().items())


def test_a_state_with_text_changes_nothing():
    opt = optim.Adam(hand_net())
    with pytest.raises((ValueError, TypeError)):
        opt.load_state_dict(opt.state_dict() | {"exp_avg": np.array(["a"]), "updates": 7})
    assert opt.updates == 0


def test_a_group_that_is_not_there():
    with pytest.raises((ValueError, IndexError)):
        optim.SGD(hand_net()).set(group=3, lr=1.0)


def test_schedule_that_gives_no_rate(acc):
    for value in (-1.0, float("nan")):
        acc.schedule = lambda update: value  # noqa: B023
        acc.clear(discard=True)
        with pytest.raises(ValueError, match="expected a finite learning rate"):
            acc.update(X, Y)


# ---- stages ----

def stages(net, opt, acc):
    return {
        "forward": lambda: net.forward(X), "loss": lambda: net.loss(Y), "backward": net.backward, "accumulate": acc.accumulate,
        "normalize": acc.normalize, "clip": lambda: acc.clip(1.0), "step": opt.step, "clear": acc.clear, "begin": acc.begin,
    }


ALLOWED = {
    "clear": {"forward", "clear", "begin"}, "forward": {"forward", "loss", "clear", "begin"}, "loss": {"forward", "loss", "backward", "clear", "begin"},
    "backward": {"accumulate"}, "accumulate": {"forward", "normalize"}, "normalize": {"clip", "step"}, "clip": {"step"}, "update": {"clear"},
}
WAY_TO = {
    "clear": [], "forward": ["forward"], "loss": ["forward", "loss"], "backward": ["forward", "loss", "backward"],
    "accumulate": ["forward", "loss", "backward", "accumulate"], "normalize": ["forward", "loss", "backward", "accumulate", "normalize"],
    "clip": ["forward", "loss", "backward", "accumulate", "normalize", "clip"],
    "update": ["forward", "loss", "backward", "accumulate", "normalize", "step"],
}


@pytest.mark.parametrize("stage", WAY_TO)
@pytest.mark.parametrize("call", ["forward", "loss", "backward", "accumulate", "normalize", "clip", "step", "clear", "begin"])
def test_every_call_in_every_stage(stage, call):
    net = ga.plan(nn.Linear(4, 3), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=3)
    opt = optim.SGD(net, lr=0.1)
    acc = ga.Accumulator(net, opt, accumulation_steps=4)
    calls = stages(net, opt, acc)
    for name in WAY_TO[stage]:
        calls[name]()
    assert net.stage == stage
    if call in ALLOWED[stage]:
        calls[call]()
        return
    before = state(acc)
    with pytest.raises(ga.StageError) as error:
        calls[call]()
    text = str(error.value)
    assert stage in text and re.search("allowed now|finish it", text), text
    assert all(np.array_equal(before[k], a) for k, a in state(acc).items())


def test_update_into_an_open_window(acc):
    with pytest.raises(ga.StageError, match="already holds 1 micro-batches"):
        acc.update(X, Y)
    with pytest.raises(ga.StageError, match="already holds 1"):
        next(acc.stages(X, Y))
    with pytest.raises(ga.StageError, match="holds 1 micro-batches"):
        ga.Accumulator(acc.net, acc.optimizer)


def test_a_replaced_accumulator_says_so(acc):
    acc.clear(discard=True)
    new = ga.Accumulator(acc.net, acc.optimizer)
    with pytest.raises(ga.StageError, match="was replaced by a newer one"):
        acc.step(X, Y)
    new.update(X, Y)


def test_step_after_an_update_by_hand_asks_for_clear(acc):
    acc.clear(discard=True)
    acc.begin()
    for _ in range(3):
        acc.net.forward(X)
        acc.net.loss(Y)
        acc.net.backward()
        acc.accumulate()
    acc.normalize()
    acc.optimizer.step()
    with pytest.raises(ga.StageError, match="allowed now: clear") as error:
        acc.step(X, Y)
    assert "not applied" not in str(error.value)


def test_a_refused_accumulator_leaves_the_old_one_at_work(acc):
    before, report = state(acc), acc.net.memory.by_kind()
    for options in ({"loss_scale": -1.0}, {"staged": True}, {"ema": 0.5}):
        with pytest.raises((ValueError, ga.StageError)):
            ga.Accumulator(acc.net, acc.optimizer, **options)
    assert all(np.array_equal(before[k], v) for k, v in state(acc).items())
    acc.step(X, Y)
    assert acc.step(X, Y).update.micro_steps == 3 and set(report) == set(acc.net.memory.by_kind()) - {"ema", "micro_batch_gradient"}


def test_zero_grad_belongs_to_the_window(acc):
    with pytest.raises(ga.StageError, match="belong to this network's accumulation window"):
        acc.net.zero_grad()


def test_a_network_without_a_loss():
    net = ga.plan(nn.Linear(4, 3), input_shape=(4,), micro_batch=2)
    assert net.predict(X).shape == (3, 3)
    with pytest.raises(ValueError, match="planned without a loss"):
        ga.Accumulator(net)
    net.forward(X[:2])
    with pytest.raises(ValueError, match="has no loss"):
        net.loss(Y[:2])


# ---- state_dict ----

def test_load_state_dict_names_all_that_is_wrong():
    net = ga.plan(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), input_shape=(4,), micro_batch=1)
    before, good = net.snapshot(), net.state_dict()
    with pytest.raises(ValueError, match="missing 0.bias, 1.bias; unexpected wings, x"):
        net.load_state_dict({"0.weight": good["0.weight"], "1.weight": good["1.weight"], "wings": 1, "x": 2})
    with pytest.raises(ValueError, match=r"shapes differ: 0.weight: got \(4, 6\), expected \(6, 4\); 1.bias: got \(1,\), expected \(3,\)"):
        net.load_state_dict(good | {"0.weight": np.ones((4, 6)), "1.bias": np.ones(1)})
    with pytest.raises(TypeError, match="0.bias has dtype complex128"):
        net.load_state_dict(good | {"0.bias": np.ones(6) * 1j})
    assert all(np.array_equal(before[k], v) for k, v in net.snapshot().items())
    net.load_state_dict({"0.bias": np.full(6, 7), "other": 1}, strict=False)
    assert np.all(net.parameters()["0.bias"].data == 7)


# ---- views ----

def test_views_outlive_the_network_and_cannot_be_written():
    net = hand_net()
    views = [net.params, net.grads, net.parameters()["0.weight"].data, net.forward([[1.0]])]
    del net
    gc.collect()
    for view in views:
        view.sum()
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True


def test_a_writable_view_is_a_call_of_its_own():
    net = hand_net()
    net.parameters()["0.weight"].writable()[...] = 5
    assert net.predict([[2.0]])[0, 0] == 10
    net.parameters()["0.weight"].writable()[...] = 6
    assert net.predict([[2.0]])[0, 0] == 12


def test_reused_memory_is_not_shown():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    net = ga.plan(model, input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=3)
    with pytest.raises(ga.StageError, match="0: its output is not computed yet"):
        net.nodes[0].output
    net.forward(X)
    with pytest.raises(ga.StageError, match='0: the memory of its output was used again by a later node; plan with keep="all"'):
        net.nodes[0].output
    assert net.nodes[1].output.shape == (3, 6)
    kept = ga.plan(model, input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=3, keep="all")
    kept.forward(X)
    assert np.array_equal(np.maximum(kept.nodes[0].output, 0), kept.nodes[1].output)


# ---- functions in Python ----

class Fails(nn.Function):
    where, when = "forward", 2
    calls = 0

    def forward(self, x):
        return self.maybe("forward", x)

    def backward(self, grad):
        return self.maybe("backward", grad)

    def maybe(self, where, value):
        if where == self.where and value.shape[0] == 2:
            self.calls += 1
            if self.calls == self.when:
                raise KeyError("from inside")
        return value


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_function_that_raises_leaves_no_trace(where):
    fails = Fails()
    fails.where = where
    net = ga.plan(nn.Sequential(nn.Linear(4, 4), fails, nn.Linear(4, 3)), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1))
    before = state(acc)
    with pytest.raises(KeyError, match="from inside"):
        acc.update(np.ones((6, 4)), [0, 1, 2, 0, 1, 2])
    assert all(np.array_equal(before[k], v) for k, v in state(acc).items())
    assert acc.update(np.ones((6, 4)), [0, 1, 2, 0, 1, 2]).micro_steps == 3


def test_a_function_that_raises_in_backward_by_hand_tears_the_window():
    fails = Fails()
    fails.where, fails.when = "backward", 1
    net = ga.plan(nn.Sequential(nn.Linear(4, 4), fails, nn.Linear(4, 3)), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1))
    net.forward(X[:2])
    net.loss(Y[:2])
    with pytest.raises(KeyError):
        net.backward()
    for call in (acc.accumulate, lambda: net.forward(X[:2]), acc.begin):
        with pytest.raises(ga.StageError):
            call()
    acc.clear(discard=True)
    assert not net.grads.any() and not acc.update(X[:2], Y[:2]).skipped


def test_a_function_that_returns_another_shape():
    class Wrong(nn.Function):
        def forward(self, x):
            return x

        def backward(self, grad):
            return grad[:, :2]

    net = ga.plan(nn.Sequential(nn.Linear(4, 4), Wrong()), input_shape=(4,), loss=nn.MSELoss(), micro_batch=2)
    with pytest.raises(ValueError, match=r"1: backward returned shape \(2, 2\), expected \(2, 4\)"):
        ga.Accumulator(net, optim.SGD(net)).update(X[:2], np.ones((2, 4)))


@pytest.mark.parametrize("name, result, error, text", [
    ("forward", lambda x: x[:, :2], ValueError, r"1: forward returned shape \(2, 2\), expected \(2, 4\)"),
    ("forward", lambda x: x[:1], ValueError, r"1: forward returned shape \(1, 4\), expected \(2, 4\)"),
    ("forward", lambda x: None, ValueError, r"1: forward returned shape \(\), expected \(2, 4\)"),
    ("forward", lambda x: x * 1j, TypeError, "1: forward returned dtype complex64, expected real numbers"),
    ("forward", lambda x: x.astype(str), TypeError, "1: forward returned dtype <U"),
    ("backward", lambda g: g.sum(), ValueError, r"1: backward returned shape \(\), expected \(2, 4\)"),
    ("backward", lambda g: None, ValueError, r"1: backward returned shape \(\), expected \(2, 4\)"),
    ("backward", lambda g: (g, g), ValueError, "1: backward must return one gradient for each of its 1 inputs"),
    ("backward", lambda g: g * 1j, TypeError, "1: backward returned dtype complex64, expected real numbers"),
])
@pytest.mark.parametrize("when", [1, 2])
def test_what_a_function_may_not_return(name, result, error, text, when):
    """The window is empty again after update(), whichever micro-batch it was."""
    class Wrong(nn.Function):
        calls = {"forward": 0, "backward": 0}
        on = False

        def answer(self, where, value):
            self.calls[where] += self.on
            return result(value) if self.on and where == name and self.calls[where] == when else value

        def forward(self, x):
            return self.answer("forward", x)

        def backward(self, grad):
            return self.answer("backward", grad)

    Wrong.calls = {"forward": 0, "backward": 0}
    net = ga.plan(nn.Sequential(nn.Linear(4, 4), Wrong()), input_shape=(4,), loss=nn.MSELoss(), micro_batch=2)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1))
    Wrong.on = True
    before = state(acc)
    with pytest.raises(error, match=text):
        acc.update(np.ones((4, 4)), np.ones((4, 4)))
    assert all(np.array_equal(before[k], v) for k, v in state(acc).items()) and net.stage == "clear"
    Wrong.on = False
    assert acc.update(np.ones((4, 4)), np.ones((4, 4))).micro_steps == 2


def test_a_function_whose_output_is_not_one_row_a_sample():
    class Total(nn.Function):
        def forward(self, x):
            return x.sum()

    with pytest.raises(ValueError, match=r"Total: forward of 1 sample returned shape \(\); the first axis must be the samples"):
        ga.plan(nn.Sequential(nn.Linear(4, 4), Total()), input_shape=(4,), micro_batch=2)


def test_a_function_that_raises_in_step_keeps_the_window_until_it_is_discarded():
    fails = Fails()
    fails.where, fails.when = "backward", 2
    net = ga.plan(nn.Sequential(nn.Linear(4, 4), fails, nn.Linear(4, 3)), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1), accumulation_steps=3)
    acc.step(X[:2], Y[:2])
    before = net.params.copy()
    with pytest.raises(KeyError):
        acc.step(X[:2], Y[:2])
    for call in (lambda: acc.step(X[:2], Y[:2]), acc.flush, acc.normalize, lambda: net.predict(X)):
        with pytest.raises(ga.StageError, match=r"clear\(discard=True\)"):
            call()
    acc.clear(discard=True)
    assert np.array_equal(net.params, before) and not net.grads.any() and acc.micro_step == 0
    assert [acc.step(X[:2], Y[:2]).is_boundary for _ in range(3)] == [False, False, True]


def test_a_function_that_raises_in_forward_keeps_what_the_window_holds():
    fails = Fails()
    fails.where, fails.when = "forward", 2
    net = ga.plan(nn.Sequential(nn.Linear(4, 4), fails, nn.Linear(4, 3)), input_shape=(4,), loss=nn.CrossEntropyLoss(), micro_batch=2)
    acc = ga.Accumulator(net, optim.SGD(net, lr=0.1), accumulation_steps=2)
    acc.step(X[:2], Y[:2])
    before = state(acc)
    with pytest.raises(KeyError):
        acc.step(X[:2], Y[:2])
    assert all(np.array_equal(before[k], v) for k, v in state(acc).items())
    assert acc.step(X[:2], Y[:2]).update.samples == 4


def test_a_function_may_not_use_its_own_network():
    class Inside(nn.Function):
        net = None

        def forward(self, x):
            if self.net is not None:
                self.net.predict(np.ones((1, 4)))
            return x

    inside = Inside()
    inside.net = None
    net = ga.plan(nn.Sequential(nn.Linear(4, 4), inside), input_shape=(4,), micro_batch=2)
    inside.net = net
    with pytest.raises(ga.StageError, match="in use by another thread"):
        net.predict(X[:1])


def test_two_threads_on_one_network():
    """A second caller gets an error: no wait, no corruption."""
    entered, leave = threading.Event(), threading.Event()

    class Waits(nn.Function):
        def forward(self, x):
            if x.shape[0] == 2:
                entered.set()
                leave.wait(10)
            return x

    net = ga.plan(nn.Sequential(nn.Linear(4, 4), Waits()), input_shape=(4,), loss=nn.MSELoss(), micro_batch=2)
    other = ga.plan(nn.Linear(4, 4), input_shape=(4,), loss=nn.MSELoss(), micro_batch=2)
    acc = ga.Accumulator(other, optim.SGD(other))
    worker = threading.Thread(target=lambda: net.predict(X[:2]))
    worker.start()
    assert entered.wait(10)
    for call in (lambda: net.predict(X[:1]), lambda: net.forward(X[:1]), net.backward, lambda: net.evaluate(X[:1], X[:1]), net.zero_grad):
        with pytest.raises(ga.StageError, match="in use by another thread.*give each thread its own, or use a lock"):
            call()
    assert acc.update(X[:1], X[:1]).samples == 1             # another network is free
    leave.set()
    worker.join()
    assert net.predict(X[:1]).shape == (1, 4)


def test_wrong_cpu_level(monkeypatch):
    monkeypatch.setenv("GRADACCUM_CPU", "quantum")
    with pytest.raises(ValueError, match="GRADACCUM_CPU=quantum: expected one of baseline, avx2, avx512"):
        hand_net()


def test_threads_outside_their_range():
    for n in (0, -1, 257):
        with pytest.raises(ValueError, match="expected 1 to 256"):
            ga.set_num_threads(n)


def test_acc_weight_per_element_shape(acc):
    net = ga.plan(nn.Linear(2, 2), input_shape=(5, 2), loss=nn.CrossEntropyLoss(), micro_batch=3)
    with pytest.raises(ValueError, match=r"weight: got shape \(3, 4\), but|weight: got 4 steps"):
        ga.Accumulator(net, optim.SGD(net)).update(np.ones((3, 5, 2)), np.zeros((3, 5), int), np.ones((3, 4)))
    assert below(1).shape == (1, 1)
