"""nvcc's PTX of the attention kernels, executed and compared with double precision:

    attention_test.py FOLDER        the output folder of toolchain.py
"""

import itertools
import sys
import unittest
from pathlib import Path

import numpy as np

from attention import SOURCES, Batch, Shape, disagreements, run_attention
from device import Device, executed, with_inline_assembly
from documents import random_rows
from machine import ORDERS, Settings
from toolchain import ARCHITECTURES, LONG

FOLDER = Path(sys.argv.pop())
SEED = 20250117
EVERY_SETTING = [Settings(order, late) for order in ORDERS for late in (True, False)]
SHAPES = (
    Shape(2, 2, 64, True),
    Shape(4, 2, 64, False),
    Shape(2, 1, 128, True),
    Shape(1, 1, 128, False),
)


def make_batch(shape: Shape, n_rows: int, seq_len: int, seed: int = SEED, window: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(rng, shape, seq_len, random_rows(rng, n_rows, seq_len), window)


def batches():
    """Returns rows of all kinds of lengths, with documents from one token to the whole row."""
    lengths = (1, 31, 64, 65, 130) if LONG else (1, 31, 65, 130)
    for i, (seq_len, shape) in enumerate(itertools.product(lengths, SHAPES)):
        if LONG or (i + i // 4) % 2 == 0:
            yield make_batch(shape, 3 if seq_len < 100 else 2, seq_len, SEED + i)
    # Long enough for several turns of every loop, with and without a mask.
    for shape in (Shape(1, 1, 64, True), Shape(2, 1, 128, False)):
        # The window of 200 has whole tiles between its edge and the diagonal, the one of 20 has
        # both in one tile.
        for window in (0, 200, 20):
            rng = np.random.default_rng(SEED)
            yield Batch(rng, shape, 300, [[0, 290]], window)
    # More heads of queries on one of keys than two, in one group and in two.
    for shape in (Shape(3, 1, 128, True), Shape(8, 1, 64, False), Shape(6, 2, 64, True)):
        yield make_batch(shape, 1, 65)


class AttentionTest(unittest.TestCase):
    def check(self, batch: Batch, architecture: int, settings: Settings) -> None:
        with self.subTest(architecture=architecture, shape=batch.shape, rows=batch.rows,
                          window=batch.window, settings=settings):  # fmt: skip
            results = run_attention(batch, Device(FOLDER, architecture, settings, SOURCES))
            self.assertEqual(disagreements(batch, results), [])

    def test_agrees_with_double_precision(self):
        # The next setting for each batch, so that every setting is used.
        settings = itertools.cycle(EVERY_SETTING)
        for turn, architecture in enumerate(ARCHITECTURES):
            for i, batch in enumerate(batches()):
                # In a short run each architecture gets every third batch, of both head sizes.
                if LONG or i % len(ARCHITECTURES) == turn:
                    self.check(batch, architecture, next(settings))
            wanted = {(architecture, name)
                      for name in with_inline_assembly(FOLDER, architecture, SOURCES)}
            self.assertGreater(len(wanted), 0)
            self.assertLessEqual(wanted, executed)

    def test_blocks_that_work_several_times_agree(self):
        settings = Settings("reverse", True, blocks_at_once=2)
        shapes = SHAPES[::2]
        for shape, architecture in (
            itertools.product(shapes, ARCHITECTURES)
            if LONG
            else zip(itertools.cycle(shapes), ARCHITECTURES)
        ):
            self.check(make_batch(shape, 1, 100), architecture, settings)

    def test_no_order_changes_a_bit(self):
        for architecture, shape in zip(ARCHITECTURES, itertools.cycle(SHAPES[1:3])):
            batch = make_batch(shape, 1, 80, window=50)
            devices = [Device(FOLDER, architecture, settings, SOURCES)
                       for settings in EVERY_SETTING]  # fmt: skip
            runs = [run_attention(batch, device) for device in devices]
            for results in runs[1:]:
                for name, values in results.items():
                    self.assertEqual(values.tobytes(), runs[0][name].tobytes(), name)


if __name__ == "__main__":
    unittest.main()
