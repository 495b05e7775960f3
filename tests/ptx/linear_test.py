"""nvcc's PTX of the kernels around the matrix products of linear layers, executed: padding, the
activation, the gradient of the bias. no_gemm.cpp replaces the products, so that their results are
the values that the test has written there.

    linear_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes

import numpy as np

from activations import GELU, RELU, SILU, activated
from operation_case import (
    BOUNDARIES, MISALIGNED_SHAPES, SHAPES, TYPE, Case, OperationCase, integers, main, pointers,
)  # fmt: skip
from tensors import BF16, FEW_ROUNDINGS, FLOAT, LONG_SUMS

N_IN, NONE = 5, 0
LAYOUT = ("layout", ctypes.c_int)


class ForwardArguments(ctypes.Structure):  # kernels/linear.h
    _fields_ = [
        BOUNDARIES, TYPE, *integers("n_in n_out out_stride"), LAYOUT,
        ("activation", ctypes.c_int), *pointers("x weight bias out activated"),
    ]  # fmt: skip


class BackwardArguments(ctypes.Structure):
    _fields_ = [
        BOUNDARIES, TYPE, *integers("n_in n_out d_out_stride"), LAYOUT,
        *pointers("d_out x weight d_x d_weight d_bias"),
    ]  # fmt: skip


class LinearTest(OperationCase):
    sources = ("linear",)
    others = ("activation",)

    def make(self, case: Case, shape: tuple):
        n_rows, seq_len, width = shape
        documents = case.documents(n_rows, seq_len)
        return documents, case.numbers(documents.n_tokens, width), width

    def forward(self, case, documents, width, stride, activation, out, activated_at) -> None:
        case.device.run("linear_forward", ForwardArguments(
            documents.put(case.device), case.kind.number, N_IN, width, stride, 0, activation,
            None, None, None, out, activated_at))

    def run_padding(self, case: Case, shape: tuple, stride: int) -> None:
        documents, product, width = self.make(case, shape)
        out = case.tensor(product, stride)
        self.forward(case, documents, width, stride, NONE, out.address, None)
        self.assert_right(out, product, 0.0, documents.padding)

    def run_activation(self, case: Case, shape: tuple, activation: int, at_once: bool) -> None:
        documents, product, width = self.make(case, shape)
        out, result = case.tensor(product), case.tensor(product)
        products = ctypes.c_bool.in_dll(case.device.operations, "bd_gemm_activates")
        products.value = at_once
        self.forward(case, documents, width, 0, activation, out.address, result.address)
        self.assert_right(out, product, 0.0, documents.padding)
        exact = product if at_once else activated(activation, product)[0]
        tolerance = 0.0 if at_once else FEW_ROUNDINGS * np.maximum(np.abs(product), 1.0)
        self.assert_right(result, exact, tolerance, documents.padding)

    def run_bias(self, case: Case, shape: tuple, stride: int) -> None:
        documents, d_out, width = self.make(case, shape)
        d_out[documents.padding] = 0.0
        before = case.rng.standard_normal((1, width)).astype(np.float32)
        d_bias = case.floats(before)
        case.device.run("linear_backward", BackwardArguments(
            documents.put(case.device), case.kind.number, N_IN, width, stride, 0,
            case.tensor(d_out, stride).address, None, None, None, None, d_bias.address))
        tolerance = LONG_SUMS * (np.abs(d_out).sum(axis=0) + np.abs(before))
        self.assert_right(d_bias, before + d_out.sum(axis=0, dtype=np.float64), tolerance)

    def test_padding_and_bias_agree(self):
        for run in (self.run_padding, self.run_bias):
            for i, shape in enumerate(SHAPES):
                # Gaps that keep rows aligned, or do not.
                self.check(run, BF16, shape, (0, shape[2] + 8, shape[2] + 3)[i % 3])
            for stride in (67, 72):
                self.check(run, BF16, (1, 140, 64), stride)
            for shape in MISALIGNED_SHAPES:
                self.check(run, BF16, shape, 0, misaligned=True)
            self.check(run, FLOAT, (2, 20, 36), 0)

    def test_activations_agree(self):
        for shape in ((2, 33, 64), (3, 3, 1288), (3, 3, 165)):
            self.check(self.run_activation, BF16, shape, GELU, True)
        self.check(self.run_activation, BF16, (3, 3, 1288), GELU, True, misaligned=True)
        self.check(self.run_activation, BF16, (3, 9, 33), GELU, False)
        self.check(self.run_activation, BF16, (3, 9, 64), RELU, False)
        self.check(self.run_activation, BF16, (3, 9, 64), SILU, False)
        self.check(self.run_activation, FLOAT, (2, 9, 31), GELU, False)


if __name__ == "__main__":
    main()
