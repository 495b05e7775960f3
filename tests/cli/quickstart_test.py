"""scripts/quickstart with a finished build: it announces its steps, runs them on a few documents,
names the next commands, and says which step failed and what helps."""

import json
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

    def fails(self, step: int, *arguments: object, of: int = 7, **settings: object) -> str:
        """Expects a failure that names this step and no later one. Returns the last line."""
        result = self.quickstart(*arguments, **settings)
        self.assertEqual(result.status, 2, result)
        last = result.stderr.splitlines()[-1]
        self.assertRegex(last, rf"^quickstart: step {step} of {of} failed \(.+\): .+")
        self.assertIn(f"\n{step}/{of}  ", result.stdout)
        self.assertNotIn(f"\n{step + 1}/{of}  ", result.stdout)
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

    def write_chats(self) -> Path:
        path = self.folder / "chats.jsonl"
        path.write_text("".join(json.dumps({"messages": [
            {"role": "user", "content": f"What is {n}?"},
            {"role": "assistant", "content": f"It is {n}, and not {n + 1}."},
        ]}) + "\n" for n in range(60)))  # fmt: skip
        return path

    def test_a_chat_follows_the_base_model(self) -> None:
        """And the second time nothing is made again."""
        chats = self.write_chats()
        result = self.quickstart("--chats", chats)
        self.assertEqual(result.status, 0, result)
        announced = re.findall(r"^(\d+)/(\d+)  \S", result.stdout, re.MULTILINE)
        self.assertEqual(announced, [(str(n), "10") for n in range(1, 11)], result)
        self.assertIn("masked", result.stdout)
        self.assertIn(" --sabotage mask-loss ", result.stdout)
        self.assertIn(" --chat plain ", result.stdout)
        places = result.stdout.split("All done in ")[1].split("Three commands")[0]
        places = re.findall(r"^  (\S+)", places, re.MULTILINE)
        self.assertEqual(len(places), 5)
        for place in places:
            self.assertTrue(os.path.isdir(place), place)
        before = contents(self.folder)
        result = self.quickstart("--chats", chats)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(contents(self.folder), before)

    def test_chats_are_made_of_questions_and_answers(self) -> None:
        fortunes, file = self.folder / "fortunes", self.folder / "made.jsonl"
        fortunes.mkdir()
        (fortunes / "a.txt").write_text(
            "Q:\tWhy?\nA:\tBecause\n\tit is.\n\t\t-- Somebody\n%\nNo chat.\n%\nA: x\nQ: y\n%\n"
            "Q: 1\nQ: 2\nA: 3\n%\nTold:\nQ: a\nA: b\n%\nQ: a\nA: b\nQ: c\nA: d\n"
        )
        script = [ROOT / "scripts" / "fortunes-chats", fortunes, file]
        subprocess.run(script, check=True, capture_output=True)
        chats = [json.loads(line)["messages"] for line in file.read_text().splitlines()]
        self.assertEqual([[message["content"] for message in chat] for chat in chats],
                         [["Why?", "Because it is."], ["a", "b", "c", "d"]])  # fmt: skip
        self.assertEqual([message["role"] for message in chats[1]], ["user", "assistant"] * 2)

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

    def test_whatever_fails_of_the_chat_is_named(self) -> None:
        pretended, chats = self.folder / "bindery", self.write_chats()
        for step, command, status in [
            (8, "pack*--chat-format*", 2), (9, "export*", 2), (9, "train*--init*", 2),
            (9, "*--sabotage?mask-loss*", 0), (9, "*--sabotage?mask-loss*", 2),
            (10, "generate*--chat*", 2),
        ]:  # fmt: skip
            with self.subTest(command=command, status=status):
                pretended.write_text(f"""#!/bin/sh
case "$*" in
{command}) exit {status} ;;
*--sabotage*) exit 1 ;;
esac
""")
                pretended.chmod(0o755)
                self.fails(step, "--chats", chats, of=10, bindery=pretended)

    def test_a_single_document_cannot_leak(self) -> None:
        self.corpus.write_text("The only document that there is.")
        self.assertIn("--delimiter", self.fails(step=6))

    def test_bad_options_are_refused(self) -> None:
        for arguments in (["--steps", "0"], ["--steps", "x"], ["--steps"], ["--nonsense"], ["--chats"],
                          ["--chats", self.folder / "nothing"],
                          ["--corpus", self.folder / "nothing"]):
            with self.subTest(arguments):
                result = self.quickstart(*arguments)
                self.assertEqual((result.status, result.stdout), (2, ""), result)
                self.assertFalse(self.out.exists())


if __name__ == "__main__":
    program.main()
