"""The folders above an output are made with it, and a refusal removes the folders that it has
made."""

import shutil
from pathlib import Path

import program
from program import ROOT, ProgramTest, bindery, changed
from run_files import steps, write_run

GOLDEN = ROOT / "tests" / "golden" / "train-1"
DATASET = GOLDEN / "dataset"
MODEL = ["--layers", 1, "--channels", 16, "--heads", 2, "--positions", 64]


class Outputs(ProgramTest):
    def ways(self, dataset: Path, run: Path) -> dict[str, list]:
        """Every command that writes something, without its -o or --html."""
        return {
            "pack": ["pack", "--holdout", "30%", GOLDEN / "corpus", "-o"],
            "repack": ["repack", "--seq-len", 32, dataset, "-o"],
            "export": ["export", dataset, "-o"],
            "export --model": ["export", "--model", run, "-o"],
            "train": ["train", "--data", dataset, *MODEL, "--steps", 1, "-o"],
            "report": ["report", run, "-o"],
            "inspect --html": ["inspect", dataset, "--html"],
        }

    def test_the_folders_above_an_output_are_made(self) -> None:
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", DATASET, "-o", run, *MODEL, "--steps", 1)
        for name, arguments in self.ways(DATASET, run).items():
            with self.subTest(name):
                out = self.folder / name / "a" / "b" / "out"
                self.succeeds(*arguments, out)
                self.assertTrue(out.exists())

    def test_a_refusal_takes_back_the_folders_that_it_made(self) -> None:
        damaged = self.folder / "damaged"
        shutil.copytree(DATASET, damaged)
        for shard in damaged.glob("*.arrow"):
            shard.write_bytes(shard.read_bytes()[:-100])
        unsaved = write_run(self.folder / "unsaved", steps(3, 1))
        ways = self.ways(damaged, unsaved) | {
            "pack": ["pack", "--max-document-bytes", 1, GOLDEN / "corpus", "-o"],
            "train": ["train", "--data", DATASET, *changed(MODEL, "--positions", 2),
                      "--steps", 1, "-o"],
            "report": ["report", self.folder, "-o"],
        }
        for name, arguments in ways.items():
            for there in [False, True]:
                with self.subTest(name, there=there):
                    above = self.folder / f"{name}-{there}"
                    if there:
                        above.mkdir()
                    result = bindery(*arguments, above / "a" / "out")
                    self.assertEqual(result.status, 2, result)
                    self.assertEqual(above.exists(), there)
                    self.assertEqual(list(above.rglob("*")), [], result)

    def test_a_refused_output_can_be_made_with_other_options(self) -> None:
        """A failure before the first shard leaves no plan that would prevent other options."""
        corpus = self.folder / "corpus.jsonl"
        corpus.write_text('{"body": "some text"}\n')
        out = self.folder / "out"
        self.assertEqual(bindery("pack", "-o", out, corpus).status, 2)
        self.succeeds("pack", "-o", out, "--text-field", "body", corpus)


if __name__ == "__main__":
    program.main()
