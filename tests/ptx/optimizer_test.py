"""nvcc's PTX of the optimizer's kernels, executed and compared with double precision:

    optimizer_test.py FOLDER        the output folder of toolchain.py
"""

import ctypes

import numpy as np

from operation_case import TYPE, Case, OperationCase, fields, integers, main, pointers
from tensors import BF16, FLOAT, Tensor

RATE, BETA1, BETA2, EPSILON, GRADIENT_SCALE = (
    float(np.float32(x)) for x in (1e-2, 0.9, 0.99, 1e-8, 0.5)
)
STEP = 3
PART = np.dtype(
    [("end", np.int64), ("weight_decay", np.float32), ("rate_factor", np.float32)], align=True
)


class SumOfSquaresArguments(ctypes.Structure):  # kernels/optimizer.h
    _fields_ = [*integers("n"), *pointers("x sum")]


class AdamwArguments(ctypes.Structure):
    _fields_ = [
        *integers("n step"),
        *fields(ctypes.c_float, "learning_rate beta1 beta2 epsilon gradient_scale"),
        *integers("n_parts"), *pointers("parts gradient parameter m v rounded"),
    ]  # fmt: skip


class AverageArguments(ctypes.Structure):
    _fields_ = [
        *integers("n"), ("rate", ctypes.c_float), *pointers("parameter average"), TYPE,
        *pointers("copy"),
    ]  # fmt: skip


def random_parts(rng, n: int) -> np.ndarray:
    """Returns up to six parts with random ends; the first has no decay."""
    ends = np.unique([*rng.integers(1, n + 1, 5), n])
    parts = np.zeros(len(ends), PART)
    parts["end"], parts["weight_decay"][1:] = ends, rng.uniform(0.0, 0.5, len(ends) - 1)
    parts["rate_factor"] = rng.uniform(0.5, 1.5, len(ends))
    return parts


def updated(parts: np.ndarray, g, p, m, v) -> tuple:
    """Returns parameter, m and v after the step, in double."""
    g, p, m, v = (x.astype(np.float64) for x in (GRADIENT_SCALE * g, p, m, v))
    part_of_each = np.searchsorted(parts["end"], np.arange(len(p)), side="right")
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g**2
    update = (m / (1 - BETA1**STEP)) / (np.sqrt(v / (1 - BETA2**STEP)) + EPSILON)
    rate = RATE * parts["rate_factor"][part_of_each].astype(np.float64)
    decay = 1 - rate * parts["weight_decay"][part_of_each].astype(np.float64)
    return p * decay - rate * update, m, v


class OptimizerTest(OperationCase):
    sources = ("optimizer",)

    def run_sum(self, case: Case, n: int) -> None:
        x = case.numbers(1, n)
        total = case.device.memory.allocate(8)
        case.device.run("sum_of_squares", SumOfSquaresArguments(
            n, case.tensor(x).address, total))
        wanted = (x.astype(np.float64) ** 2).sum()
        got = case.device.read(total, 1, np.float64)[0]
        self.assertLessEqual(abs(got - wanted), 1e-13 * wanted)  # a sum of n values in double

    def run_adamw(self, case: Case, n: int, want_rounded: bool) -> None:
        given = [*case.numbers(3, n), case.rng.random(n).astype(np.float32)]
        parts = random_parts(case.rng, n)
        gradient, *state = (case.tensor(x[None]) for x in given)
        rounded = Tensor(case.device, BF16, 1, n, None, case.misaligned)
        case.device.run("adamw", AdamwArguments(
            n, STEP, RATE, BETA1, BETA2, EPSILON, GRADIENT_SCALE, len(parts),
            case.device.memory.put(parts), gradient.address, *[t.address for t in state],
            rounded.address if want_rounded else None))
        for tensor, wanted in zip(state, updated(parts, *given)):
            # A few roundings of float, of values up to about 4.
            self.assert_right(tensor, wanted, 4e-6)
        if want_rounded:
            np.testing.assert_array_equal(rounded.read(), BF16.rounded(state[0].read()))
        else:
            self.assertTrue(np.isnan(rounded.read()).all())

    def run_average(self, case: Case, n: int, moves: bool) -> None:
        x, before = case.rng.standard_normal((2, 1, n)).astype(np.float32)
        parameter, average = case.floats(x), case.floats(before)
        copy = case.room(1, n)
        case.device.run("average", AverageArguments(
            n, 0.25, parameter.address if moves else None, average.address, case.kind.number,
            copy.address))
        wanted = before + 0.25 * (x.astype(np.float64) - before) * moves
        self.assert_right(average, wanted, 4e-7 * moves)  # two roundings of values up to about 4
        np.testing.assert_array_equal(copy.read(), case.kind.rounded(average.read()))

    def test_average_agrees(self):
        for kind in (FLOAT, BF16):
            for n in (1, 31, 64, 1030):
                self.check(self.run_average, kind, n, n != 31)
            self.check(self.run_average, kind, 65, True, misaligned=True)

    def test_sum_of_squares_agrees(self):
        for n in (1, 31, 300, 9000):
            self.check(self.run_sum, FLOAT, n)
        self.check(self.run_sum, FLOAT, 65, misaligned=True)

    def test_adamw_agrees(self):
        for n in (1, 31, 33, 64, 65, 1030):
            self.check(self.run_adamw, FLOAT, n, True)
        self.check(self.run_adamw, FLOAT, 65, True, misaligned=True)
        self.check(self.run_adamw, FLOAT, 31, False)


if __name__ == "__main__":
    main()
