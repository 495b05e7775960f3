"""nvcc's PTX of the kernels around Muon's matrix products, executed: momentum, the norm, the
direction, the iteration's sums, the update. no_gemm.cpp replaces the products, so that their
results are what the test has written into the scratch memory.

    muon_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes

import numpy as np

from operation_case import TYPE, Case, OperationCase, fields, integers, main, pointers
from tensors import BF16, FLOAT, Tensor

RATE, MOMENTUM, DECAY, GRADIENT_SCALE = (float(np.float32(x)) for x in (0.05, 0.9, 0.4, 0.5))
A, N_ITERATIONS = 3.4445, 5
SCRATCH_BYTE = 0x3B  # about 0.0029, in float and in bf16


class MuonArguments(ctypes.Structure):  # kernels/muon.h
    _fields_ = [
        *integers("n_rows n_columns"), TYPE,
        *fields(ctypes.c_float, "learning_rate momentum weight_decay gradient_scale"),
        *pointers("gradient parameter m rounded"),
    ]  # fmt: skip


class MuonTest(OperationCase):
    sources = ("muon",)

    def run_step(self, case: Case, rows: int, columns: int) -> None:
        """The product B X is the same number everywhere: that of the scratch memory."""
        n = rows * columns
        given = [case.rng.standard_normal((1, n)).astype(np.float32) for _ in range(3)]
        gradient, parameter, m = (case.floats(x) for x in given)
        rounded = Tensor(case.device, BF16, 1, n, None, case.misaligned)
        arguments = MuonArguments(
            rows, columns, case.kind.number, RATE, MOMENTUM, DECAY, GRADIENT_SCALE,
            gradient.address, parameter.address, m.address, rounded.address)  # fmt: skip
        case.device.run("muon", arguments, SCRATCH_BYTE)
        product = np.full(4, SCRATCH_BYTE, np.uint8).view(np.float32)[0]
        g, p, moved = (x.astype(np.float64) for x in given)
        moved = MOMENTUM * moved + GRADIENT_SCALE * g
        direction = GRADIENT_SCALE * g + MOMENTUM * moved
        x = case.kind.rounded(direction / np.sqrt((direction**2).sum()))
        for _ in range(N_ITERATIONS):
            x = case.kind.rounded(A * x.astype(np.float64) + case.kind.rounded(product))
        scale = RATE * 0.2 * np.sqrt(max(rows, columns))
        wanted = p * (1 - RATE * DECAY) - scale * x.astype(np.float64)
        # A few roundings of float; in bf16 each iteration may round to the neighbouring number.
        slack = N_ITERATIONS / 256 if case.kind is BF16 else 2e-6
        self.assert_right(m, moved, 4e-6)
        self.assert_right(parameter, wanted, 4e-6 + slack * scale * np.abs(x))
        np.testing.assert_array_equal(rounded.read(), BF16.rounded(parameter.read()))

    def test_muon_agrees(self):
        for kind in (FLOAT, BF16):
            for rows, columns in ((1, 1), (3, 11), (33, 2), (8, 32), (97, 45)):
                self.check(self.run_step, kind, rows, columns)
            self.check(self.run_step, kind, 8, 32, misaligned=True)


if __name__ == "__main__":
    main()
