"""Any system call that writes may fail while a model or a dataset is exported: the program says
why, leaves no file behind, and the same command succeeds afterwards.

    python tests/cli/export_model_fault_test.py PROGRAM LIBRARY
                                              (LIBRARY: tests/faults/failing_calls.c)
"""

import os
import sys
from pathlib import Path

import program
from program import ROOT, ProgramTest, Result, bindery, contents

DATASET = ROOT / "tests" / "golden" / "train-1" / "dataset"
MODEL = ["--layers", "1", "--channels", "24", "--heads", "3", "--positions", "64"]
CALLS = ("mkdir", "open", "write", "fsync", "rename")
REASONS = {"ENOSPC": "No space left on device", "EIO": "Input/output error"}


class ExportFaultTest(ProgramTest):
    def export(
        self, what: list, out: Path, call: str, error: str, number: int
    ) -> tuple[Result, int, int]:
        """Exports while call `number` of a kind fails; also returns how many calls there were
        and how many of them failed."""
        report = self.folder / "report"
        fault = {
            "LD_PRELOAD": os.environ["BINDERY_FAILING_CALLS"],
            "FAULT_CALL": call,
            "FAULT_NUMBER": str(number),
            "FAULT_ERROR": error,
            "FAULT_FOLDER": str(out),
            "FAULT_REPORT": str(report),
        }
        result = bindery("export", *what, "-o", out, env={**os.environ, **fault})
        counted, failed = map(int, report.read_text().split())
        return result, counted, failed

    def test_a_call_that_fails_leaves_nothing_of_a_model(self) -> None:
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, *MODEL, "--steps", 1)
        self.check(["--model", run])

    def test_a_call_that_fails_leaves_nothing_of_a_dataset(self) -> None:
        self.check([DATASET, "--threads", 1])

    def check(self, what: list) -> None:
        whole = self.folder / "whole"
        self.succeeds("export", *what, "-o", whole)
        n_faults = 0
        for call in CALLS:
            _, n, failed = self.export(what, self.folder / f"count-{call}", call, "EIO", 10**6)
            self.assertGreater(n, 0, call)
            self.assertEqual(failed, 0)
            for error in REASONS:
                # On a full disk all later calls fail as well, so the first and the last call are
                # enough.
                for number in range(1, n + 1) if error == "EIO" or program.LONG else {1, n}:
                    with self.subTest(call, error=error, number=number):
                        out = self.folder / f"{call}-{error}-{number}"
                        result, _, failed = self.export(what, out, call, error, number)
                        self.assertGreater(failed, 0)
                        self.assertEqual(result.status, 2, result)
                        self.assertIn(REASONS[error], result.stderr)
                        left = contents(out) if out.exists() else {}
                        self.assertLessEqual(set(left), {".lock"})
                        self.succeeds("export", *what, "-o", out)
                        self.assertEqual(contents(out), contents(whole))
                        n_faults += 1
        self.assertGreater(n_faults, 20)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM LIBRARY [unittest's options]")
    os.environ["BINDERY_FAILING_CALLS"] = os.path.abspath(sys.argv.pop(2))
    program.main()
