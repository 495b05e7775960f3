"""nvcc's PTX of the layer norm's kernels, executed and compared with double precision:

    layer_norm_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes

import numpy as np

from operation_case import (
    BOUNDARIES, MISALIGNED_SHAPES, SHAPES, TYPE, Case, OperationCase, integers, main, pointers,
)  # fmt: skip
from tensors import BF16, FEW_ROUNDINGS, FLOAT, LONG_SUMS, Tensor

EPSILON = float(np.float32(1e-5))


class ForwardArguments(ctypes.Structure):  # kernels/layer_norm.h
    _fields_ = [
        BOUNDARIES, TYPE, *integers("n_channels"), ("epsilon", ctypes.c_float),
        *pointers("x gamma beta out mean rstd"),
    ]  # fmt: skip


class BackwardArguments(ctypes.Structure):
    _fields_ = [
        BOUNDARIES, TYPE, *integers("n_channels"),
        *pointers("d_out x gamma mean rstd d_x d_gamma d_beta"),
    ]  # fmt: skip


def statistics(x):
    """Returns mean and rstd of each token, in double."""
    x = x.astype(np.float64)
    mean, variance = (f(axis=1, keepdims=True) for f in (x.mean, x.var))
    return mean, 1 / np.sqrt(variance + EPSILON)


class LayerNormTest(OperationCase):
    sources = ("layer_norm",)

    def make(self, case: Case, shape: tuple):
        """Returns documents, x that is NaN in padding, gamma."""
        n_rows, seq_len, width = shape
        documents = case.documents(n_rows, seq_len)
        x = case.kind.rounded(case.numbers(documents.n_tokens, width) + 2.0)
        x[documents.padding] = np.nan
        return documents, x, case.numbers(1, width)

    def run_forward(self, case: Case, shape: tuple) -> None:
        documents, x, gamma = self.make(case, shape)
        n, width = x.shape
        beta, out = case.numbers(1, width), case.room(n, width)
        mean, rstd = (Tensor(case.device, FLOAT, n, 1) for _ in range(2))
        case.device.run("layer_norm_forward", ForwardArguments(
            documents.put(case.device), case.kind.number, width, EPSILON,
            *[case.tensor(t).address for t in (x, gamma, beta)],
            *[t.address for t in (out, mean, rstd)]))
        exact_mean, exact_rstd = statistics(x)
        self.assert_right(mean, exact_mean, 5 * FEW_ROUNDINGS, documents.padding)
        self.assert_right(rstd, exact_rstd, LONG_SUMS * exact_rstd, documents.padding)
        h = (x - exact_mean) * exact_rstd
        tolerance = LONG_SUMS * (np.abs(h * gamma) + np.abs(beta) + np.abs(gamma))
        self.assert_right(out, h * gamma + beta, tolerance, documents.padding)

    def run_backward(self, case: Case, shape: tuple) -> None:
        documents, x, gamma = self.make(case, shape)
        n, width = x.shape
        d_out, before = case.numbers(n, width), case.numbers(n, width)
        d_out[documents.padding] = np.nan
        mean, rstd = (s.astype(np.float32) for s in statistics(x))
        sums = [case.rng.standard_normal((1, width)).astype(np.float32) for _ in range(2)]
        d_x, added = case.tensor(before), [case.floats(s) for s in sums]
        case.device.run("layer_norm_backward", BackwardArguments(
            documents.put(case.device), case.kind.number, width,
            *[case.tensor(t).address for t in (d_out, x, gamma)],
            *[case.floats(t).address for t in (mean, rstd)],
            *[t.address for t in (d_x, *added)]))
        self.check_gradients(documents.padding, x, gamma, d_out, (mean, rstd), before, d_x)
        used = ~documents.padding
        h = ((x.astype(np.float64) - mean) * rstd)[used]
        for tensor, start, terms in zip(added, sums, (d_out[used] * h, d_out[used])):
            tolerance = LONG_SUMS * (np.abs(terms).sum(axis=0) + np.abs(start))
            self.assert_right(tensor, start + terms.sum(axis=0, dtype=np.float64), tolerance)

    def check_gradients(self, padding, x, gamma, d_out, statistics, before, d_x) -> None:
        """d_x keeps its values in padding; elsewhere the norm's gradient is added."""
        mean, rstd = (s.astype(np.float64) for s in statistics)
        h, g = (x - mean) * rstd, d_out.astype(np.float64) * gamma
        averages = [a.mean(axis=1, keepdims=True) for a in (g, g * h)]
        exact = before + rstd * (g - averages[0] - h * averages[1])
        size = np.abs(g) + np.abs(g).mean(axis=1, keepdims=True) * (1 + np.abs(h))
        tolerance = LONG_SUMS * (np.abs(before) + rstd * size)
        exact[padding], tolerance[padding] = before[padding], 0.0
        self.assert_right(d_x, exact, tolerance)

    def check_both(self, kind, shape, **more):
        for run in (self.run_forward, self.run_backward):
            self.check(run, kind, shape, **more)

    def test_agrees(self):
        for shape in SHAPES:
            self.check_both(BF16, shape)
        self.check_both(BF16, (1, 140, 64))
        for shape in MISALIGNED_SHAPES:
            self.check_both(BF16, shape, misaligned=True)
        self.check_both(FLOAT, (1, 20, 36))


if __name__ == "__main__":
    main()
