"""scripts/quickstart with a finished build: it announces its steps, runs them on a few documents,
names the next commands, and says which step failed and what helps."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import program
from program import ROOT, ProgramTest, Result, contents

DOCUMENTS = 200
SECONDS = 600


class Quickstart(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.corpus, self.out = self.folder / "corpus.txt", self.folder / "dataset"
        self.corpus.write_text(
            "\n%\n".join(f"Document {n} says: {'na ' * (n % 7)}end." for n in range(DOCUMENTS))
        )

    def quickstart(self, *arguments: object, bindery: str | Path = "") -> Result:
        command = [ROOT / "scripts" / "quickstart", "--program", bindery or program.program(),
                   "--corpus", self.corpus, "--delimiter", "%", "--out", self.out,
                   "--steps", 2, *arguments]
        command = [*map(str, command)]
        run = subprocess.run(command, cwd=self.folder, capture_output=True, text=True,
                             timeout=SECONDS, stdin=subprocess.DEVNULL)
        return Result(command, run.returncode, run.stdout, run.stderr)

    def fails(self, step: int, **settings: object) -> str:
        """Expects a failure that names this step and no later one. Returns the last line."""
        result = self.quickstart(**settings)
        self.assertEqual(result.status, 2, result)
        last = result.stderr.splitlines()[-1]
        self.assertRegex(last, rf"^quickstart: step {step} of 7 failed \(.+\): .+")
        self.assertIn(f"\n{step}/7  ", result.stdout)
        self.assertNotIn(f"\n{step + 1}/7  ", result.stdout)
        return last

    def test_all_steps_are_announced_and_what_it_recommends_works(self) -> None:
        result = self.quickstart()
        self.assertEqual(result.status, 0, result)
        announced = re.findall(r"^(\d)/(\d)  \S", result.stdout, re.MULTILINE)
        self.assertEqual(announced, [(str(n), "7") for n in range(1, 8)], result)
        self.assertRegex(result.stdout, r"(?m)^step 2/2  loss .* on holdout$")

        places, commands = result.stdout.split("All done in ")[1].split("Three commands")
        for place in re.findall(r"^  (\S+)", places, re.MULTILINE):
            self.assertTrue(os.path.isdir(place), place)
        commands = re.findall(r"^  (.+)$", commands, re.MULTILINE)
        self.assertEqual(len(commands), 3, result)
        for command in commands:
            name, *arguments = shlex.split(command)
            self.assertEqual(name, program.program())
            self.succeeds(*arguments, cwd=self.folder)

    def test_the_second_time_nothing_is_made_again(self) -> None:
        self.assertEqual(self.quickstart().status, 0)
        before = contents(self.folder)
        result = self.quickstart()
        self.assertEqual(result.status, 0, result)
        self.assertEqual(contents(self.folder), before)

    def test_a_folder_of_something_else_is_left_alone(self) -> None:
        self.out.mkdir()
        (self.out / "letters.txt").write_text("not a dataset")
        before = contents(self.folder)
        last = self.fails(step=2)
        self.assertIn(f"{self.out} ", last)
        self.assertIn("--out", last)
        self.assertEqual(contents(self.folder), before)

    def test_whatever_fails_the_step_is_named(self) -> None:
        pretended = self.folder / "bindery"
        for step, command, status in [
            (2, "pack*", 2), (3, "inspect*", 2), (4, "verify*", 1), (5, "train*", 2),
            (6, "prove*", 1), (6, "*--sabotage*", 0), (6, "*--sabotage*", 2), (7, "generate*", 2),
        ]:
            with self.subTest(command=command, status=status):
                pretended.write_text(f"""#!/bin/sh
case "$*" in
{command}) exit {status} ;;
*--sabotage*) exit 1 ;;
esac
""")
                pretended.chmod(0o755)
                self.fails(step, bindery=pretended)

    def test_a_single_document_cannot_leak(self) -> None:
        self.corpus.write_text("The only document that there is.")
        self.assertIn("--delimiter", self.fails(step=6))

    def test_bad_options_are_refused(self) -> None:
        for arguments in (["--steps", "0"], ["--steps", "x"], ["--steps"], ["--nonsense"],
                          ["--corpus", self.folder / "nothing"]):
            with self.subTest(arguments):
                result = self.quickstart(*arguments)
                self.assertEqual((result.status, result.stdout), (2, ""), result)
                self.assertFalse(self.out.exists())


if __name__ == "__main__":
    program.main()
