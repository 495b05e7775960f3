"""`cmake --install` brings the program and everything that belongs to it."""

import os
import re
import subprocess
from pathlib import Path
from unittest import mock

import program
from program import ROOT, ProgramTest, bindery, contents


def commands() -> list[str]:
    """The commands that the program's help lists, but for `help`."""
    listed = bindery("--help").stdout.split("Commands:\n")[1].split("\n\n")[0]
    return [name for name in re.findall(r"^  (\w+) ", listed, re.MULTILINE) if name != "help"]


class Installed(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        build = Path(program.program()).parent
        subprocess.run(["cmake", "--install", build, "--prefix", self.folder],
                       check=True, stdout=subprocess.DEVNULL)

    def test_every_command_has_its_man_page(self) -> None:
        pages = {path.name for path in (self.folder / "share/man/man1").iterdir()}
        self.assertIn("train", commands())
        self.assertEqual(pages, {"bindery.1", *(f"bindery-{name}.1" for name in commands())})

    def test_every_schema_is_there(self) -> None:
        self.assertEqual(contents(self.folder / "share/bindery/schemas"),
                         contents(ROOT / "schemas"))

    def test_the_program_runs_from_where_it_was_installed(self) -> None:
        with mock.patch.dict(os.environ, BINDERY=str(self.folder / "bin/bindery")):
            dataset = self.pack(self.folder / "dataset", [ROOT / "LICENSE"], "--seq-len", 64)
            self.succeeds("verify", dataset)


if __name__ == "__main__":
    program.main()
