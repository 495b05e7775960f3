"""No main loop of the attention kernels keeps a value on the stack, and every loop is found. The
other kernels use no stack at all, but for one number in one of them.

    spill_test.py [ROOT]     the checkout whose kernels are compiled [default: this one]

Compiles for architectures that the module is built for, with BINDERY_TEST_LONG=1 for all of them,
and reads the machine code by the modules of bench/sass.
"""

import os
import sys
import tempfile
import unittest
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
ROOT = Path(sys.argv.pop()).resolve() if len(sys.argv) == 2 else HERE
sys.path.insert(0, str(HERE / "bench" / "sass"))

from attention import NEEDED_PRODUCTS, SOURCES, role_of  # noqa: E402
from listing import parse  # noqa: E402
from loops import Loop, main_loops  # noqa: E402
from tools import Resources, ToolError, compile_kernels, demangle, find_tool  # noqa: E402

LONG = os.environ.get("BINDERY_TEST_LONG") == "1"
ARCHITECTURES = [80, 90, 100, 120] if LONG else [80, 90, 100]
HEAD_SIZES = [64, 128]
# Sources whose kernels are checked for stack, and what is known of them: (kernel, architecture) and
# bytes of stack, of stores and of loads.
WITHOUT_TENSOR_CORES = (
    "kernels/cuda/operations/*.cu",
    "kernels/cuda/attention/attention_float.cu",
    "kernels/cuda/attention/attention_plan.cu",
)
KNOWN_STACK = {("query_gradient_kernel", 80): (8, 4, 4)}
# Overrides also the number that a kernel itself requests.
FEW_REGISTERS = ["-maxrregcount=96", "-Xptxas=--override-directive-values"]

# Two loops inside one that spills. The first has a path without products for half its turns, one
# for turns with a mask, and one out of line for divergent warps.
LISTING = """
\t.section\t.text.sample,"ax",@progbits
.text.sample:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_outer:
        /*0010*/                   STL [R1], R0 ;
.L_first:
        /*0020*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0030*/               @P1 BRA `(.L_next) ;
        /*0040*/               @P2 BRA `(.L_unmasked) ;
        /*0050*/                   FSEL R2, R2, RZ, P3 ;
        /*0060*/                   FSEL R3, R3, RZ, P3 ;
.L_unmasked:
        /*0070*/                   BRA.DIV ~URZ, `(.L_divergent) ;
.L_together:
        /*0080*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
.L_next:
        /*0090*/              @!P0 CALL.REL.NOINC `(.L_second) ;
        /*00a0*/                   BRA `(.L_first) ;
.L_second:
        /*00b0*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*00c0*/                   LDL.LU R0, [R1] ;
        /*00d0*/                   BRA.U UP0, `(.L_second) ;
        /*00e0*/               @P4 BRA `(.L_outer) ;
        /*00f0*/                   EXIT ;
.L_divergent:
        /*0100*/                   NOP ;
        /*0110*/                   BRA `(.L_together) ;
.L_end:
        /*0120*/                   BRA `(.L_end);
"""


def loops_of(source: str, architecture: int, *flags: str) -> dict[str, list[Loop]]:
    """Returns the main loops of the kernels that have products."""
    with tempfile.TemporaryDirectory() as folder:
        binary = compile_kernels(ROOT, source, architecture, Path(folder), *flags)
    return {
        name: main_loops(code)
        for name, code in zip(demangle(list(binary.code)), binary.code.values())
        if any(i.name == "HMMA" for i in code.instructions)
    }


def resources_of(source: str, architecture: int, *flags: str) -> dict[str, Resources]:
    with tempfile.TemporaryDirectory() as folder:
        used = compile_kernels(ROOT, source, architecture, Path(folder), *flags).resources
    return dict(zip(demangle(list(used)), used.values()))


class Spills(unittest.TestCase):
    def test_main_loops_do_not_spill(self):
        for architecture in ARCHITECTURES:
            loops = {}
            for source in SOURCES:
                loops |= loops_of(source, architecture)
            there = {(role.operation, size) for role, size in map(role_of, loops)}
            self.assertEqual(there, set(product(NEEDED_PRODUCTS, HEAD_SIZES)))
            for kernel, of_kernel in loops.items():
                with self.subTest(f"{kernel} for sm_{architecture}"):
                    self.assertNotEqual(of_kernel, [], "no main loop found")
                    spills = [str(i) for loop in of_kernel for i in loop.spills]
                    self.assertEqual(spills, [], "spills inside a main loop")

    def test_a_spill_that_is_provoked_is_found(self):
        for kernel, loops in loops_of(SOURCES[0], 80, *FEW_REGISTERS).items():
            with self.subTest(kernel):
                self.assertTrue(any(loop.spills for loop in loops))

    def test_operations_use_no_stack(self):
        found = [sorted(ROOT.glob(pattern)) for pattern in WITHOUT_TENSOR_CORES]
        self.assertTrue(all(found))
        sources = [path.relative_to(ROOT) for paths in found for path in paths]
        for source, architecture in product(sources, ARCHITECTURES):
            for kernel, used in resources_of(str(source), architecture).items():
                with self.subTest(f"{kernel} of {source.name} for sm_{architecture}"):
                    stack = (used.stack_bytes, used.spill_store_bytes, used.spill_load_bytes)
                    self.assertEqual(stack, KNOWN_STACK.get((kernel, architecture), (0, 0, 0)))

    def test_stack_that_is_provoked_is_found(self):
        used = resources_of("kernels/cuda/operations/rms_norm.cu", 80, "-maxrregcount=24")
        self.assertTrue(any(kernel.spill_store_bytes for kernel in used.values()))


class Loops(unittest.TestCase):
    def test_innermost_loops_and_their_turns(self):
        addresses = [
            ([i.address for i in loop.turn], [i.address for i in loop.spills])
            for loop in main_loops(parse(LISTING)["sample"])
        ]
        self.assertEqual(
            addresses,
            [
                ([0xB0, 0xC0, 0xD0], [0xC0]),
                ([0x20, 0x30, 0x40, 0x70, 0x80, 0x90, 0xA0], []),
            ],
        )


if __name__ == "__main__":
    try:
        for tool in ("nvcc", "cuobjdump", "nvdisasm"):
            find_tool(tool)
    except ToolError as error:
        print(f"skipped: {error}")
        sys.exit(77)
    unittest.main()
