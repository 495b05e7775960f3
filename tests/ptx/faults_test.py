"""A test of attention_test.py: a fault that is planted in the PTX of a kernel must be found.

    faults_test.py FOLDER        the output folder of toolchain.py
"""

import re
import sys
import unittest
from collections.abc import Callable
from pathlib import Path

import numpy as np

from attention import SOURCES, Batch, Shape, disagreements, run_attention
from device import Device, ptx_text
from machine import ORDERS, Settings
from ptx_text import PtxError, end_of_block
from toolchain import ARCHITECTURES, LONG

FOLDER = Path(sys.argv.pop())
HEAD_SIZES = (64, 128) if LONG else (64,)
SEED = 20250119

# ---- Faults: changes to the text of one kernel -----------------------------------------------


def without_last(what: str) -> Callable[[str], str]:
    """Removes the last match before the first matrix is read."""

    def change(body: str) -> str:
        first_matrix = body.index("ldmatrix")
        at = body.rindex(what, 0, first_matrix)
        return body[:at] + body[body.index(";", at) + 1 :]

    return change


def replaced(pattern: str, replacement: str, count: int = 1) -> Callable[[str], str]:
    def change(body: str) -> str:
        changed, n = re.subn(pattern, replacement, body, count=count, flags=re.DOTALL)
        if n == 0:
            raise AssertionError(f"nothing is like {pattern}")
        return changed

    return change


MMA = (
    r"(mma\S+\s+\{[^}]*\},\s*\{)([^,]+),\s*([^,]+),\s*([^,]+),\s*([^}]+)"
    r"(\},\s*\{)([^,]+),\s*([^}]+)"
)
# By the text that a kernel must contain for them.
FAULTS = {
    "mma.sync": {
        "no wait for a copy": without_last("cp.async.wait_group"),
        "no barrier before a tile is read": without_last("bar.sync"),
        "swapped left operands of a product": replaced(MMA, r"\1\2,\4,\3,\5\6\7,\8"),
        "swapped right operands of a product": replaced(MMA, r"\1\2,\3,\4,\5\6\8,\7"),
        "a matrix that is not transposed": replaced(r"\.trans", ""),
        "a matrix from elsewhere": replaced(r"(ldmatrix[^;]*)\]", r"\1+16]"),
        "halves of a pair in the wrong order": replaced(
            r"(cvt\.rn\.bf16x2\.f32\s+\S+), (\S+), (\S+);", r"\1, \3, \2;"
        ),
    },
    "xor.b32": {
        "a swizzle that is not": replaced(
            r"xor\.b32(\s+\S+, \S+), \S+;", r"mov.b32\1;", count=0
        ),
    },
    "ld.acquire": {
        "no wait for other blocks": replaced(
            r"(ld\.acquire.*?)@%p\d+ bra[^;]*;", r"\1", count=0
        ),
        "no word to other blocks": replaced(r"st\.release[^;]*;", "", count=0),
    },
}


def body_of(kernel: str, head_size: int, text: str) -> tuple[int, int] | None:
    """Returns where the kernel lies in the text of a source, if it is there."""
    entry = re.search(rf"\.entry _Z\d+{kernel}ILi{head_size}E\w*\(", text)
    if not entry:
        return None
    begin = text.index("{", entry.end()) + 1
    return begin, end_of_block(text, begin)


def kernels_with_matrices(head_size: int) -> dict[str, dict[str, Callable]]:
    """Returns the names of the attention kernels, and the faults for each."""
    kernels = {}
    for source in SOURCES:
        text = ptx_text(FOLDER, source, ARCHITECTURES[0])
        for name in re.findall(rf"\.entry _Z\d+(\w+)ILi{head_size}E\w*\(", text):
            begin, end = body_of(name, head_size, text)
            if "mma.sync" in text[begin:end]:
                some = (faults for what, faults in FAULTS.items() if what in text[begin:end])
                kernels[name] = {k: fault for faults in some for k, fault in faults.items()}
    return kernels


def planted(kernel: str, head_size: int, fault: Callable) -> Callable[[str], str]:
    """Plants the fault in one kernel of the source's text, if it is there."""

    def change(text: str) -> str:
        found = body_of(kernel, head_size, text)
        if not found:
            return text
        begin, end = found
        return text[:begin] + fault(text[begin:end]) + text[end:]

    return change


class FaultsTest(unittest.TestCase):
    def is_caught(self, batch: Batch, kernel: str, fault: Callable) -> bool:
        change = planted(kernel, batch.shape.head_size, fault)
        for order in ORDERS:
            device = Device(FOLDER, ARCHITECTURES[0], Settings(order), SOURCES, change)
            for name, program in device.programs.items():
                if kernel in name:
                    self.assertTrue(program.steps)  # the result is valid PTX
            try:
                results = run_attention(batch, device, backward=kernel != "forward_kernel")
            except PtxError:
                return True
            if disagreements(batch, results):
                return True
        return False

    def test_planted_faults_are_caught(self):
        for head_size in HEAD_SIZES:
            # A document of several tiles, a short one after it, padding. The window makes every
            # loop run, so that it does not matter in which of them a fault is planted.
            shape = Shape(1, 1, head_size, True)
            batch = Batch(np.random.default_rng(SEED), shape, 200, [[0, 150, 153]], window=140)
            kernels = kernels_with_matrices(head_size)
            self.assertGreater(len(kernels), 1)
            self.assertFalse(self.is_caught(batch, [*kernels][-1], lambda body: body))
            for kernel, faults in kernels.items():
                for name, fault in faults.items():
                    with self.subTest(fault=name, kernel=kernel, head_size=head_size):
                        self.assertTrue(self.is_caught(batch, kernel, fault))


if __name__ == "__main__":
    unittest.main()
