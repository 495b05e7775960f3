"""nvcc's PTX of the optimizer's kernels, executed, against double precision:

    optimizer_test.py FOLDER        what toolchain.py has made
"""

import ctypes
import sys
import unittest
from pathlib import Path

import numpy as np

from device import Device, executed, with_inline_assembly
from machine import Settings
from toolchain import ARCHITECTURES

FOLDER = Path(sys.argv.pop())
SEED = 20250118


class SumOfSquaresArguments(ctypes.Structure):  # kernels/optimizer.h
    _fields_ = [("n", ctypes.c_int64), ("x", ctypes.c_void_p), ("sum", ctypes.c_void_p)]


class AdamwArguments(ctypes.Structure):  # kernels/optimizer.h
    _fields_ = [
        ("n", ctypes.c_int64), ("step", ctypes.c_int64),
        *[(name, ctypes.c_float) for name in
          ("learning_rate", "beta1", "beta2", "epsilon", "weight_decay", "gradient_scale")],
        *[(name, ctypes.c_void_p) for name in ("gradient", "parameter", "m", "v")],
    ]  # fmt: skip


class OptimizerTest(unittest.TestCase):
    def devices(self):
        for architecture in ARCHITECTURES:
            for order in ("in step", "reverse"):
                yield Device(FOLDER, architecture, Settings(order))

    def test_sum_of_squares_agrees(self):
        rng = np.random.default_rng(SEED)
        for device in self.devices():
            for n in (1, 31, 300, 9000):
                x = rng.standard_normal(n).astype(np.float32)
                total = device.memory.allocate(8)
                arguments = SumOfSquaresArguments(n, device.memory.put(x), total)
                device.run("sum_of_squares", arguments)
                wanted = (x.astype(np.float64) ** 2).sum()
                # A sum of n values in double.
                self.assertLessEqual(abs(device.read(total, 1, np.float64)[0] - wanted),
                                     1e-13 * wanted)
            self.assertTrue(device.memory.gaps_are_untouched())
        for architecture in ARCHITECTURES:
            for name in with_inline_assembly(FOLDER, architecture, ["optimizer"]):
                self.assertIn((architecture, name), executed)

    def test_adamw_agrees(self):
        rng = np.random.default_rng(SEED)
        rate, beta1, beta2, epsilon, decay, scale, step = 1e-2, 0.9, 0.99, 1e-8, 0.1, 0.5, 3
        for device in self.devices():
            for n in (1, 31, 1030):
                g, p, m = rng.standard_normal((3, n)).astype(np.float32)
                v = rng.random(n).astype(np.float32)
                at = [device.memory.put(x) for x in (g, p, m, v)]
                device.run("adamw", AdamwArguments(n, step, rate, beta1, beta2, epsilon, decay,
                                                   scale, *at))
                g, p, m, v = (x.astype(np.float64) for x in (g, p, m, v))
                m = beta1 * m + (1 - beta1) * scale * g
                v = beta2 * v + (1 - beta2) * (scale * g) ** 2
                p = p * (1 - rate * decay) - rate * (m / (1 - beta1**step)) / (
                    np.sqrt(v / (1 - beta2**step)) + epsilon
                )
                for address, wanted in zip(at[1:], (p, m, v)):
                    got = device.read(address, n, np.float32)
                    # A few roundings of float, of values up to about 4.
                    self.assertLessEqual(np.abs(got - wanted).max(), 4e-6)


if __name__ == "__main__":
    unittest.main()
