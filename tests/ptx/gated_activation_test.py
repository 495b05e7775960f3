"""nvcc's PTX of gated activations, executed and compared with double precision:

    gated_activation_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes

import numpy as np

from activations import GELU, RELU, SILU, activated
from operation_case import TYPE, Case, OperationCase, integers, main, pointers
from tensors import BF16, FEW_ROUNDINGS, FLOAT

ACTIVATION = ("activation", ctypes.c_int)
COMMON = [TYPE, ACTIVATION, *integers("n_tokens n_channels")]


class ForwardArguments(ctypes.Structure):  # kernels/gated_activation.h
    _fields_ = COMMON + pointers("x out")


class BackwardArguments(ctypes.Structure):
    _fields_ = COMMON + pointers("x d_out d_x")


class GatedActivationTest(OperationCase):
    sources = ("gated_activation",)

    def run_gate(self, case: Case, activation: int, shape: tuple) -> None:
        n, width = shape
        gate, up = (case.numbers(n, width, scale=3.0) for _ in range(2))
        special = case.kind.rounded([0.0, -0.0, 30.0, -30.0, -100.0, 2.0**-100])
        gate[-1, : len(special)] = special[:width]
        given, d_out = case.tensor(np.hstack([gate, up])), case.numbers(n, width)
        out, d_x = case.room(n, width), case.room(n, 2 * width)
        common = (case.kind.number, activation, n, width, given.address)
        case.device.run("gated_activation_forward", ForwardArguments(*common, out.address))
        case.device.run("gated_activation_backward", BackwardArguments(
            *common, case.tensor(d_out).address, d_x.address))
        value, slope = activated(activation, gate)
        tolerance = FEW_ROUNDINGS * np.maximum(np.abs(gate), 1.0)
        self.assert_right(out, value * up, tolerance * np.abs(up))
        d_value = np.abs(d_out) * tolerance
        self.assert_right(d_x, np.hstack([d_out * up * slope, d_out * value]),
                          np.hstack([d_value * np.abs(up), d_value]))

    def test_agrees(self):
        """Single values and packs, in one strip of channels and in several."""
        for activation in (RELU, GELU, SILU):
            for shape in ((1, 1), (9, 31), (3, 65), (17, 64), (2, 1288), (2, 300)):
                self.check(self.run_gate, BF16, activation, shape)
            self.check(self.run_gate, BF16, activation, (9, 64), misaligned=True)
            for shape in ((3, 31), (2, 64)):
                self.check(self.run_gate, FLOAT, activation, shape)


if __name__ == "__main__":
    main()
