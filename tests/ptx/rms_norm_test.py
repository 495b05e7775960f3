"""nvcc's PTX of the RMS norm's kernels, executed and compared with double precision:

    rms_norm_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes
from dataclasses import dataclass

import numpy as np

from operation_case import (
    BOUNDARIES, MISALIGNED_SHAPES, SHAPES, TYPE, Case, OperationCase, fields, integers, main,
    pointers,
)  # fmt: skip
from tensors import BF16, FLOAT, LONG_SUMS, Tensor

EPSILON = float(np.float32(1e-6))


class ForwardArguments(ctypes.Structure):  # kernels/rms_norm.h
    _fields_ = [
        BOUNDARIES, TYPE, *integers("n_vectors n_channels x_stride out_stride"),
        *fields(ctypes.c_float, "epsilon gain_offset"), *pointers("x gain out rstd"),
    ]  # fmt: skip


class BackwardArguments(ctypes.Structure):
    _fields_ = [
        BOUNDARIES, TYPE, *integers("n_vectors n_channels x_stride d_out_stride d_x_stride"),
        ("gain_offset", ctypes.c_float), ("adds", ctypes.c_int32),
        *pointers("d_out x gain rstd d_x d_gain"),
    ]  # fmt: skip


@dataclass(frozen=True)
class Variant:
    n_vectors: int = 1
    gap: int = 0  # numbers between tokens
    gain_offset: float = 0.0
    adds: bool = True  # otherwise out is x, and d_x is d_out


def rstd_of(x):
    """Returns the rstd of each vector, in double."""
    squares = (x.astype(np.float64) ** 2).mean(axis=-1, keepdims=True)
    return 1 / np.sqrt(squares + EPSILON)


class RmsNormTest(OperationCase):
    sources = ("rms_norm",)

    def make(self, case: Case, shape: tuple, v: Variant):
        """Returns documents, x [token][vector][channel] that is NaN in padding, gain, stride."""
        n_rows, seq_len, width = shape
        documents = case.documents(n_rows, seq_len)
        x = case.numbers(documents.n_tokens, v.n_vectors * width)
        x[documents.padding] = np.nan
        stride = v.n_vectors * width + v.gap
        return (documents, x.reshape(-1, v.n_vectors, width), case.numbers(1, width)[0], stride)

    def flat(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(values), -1)

    def run_forward(self, case: Case, shape: tuple, v: Variant) -> None:
        documents, x, gain, stride = self.make(case, shape, v)
        n, n_vectors, width = x.shape
        given = case.tensor(self.flat(x), stride)
        out = case.room(n, n_vectors * width, stride) if v.adds else given
        rstd = Tensor(case.device, FLOAT, n, n_vectors)
        case.device.run("rms_norm_forward", ForwardArguments(
            documents.put(case.device), case.kind.number, n_vectors, width, stride,
            stride if v.gap else 0, EPSILON, v.gain_offset, given.address,
            case.tensor(gain[None]).address, out.address, rstd.address))
        exact = rstd_of(x)
        self.assert_right(rstd, self.flat(exact), LONG_SUMS * self.flat(exact), documents.padding)
        wanted = self.flat(x * exact * (v.gain_offset + gain.astype(np.float64)))
        self.assert_right(out, wanted, LONG_SUMS * np.abs(wanted), documents.padding)

    def run_backward(self, case: Case, shape: tuple, v: Variant) -> None:
        documents, x, gain, stride = self.make(case, shape, v)
        n, n_vectors, width = x.shape
        d_out, before = (case.numbers(n, n_vectors * width).reshape(x.shape) for _ in range(2))
        d_out[documents.padding] = np.nan
        rstd = rstd_of(x).astype(np.float32)
        start = case.rng.standard_normal((1, width)).astype(np.float32)
        given, d_gain = case.tensor(self.flat(d_out), stride), case.floats(start)
        d_x = case.tensor(self.flat(before), stride) if v.adds else given
        case.device.run("rms_norm_backward", BackwardArguments(
            documents.put(case.device), case.kind.number, n_vectors, width, stride, stride,
            stride if v.gap else 0, v.gain_offset, v.adds, given.address,
            case.tensor(self.flat(x), stride).address, case.tensor(gain[None]).address,
            case.floats(self.flat(rstd)).address, d_x.address, d_gain.address))

        h = x.astype(np.float64) * rstd
        g = d_out * (v.gain_offset + gain.astype(np.float64))
        gh = (g * h).mean(axis=2, keepdims=True)
        exact = before * v.adds + rstd * (g - h * gh)
        size = np.abs(g) + np.abs(g * h).mean(axis=2, keepdims=True) * np.abs(h)
        tolerance = LONG_SUMS * (np.abs(before) * v.adds + rstd * size)
        padding = documents.padding
        if v.adds:
            exact[padding], tolerance[padding] = before[padding], 0.0
        self.assert_right(d_x, self.flat(exact), self.flat(tolerance), None if v.adds else padding)
        terms = (d_out * h)[~padding]
        tolerance = LONG_SUMS * (np.abs(terms).sum(axis=(0, 1)) + np.abs(start))
        self.assert_right(d_gain, start + terms.sum(axis=(0, 1)), tolerance)

    def check_both(self, kind, shape, variant=Variant(), **more):
        for run in (self.run_forward, self.run_backward):
            self.check(run, kind, shape, variant, **more)

    def test_agrees(self):
        for shape in SHAPES:
            self.check_both(BF16, shape)
        self.check_both(BF16, (1, 140, 64))
        for shape in MISALIGNED_SHAPES:
            self.check_both(BF16, shape, misaligned=True)
        self.check_both(FLOAT, (1, 20, 36))

    def test_agrees_on_heads(self):
        """Several vectors share a warp, or take all of it in turn; gaps that keep rows aligned, or
        do not."""
        for shape, variant in (
            ((2, 9, 64), Variant(9, 24, adds=False)),
            ((3, 5, 128), Variant(3, 8, gain_offset=1.0)),
            ((2, 5, 33), Variant(3, 3, gain_offset=1.0, adds=False)),
            ((1, 140, 16), Variant(2, 8, adds=False)),
            ((2, 3, 264), Variant(2, 5)),
            ((3, 3, 1), Variant(33, adds=False)),
        ):
            self.check_both(BF16, shape, variant)
        self.check_both(BF16, (2, 9, 64), Variant(5, 8, adds=False), misaligned=True)
        self.check_both(FLOAT, (2, 5, 64), Variant(5, 4, adds=False))


if __name__ == "__main__":
    main()
