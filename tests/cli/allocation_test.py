"""Any allocation may fail, also one of a library, and some libraries then end the program: it
prints why, exits with 2, and the same command finishes the dataset afterwards.

    python tests/cli/allocation_test.py PROGRAM LIBRARY  (LIBRARY: tests/faults/failing_allocations.c)
"""

import os
import random
import shutil
import sys

import program
from program import Result
from unfinished import WAYS, UnfinishedTest, published

SEED = 20240621
FAULTS = program.amount(brief=40, usual=200, long=5000)  # for each way to pack
OPTIONS = ("--seq-len", "64", "--unit-size", "30K", "--threads", "1")
CHOSEN = ("parquet", "compress")  # Arrow reads and writes; GLib allocates for it


class Allocations(UnfinishedTest):
    def run_with_fault(self, number: int) -> Result:
        environment = {
            **os.environ,
            "LD_PRELOAD": os.environ["BINDERY_FAILING_ALLOCATIONS"],
            "FAULT_NUMBER": str(number),
            "FAULT_REPORT": str(self.folder / "report"),
        }
        shutil.rmtree(self.folder / "dataset", ignore_errors=True)
        return self.run_alone(self.folder / "dataset", env=environment)

    def assert_files_are_whole(self) -> None:
        for name, data in published(self.folder / "dataset").items():
            self.assertEqual(data, self.whole[name], name)

    def test_an_allocation_that_fails_is_told_whoever_asked_for_it(self) -> None:
        dataset, told = self.folder / "dataset", 0
        for way in (way for way in WAYS if way.name in CHOSEN):
            self.prepare(way, f"{SEED}-{way.name}", 60_000, *OPTIONS)
            self.assertEqual(self.run_with_fault(10**9).status, 0)
            n = int((self.folder / "report").read_text())
            print(f"{way.name}: {n} allocations")
            rng = random.Random(f"{SEED}-{way.name}")
            for number in sorted(rng.sample(range(1, n + 1), min(n, FAULTS))):
                with self.subTest(way.name, number=number):
                    result = self.run_with_fault(number)  # a signal would fail the test
                    self.assertIn(result.status, (0, 2), result)
                    if result.status == 2:
                        self.assertRegex(result.stderr, r"(\A|\n)bindery( pack)?: [^\n]+\n\Z")
                        told += 1
                    self.assert_files_are_whole()
            shutil.rmtree(dataset, ignore_errors=True)
            self.assert_finishes(dataset)
        self.assertGreater(told, FAULTS // 10)


if __name__ == "__main__":
    if len(sys.argv) > 2 and os.path.isfile(sys.argv[2]):
        os.environ["BINDERY_FAILING_ALLOCATIONS"] = os.path.abspath(sys.argv.pop(2))
    if "BINDERY_FAILING_ALLOCATIONS" not in os.environ:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM LIBRARY [unittest's options]")
    print(f"seed {SEED}")
    program.main()
