"""Describing models: tracing, graphs, layers called twice, tied weights, and layers written in NumPy."""
import numpy as np
import pytest

import gradaccum as ga
from gradaccum import nn, optim
from gradaccum.nn import functional as F
from gradaccum.testing import check_split, gradcheck


def slope(module, input_shape, name, index, *, loss=None, samples=3, step=1e-5):
    """(finite difference, gradient) of the loss sum for one parameter element; the gradient goes through a window of two pieces."""
    rng = np.random.default_rng(0)
    net = ga.plan(module, input_shape=input_shape, loss=loss or nn.MSELoss(), micro_batch=2, dtype="float64", seed=1)
    x, y = rng.normal(size=(samples, *input_shape)), rng.normal(size=(samples, *net.nodes[-2].shape))
    values = net.parameters()[name].writable()
    at = []
    kept = values[index]
    for h in (-2, -1, 1, 2):
        values[index] = kept + h * step
        at.append(net.evaluate(x, y) * y.size)
    values[index] = kept
    acc = ga.Accumulator(net, reduction="sum")
    acc.begin()
    for i in range(0, samples, 2):
        net.forward(x[i:i + 2])
        net.loss(y[i:i + 2])
        net.backward()
        acc.accumulate()
    acc.normalize()
    return (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * step), net.parameters()[name].grad[index]


# ---- names ----

class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)

    def forward(self, x):
        return F.relu(self.fc(x)) + x


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(4) for _ in range(3))
        self.head = nn.Sequential({"norm": nn.Tanh(), "out": nn.Linear(4, 2)})

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_names_in_nested_modules():
    net = ga.plan(Deep(), input_shape=(4,), loss=nn.MSELoss(), micro_batch=2)
    assert list(net.parameters()) == [f"blocks.{i}.fc.{p}" for i in range(3) for p in ("weight", "bias")] + ["head.out.weight", "head.out.bias"]
    assert [n.name for n in net.nodes] == ["blocks.0.fc", "relu_1", "add_1", "blocks.1.fc", "relu_2", "add_2", "blocks.2.fc", "relu_3", "add_3",
                                           "head.norm", "head.out", "loss"]
    assert [name for name, _ in Deep().named_modules()][:4] == ["", "blocks", "blocks.0", "blocks.0.fc"]
    assert [name for name, _ in Deep().named_parameters()] == list(net.parameters())


def test_containers_are_sequences():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(model) == 3 and model[-1].out_features == 1 and [type(m).__name__ for m in model] == ["Linear", "ReLU", "Linear"]
    layers = nn.ModuleList([nn.Tanh()]).append(nn.GELU())
    assert len(layers) == 2 and isinstance(layers[1], nn.GELU)
    assert repr(model) == "Sequential(\n  (0): Linear(2, 3)\n  (1): ReLU()\n  (2): Linear(3, 1)\n)"
    with pytest.raises(TypeError, match="Sequential: item 1 is a function, expected a module"):
        nn.Sequential(nn.ReLU(), lambda x: x)


def test_a_model_may_be_one_layer():
    net = ga.plan(nn.Linear(2, 3), input_shape=2, micro_batch=1)
    assert list(net.parameters()) == ["weight", "bias"] and net.nodes[0].name == "linear_1"


def test_a_layer_made_in_forward_does_not_hide_another():
    class Clash(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear_1 = nn.Linear(2, 2)

        def forward(self, x):
            return self.linear_1(nn.Linear(2, 2)(x))

    net = ga.plan(Clash(), input_shape=(2,), micro_batch=1)
    assert sum(p.data.size for p in net.parameters().values()) == net.params.size == 12
    assert len({n.name for n in net.nodes}) == 2


# ---- control flow and graphs ----

def test_python_control_flow_runs_while_tracing():
    class Choose(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.depth, self.layers = depth, nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

        def forward(self, x):
            for layer in list(self.layers)[:self.depth]:
                x = layer(x)
            return F.tanh(x) if x.shape[0] == 3 else x

    for depth in (1, 4):
        net = ga.plan(Choose(depth), input_shape=(3,), micro_batch=1)
        assert len(net.nodes) == depth + 1 and len(net.parameters()) == 2 * depth     # those that are called


class Diamond(nn.Module):
    """A value read by three nodes, another by itself twice, and a path of two layers in between."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.a(x)
        left, right = F.gelu(self.b(h)), F.tanh(self.c(h))
        y = left + right + h
        return self.out(y + y)


@pytest.mark.parametrize("name", ["a.weight", "b.weight", "c.bias", "out.weight"])
def test_gradients_of_a_value_with_several_readers(name):
    expected, got = slope(Diamond(), (4,), name, (1, 2) if name.endswith("weight") else (1,))
    assert got == pytest.approx(expected, rel=1e-8) and abs(got) > 1e-3


def test_a_diamond_keeps_every_promise():
    assert gradcheck(Diamond(), (4,)) < 1e-7
    check_split(Diamond(), (4,))


class Twice(nn.Module):
    """One layer at two places."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(F.tanh(self.fc(x)))


class Tied(nn.Module):
    """Two layers with one weight, each with its own bias; frozen if asked."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(F.tanh(self.first(x)))


def test_a_layer_called_twice_is_two_nodes_with_one_parameter():
    net = ga.plan(Twice(), input_shape=(3,), loss=nn.MSELoss(), micro_batch=1)
    assert [n.name for n in net.nodes] == ["fc", "tanh_1", "fc:2", "loss"]
    assert list(net.parameters()) == ["fc.weight", "fc.bias"] and net.params.size == 12
    assert net.nodes[2].parameters == ["fc.weight", "fc.bias"]
    w, b = net.parameters()["fc.weight"].data, net.parameters()["fc.bias"].data
    x = np.array([[0.3, -1.0, 2.0]])
    assert net.predict(x) == pytest.approx(np.tanh(x @ w.T + b) @ w.T + b, rel=1e-6)


def test_a_tied_weight_has_one_array_and_two_names():
    net = ga.plan(Tied(), input_shape=(3,), loss=nn.MSELoss(), micro_batch=1)
    assert list(net.parameters()) == ["first.weight", "first.bias", "second.bias"] and net.params.size == 15
    assert list(net.state_dict()) == ["first.weight", "first.bias", "second.weight", "second.bias"]
    assert [name for name, _ in Tied().named_parameters(all_names=True)] == list(net.state_dict())


@pytest.mark.parametrize("module, name, index", [(Twice, "fc.weight", (0, 1)), (Twice, "fc.bias", (2,)), (Tied, "first.weight", (2, 0))])
def test_the_gradient_of_a_shared_parameter_is_the_sum_of_its_uses(module, name, index):
    expected, got = slope(module(), (3,), name, index)
    assert got == pytest.approx(expected, rel=1e-8) and abs(got) > 1e-3


@pytest.mark.parametrize("module", [Twice, Tied])
def test_shared_parameters_keep_every_split_equal(module):
    check_split(module(), (3,), samples=9)
    staged, direct = [], []
    for results, options in ((direct, {}), (staged, {"staged": True})):
        net = ga.plan(module(), input_shape=(3,), loss=nn.MSELoss(), micro_batch=4, dtype="float64")
        ga.Accumulator(net, optim.SGD(net, lr=1.0), **options).update(np.ones((4, 3)), np.zeros((4, 3)))
        results.append(net.params.copy())
    assert np.array_equal(staged, direct)                    # one micro-batch: nothing to round differently


@pytest.mark.parametrize("module", [Twice, Tied])
def test_backward_without_a_window_gives_the_whole_gradient_of_a_shared_parameter(module):
    assert gradcheck(module(), (3,), probe=False) < 1e-7


def test_a_frozen_tied_weight_stays():
    module = Tied()
    module.first.weight.requires_grad = False
    net = ga.plan(module, input_shape=(3,), loss=nn.MSELoss(), micro_batch=2)
    before = net.state_dict()
    ga.Accumulator(net, optim.SGD(net, lr=0.1)).update(np.ones((3, 3)), np.full((3, 3), 5.0))
    after = net.state_dict()
    assert [n for n in after if not np.array_equal(after[n], before[n])] == ["first.bias", "second.bias"]
    expected, got = slope(module, (3,), "first.bias", (1,))
    assert got == pytest.approx(expected, rel=1e-8)


def test_a_tied_weight_of_another_shape():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    with pytest.raises(ValueError, match=r"b.weight: needs shape \(3, 4\), but the shared parameter a.weight has \(4, 3\)"):
        ga.plan(Wrong(), input_shape=(3,), micro_batch=1)


def test_a_parameter_may_bring_its_values():
    layer = nn.Linear(2, 2)
    layer.weight = nn.Parameter(np.array([[1.0, 2.0], [3.0, 4.0]]))
    layer.bias = nn.Parameter((2,), lambda rng, shape: np.full(shape, 0.5))
    net = ga.plan(layer, input_shape=(2,), micro_batch=1)
    assert net.predict([[1.0, 10.0]]).tolist() == [[21.5, 43.5]] and repr(layer.weight) == "Parameter(2, 2)"
    with pytest.raises(AttributeError, match=r"they live in the planned network, net.parameters\(\)"):
        layer.weight.data


# ---- what a forward may not do ----

def model(function):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return function(self, x)

    return Model()


@pytest.mark.parametrize("function, error, text", [
    (lambda m, x: x, ValueError, "the model returns its input"),
    (lambda m, x: (m.a(x), m.b(x)), TypeError, "Model.forward returned tuple, expected the symbol of one output"),
    (lambda m, x: None, TypeError, "Model.forward returned NoneType"),
    (lambda m, x: [m.a(x), m.b(x)][0], ValueError, "b: nothing uses it; leave it out"),
    (lambda m, x: m.a(x) if m.a(x) else x, TypeError, r"forward\(\) cannot branch on it"),
    (lambda m, x: m.a(x) + 1, TypeError, "cannot add int to a symbol"),
    (lambda m, x: np.tanh(m.a(x)), TypeError, "a symbol has no numbers: use layers in forward"),
    (lambda m, x: m.a(x) + nn.Linear(3, 2)(x), ValueError, r"add_1 \(add\): shapes \(3,\) and \(2,\) differ; there is no broadcasting"),
    (lambda m, x: nn.Linear(4, 2)(x), ValueError, r"Linear\(4, 2\): the input has shape \(3,\) per sample, so in_features should be 3"),
], ids=["input", "tuple", "none", "unused", "branch", "number", "numpy", "shapes", "features"])
def test_a_forward_that_cannot_be_planned(function, error, text):
    with pytest.raises(error, match=text):
        ga.plan(model(function), input_shape=(3,), loss=nn.MSELoss(), micro_batch=1)
    ga.plan(nn.Linear(3, 3), input_shape=(3,), micro_batch=1)            # nothing of the failed trace is left


def test_the_output_is_what_forward_returned():
    def function(m, x):
        h = m.a(x)
        m.b(h)
        return h

    with pytest.raises(ValueError, match="b: nothing uses it; leave it out"):
        ga.plan(model(function), input_shape=(3,), micro_batch=1)


def test_a_module_without_forward():
    with pytest.raises(NotImplementedError, match=r"Module has no forward\(self, x\)"):
        ga.plan(nn.Module(), input_shape=(3,), micro_batch=1)
    with pytest.raises(NotImplementedError, match="ModuleList has no forward"):
        ga.plan(nn.ModuleList([nn.ReLU()]), input_shape=(3,), micro_batch=1)


# ---- nn.Function ----

class Scale(nn.Function):
    """y = x * scale + shift, with parameters."""

    def __init__(self, n):
        super().__init__()
        self.scale, self.shift = nn.Parameter(np.arange(1.0, n + 1)), nn.Parameter((n,))

    def forward(self, x):
        self.x = x.copy()
        return x * self.scale.data + self.shift.data

    def backward(self, grad):
        for x, g in zip(self.x, grad):                       # sample after sample: every split has the same bits
            self.scale.grad[...] += x * g
            self.shift.grad[...] += g
        return grad * self.scale.data


def test_a_function_is_a_layer_like_any_other():
    module = nn.Sequential(nn.Linear(3, 4), Scale(4), nn.Tanh(), nn.Linear(4, 2))
    net = ga.plan(module, input_shape=(3,), micro_batch=2)
    assert list(net.parameters()) == ["0.weight", "0.bias", "1.scale", "1.shift", "3.weight", "3.bias"]
    assert net.parameters()["1.scale"].data.tolist() == [1, 2, 3, 4] and net.node("1").kind == "function"
    assert gradcheck(module, (3,)) < 1e-7
    check_split(module, (3,), samples=6)


def test_a_function_can_be_tried_on_arrays():
    class Square(nn.Function):
        def forward(self, x):
            return x * x

    assert Square()(np.array([1.0, 3.0])).tolist() == [1.0, 9.0]
    with pytest.raises(NotImplementedError, match=r"Square has no backward\(self, grad\)"):
        Square().backward(np.ones(2))


def test_a_function_sees_pytorchs_axes_and_the_mode():
    seen = {}

    class Look(nn.Function):
        def forward(self, x):
            seen["x"], seen["training"], seen["writable"] = x.copy(), self.training, x.flags.writeable
            return np.ascontiguousarray(x[:, ::-1])

        def backward(self, grad):
            seen["grad"] = grad.copy()
            return grad[:, ::-1]

    net = ga.plan(nn.Sequential(nn.Identity(), Look()), input_shape=(3, 2, 4), loss=nn.MSELoss(), micro_batch=2)
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 4)).astype("float32")
    assert np.array_equal(net.forward(x), x[:, ::-1]) and seen["training"] is True and seen["writable"] is False
    assert np.array_equal(seen["x"], x)
    net.predict(x)
    assert seen["training"] is False
    body = nn.Sequential(Scale4(), Look(), nn.Flatten(), nn.Linear(24, 1))
    assert gradcheck(body, (3, 2, 4)) < 1e-7 and seen["grad"].shape[1:] == (3, 2, 4)


class Scale4(nn.Function):
    """One parameter of four axes, for a batch of images."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(np.linspace(0.5, 1.5, 24).reshape(1, 3, 2, 4))

    def forward(self, x):
        self.x = x.copy()
        return x * self.scale.data

    def backward(self, grad):
        for x, g in zip(self.x, grad):
            self.scale.grad[...] += x * g
        return grad * self.scale.data


def test_a_function_of_two_values_next_to_other_readers():
    class Multiply(nn.Function):
        def forward(self, a, b):
            self.a, self.b = a.copy(), b.copy()
            return a * b

        def backward(self, grad):
            return grad * self.b, grad * self.a

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.multiply, self.square = nn.Linear(3, 3), nn.Linear(3, 3), Multiply(), Multiply()

        def forward(self, x):
            h = self.a(x)
            return self.multiply(h, F.sigmoid(self.b(h))) + h + self.square(h, h)      # h has five readers

    assert gradcheck(Gate(), (3,)) < 1e-7
    check_split(Gate(), (3,), samples=5)


def test_a_function_may_change_the_shape():
    class Sum(nn.Function):
        def forward(self, x):
            self.n = x.shape[1]
            return x.sum(axis=1)

        def backward(self, grad):
            return np.repeat(grad[:, None], self.n, axis=1)

    net = ga.plan(nn.Sequential(nn.Linear(2, 3), Sum()), input_shape=(2,), loss=nn.MSELoss(), micro_batch=2)
    assert net.predict(np.ones((5, 2))).shape == (5,) and net.node("1").shape == ()
    assert ga.Accumulator(net, optim.SGD(net, lr=0.1)).update(np.ones((3, 2)), np.zeros(3)).weight == 3


def test_a_function_on_sequences_of_any_length():
    class Shift(nn.Function):
        """y_t = x_(t - 1)"""

        def forward(self, x):
            return np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)

        def backward(self, grad):
            return np.concatenate([grad[:, 1:], np.zeros_like(grad[:, :1])], axis=1)

    module = nn.Sequential(nn.Linear(2, 2), Shift(), nn.Linear(2, 3))
    net = ga.plan(module, input_shape=(5, 2), loss=nn.CrossEntropyLoss(), micro_batch=2)
    x = np.random.default_rng(0).normal(size=(3, 5, 2))
    assert np.array_equal(net.predict(x[:, :3]), net.predict(x)[:, :3])
    assert gradcheck(module, (5, 2)) < 1e-7


def test_backward_is_not_called_where_no_gradient_is_needed():
    class First(nn.Function):
        def forward(self, x):
            return 2 * x

        def backward(self, grad):
            raise AssertionError("nobody needs the gradient of the input")

    net = ga.plan(nn.Sequential(First(), nn.Linear(2, 1)), input_shape=(2,), loss=nn.MSELoss(), micro_batch=2)
    ga.Accumulator(net, optim.SGD(net, lr=0.1)).update(np.ones((2, 2)), np.zeros((2, 1)))


def test_parameters_of_a_function_are_not_shared():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = Scale(3)

        def forward(self, x):
            return self.a(self.a(x))

    with pytest.raises(ValueError, match="Scale: this object is called twice in one network"):
        ga.plan(Both(), input_shape=(3,), micro_batch=1)


class Square(nn.Function):
    def forward(self, x):
        self.x = x.copy()
        return x * x

    def backward(self, grad):
        return 2 * self.x * grad


def test_a_function_called_twice_is_right_or_refused():
    class Fourth(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.square = nn.Linear(2, 2), Square()

        def forward(self, x):
            return self.square(self.square(self.fc(x)))

    try:
        assert gradcheck(Fourth(), (2,)) < 1e-7
    except ValueError as error:
        assert "twice" in str(error)


def test_a_function_in_two_networks_is_refused_where_it_would_be_wrong():
    module = nn.Sequential(nn.Linear(2, 2), Square())
    a, b = (ga.plan(module, input_shape=(2,), loss=nn.MSELoss(), micro_batch=1) for _ in range(2))
    a.forward([[1.0, 2.0]])
    a.loss([[0.0, 0.0]])
    a.backward()
    b.forward([[10.0, -3.0]])
    b.loss([[0.0, 0.0]])
    b.backward()                                         # one after the other is fine
    a.forward([[1.0, 2.0]])
    a.loss([[0.0, 0.0]])
    b.forward([[10.0, -3.0]])
    with pytest.raises(RuntimeError, match="give each network a model of its own"):
        a.backward()
