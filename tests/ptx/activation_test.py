"""nvcc's PTX of activations and of sums of tensors, executed and compared with double precision:

    activation_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes

import numpy as np

from activations import GELU, RELU, SILU, activated
from operation_case import TYPE, Case, OperationCase, integers, main, pointers
from tensors import BF16, FEW_ROUNDINGS, FLOAT

SIZES = (1, 31, 33, 64, 65, 3000)
ACTIVATION = ("activation", ctypes.c_int)


class ForwardArguments(ctypes.Structure):  # kernels/cuda/operations/operations.h
    _fields_ = [TYPE, ACTIVATION, *integers("n"), *pointers("x out")]


class BackwardArguments(ctypes.Structure):  # kernels/activation.h
    _fields_ = [TYPE, ACTIVATION, *integers("n"), *pointers("x d_out d_x")]


class AddArguments(ctypes.Structure):
    _fields_ = [TYPE, *integers("n"), *pointers("a b out")]


def arguments_of_functions(case: Case, n: int) -> np.ndarray:
    """Returns small and large values, and zeros of both signs."""
    x = case.numbers(1, n, scale=3.0)
    special = case.kind.rounded([0.0, -0.0, 30.0, -30.0, 2.0**-100])
    x[0, : len(special)] = special[:n]
    return x


class ActivationTest(OperationCase):
    sources = ("activation",)

    def run_function(self, case: Case, activation: int, n: int, in_place: bool) -> None:
        x, d_out = arguments_of_functions(case, n), case.numbers(1, n)
        value, slope = activated(activation, x)
        tolerance = FEW_ROUNDINGS * np.maximum(np.abs(x), 1.0) * (activation != RELU)
        d_in, given = case.tensor(d_out), case.tensor(x)
        d_x = d_in if in_place else case.room(1, n)
        case.device.run("activation_backward", BackwardArguments(
            case.kind.number, activation, n, given.address, d_in.address, d_x.address))
        self.assert_right(d_x, d_out * slope, tolerance * np.maximum(np.abs(d_out), 1.0))
        out = given if in_place else case.room(1, n)
        case.device.run("activation_forward", ForwardArguments(
            case.kind.number, activation, n, given.address, out.address))
        self.assert_right(out, value, tolerance)

    def run_add(self, case: Case, n: int) -> None:
        a, b = case.numbers(2, n)
        given, out = case.tensor(np.stack([a, b])), case.room(1, n)
        of_b = given.address + given.stride
        case.device.run("add", AddArguments(
            case.kind.number, n, given.address, of_b, out.address))
        self.assert_right(out, a.astype(np.float64) + b, FEW_ROUNDINGS * np.abs(a + b))

    def test_activations_agree(self):
        for activation in (RELU, GELU, SILU):
            for n in SIZES:
                self.check(self.run_function, BF16, activation, n, n % 2 == 0)
            self.check(self.run_function, BF16, activation, 65, False, misaligned=True)
            for n in (31, 64):
                self.check(self.run_function, FLOAT, activation, n, False)

    def test_sums_agree(self):
        for n in SIZES:
            self.check(self.run_add, BF16, n)
        self.check(self.run_add, BF16, 64, misaligned=True)
        self.check(self.run_add, FLOAT, 65)


if __name__ == "__main__":
    main()
