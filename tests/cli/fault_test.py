"""Any system call that writes may fail: the program says what and why, damages nothing, and the
same command finishes the dataset afterwards.

    python tests/cli/fault_test.py PROGRAM LIBRARY       (LIBRARY: tests/faults/failing_calls.c)
"""

import os
import shutil
import sys
from dataclasses import dataclass

import program
from program import CONTROL_CHARACTER, Result
from unfinished import WAYS, UnfinishedTest

SEED = 20240612
# Of a kind of call and error; for the first way to pack, and for each other one.
MOST_FAULTS = program.amount(brief=4, usual=12, long=10**6)
MOST_FAULTS_ELSEWHERE = program.amount(brief=2, usual=3, long=10**6)
CORPUS_BYTES = 120_000
OPTIONS = ("--seq-len", "64", "--unit-size", "30K", "--threads", "2")
REASONS = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}


@dataclass(frozen=True)
class Call:
    """A kind of call, as failing_calls.c names it."""

    name: str
    may_be_harmless: bool = False  # nothing is lost if the program does not mind
    reason: str | None = None  # instead of the system's


CALLS = [
    Call("mkdir"),
    Call("open"),
    Call("write"),
    Call("fsync"),
    Call("rename"),
    # The file may be empty yet, or be synced later; and Arrow does not pass the reason on.
    Call("close", may_be_harmless=True, reason="error closing file"),
]


def library() -> str:
    return os.environ["BINDERY_FAILING_CALLS"]


def spread(n: int, most: int) -> list[int]:
    """1 to n, or `most` of them, the first and the last included."""
    if n <= most:
        return list(range(1, n + 1))
    return sorted({1 + i * (n - 1) // (most - 1) for i in range(most)})


class Faults(UnfinishedTest):
    def setUp(self) -> None:
        super().setUp()
        self.dataset = self.folder / "dataset"
        self.report = self.folder / "report"

    def run_with_fault(self, call: str, error: str, number: int) -> tuple[Result, int, int]:
        """Packs into a new folder. Returns also the number of calls, and of those that failed."""
        shutil.rmtree(self.dataset, ignore_errors=True)
        environment = {
            **os.environ,
            "LD_PRELOAD": library(),
            "FAULT_CALL": call,
            "FAULT_NUMBER": str(number),
            "FAULT_ERROR": error,
            "FAULT_FOLDER": str(self.dataset),
            "FAULT_REPORT": str(self.report),
        }
        result = self.run_alone(self.dataset, env=environment)
        counted, failed = map(int, self.report.read_text().split())
        self.report.unlink()
        return result, counted, failed

    def count(self, call: str) -> int:
        """How many calls of the kind an undisturbed run makes."""
        result, counted, failed = self.run_with_fault(call, "EIO", 10**9)
        self.assertEqual((result.status, failed), (0, 0), result)
        self.assert_nothing_damaged(self.dataset)
        return counted

    def assert_explained(self, result: Result, reasons: list[str]) -> None:
        """Exit 2, and a line that names a file of the dataset, or its folder, and a reason."""
        self.assertEqual(result.status, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, rf"\Abindery {self.way.command}: [^\n]*\n\Z")
        self.assertIsNone(CONTROL_CHARACTER.search(result.stderr), result)
        self.assertIn(f"'{self.dataset}", result.stderr)
        self.assertTrue(any(reason in result.stderr for reason in reasons), result)

    def check_fault(self, call: Call, error: str, number: int) -> None:
        result, _, failed = self.run_with_fault(call.name, error, number)
        self.assertGreater(failed, 0)
        if not (call.may_be_harmless and result.status == 0):
            others = [call.reason] if call.reason else []
            self.assert_explained(result, [REASONS[error], *others])
        self.assert_nothing_damaged(self.dataset)
        self.assert_nothing_pending(self.dataset)
        self.assert_finishes(self.dataset)

    def test_a_failing_call_is_explained_and_packing_continues_later(self) -> None:
        for way in WAYS:
            self.prepare(way, f"{SEED}-{way.name}", CORPUS_BYTES, *OPTIONS)
            most = MOST_FAULTS if way is WAYS[0] else MOST_FAULTS_ELSEWHERE
            for call in CALLS:
                n_calls = self.count(call.name)
                print(f"{way.name}: {n_calls} calls of {call.name}")
                self.assertGreater(n_calls, 0, call)
                for error in REASONS:
                    for number in spread(n_calls, most):
                        with self.subTest(way.name, call=call.name, error=error, number=number):
                            self.check_fault(call, error, number)

    def test_short_writes_are_completed(self) -> None:
        for way in WAYS:
            with self.subTest(way.name):
                self.prepare(way, f"{SEED}-{way.name}-short", CORPUS_BYTES, *OPTIONS)
                result, _, shortened = self.run_with_fault("write", "short", 0)
                self.assertGreater(shortened, 100)
                self.assertEqual(result.status, 0, result)
                self.assert_nothing_damaged(self.dataset)


if __name__ == "__main__":
    if len(sys.argv) > 2 and os.path.isfile(sys.argv[2]):
        os.environ["BINDERY_FAILING_CALLS"] = os.path.abspath(sys.argv.pop(2))
    if "BINDERY_FAILING_CALLS" not in os.environ:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM LIBRARY [unittest's options]")
    print(f"seed {SEED}")
    program.main()
