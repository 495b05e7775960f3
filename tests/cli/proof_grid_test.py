"""Packing is proved for every family, random and trained, on every instruction set that this
machine has, for many choices of documents; sabotages are noticed in all of them. A small part of
the grid, and with --long all of it. The last line says how near the bound the worst element came.
"""

import itertools
import json
import re
from pathlib import Path

import program
from isa_test import HAD
from program import ALL_FAMILIES, FAMILIES, ROOT, ProgramTest, bindery

STEPS = (0, 100, 800, 3000)  # of training; 0 is random weights
SEEDS = (1, 2, 3, 4, 5)
DOCUMENTS = (5, 20, 60, 200)
# So small that 200 documents take seconds in the double-precision reference.
MODEL = ["--layers", "2", "--channels", "32", "--heads", "2", "--positions", "64"]
# One case in this many is tried.
PART = program.amount(brief=40, usual=20, long=1)


def paragraphs() -> list[str]:
    """Returns the beginnings of the project's own documents: human text, short and long."""
    files = [ROOT / "README.md", ROOT / "LICENSE", *sorted((ROOT / "docs").glob("*.md")),
             *sorted((ROOT / "schemas").glob("*.md"))]
    text = "\n\n".join(file.read_text(encoding="utf-8") for file in files)
    return [part.strip()[:100] for part in re.split(r"\n\s*\n", text) if part.strip()]


class ProofGrid(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        corpus = self.folder / "corpus.jsonl"
        corpus.write_text("".join(json.dumps({"text": part}) + "\n" for part in paragraphs()))
        self.dataset = self.folder / "dataset"
        self.succeeds("pack", "-q", "-o", self.dataset, "--seq-len", 64, corpus)
        self.runs = {family: self.train(family) for family in ALL_FAMILIES}

    def train(self, family: str) -> Path:
        run = self.folder / family
        how = [*program.shape_arguments(family, self.folder), *(MODEL if family in FAMILIES else []),
               "--batch", 2, "--steps", max(STEPS)]
        self.succeeds("train", "-q", "--data", self.dataset, "-o", run, *how,
                      "--save-every", 100, "--keep", max(STEPS), timeout=1200)
        return run

    def prove(self, family: str, steps: int, *arguments: object) -> dict:
        model = ["--run", self.runs[family], "--step", steps] if steps else ["--model", family]
        result = bindery("prove", "--json", *model, *arguments, self.dataset, timeout=1200)
        self.assertIn(result.status, (0, 1), result)
        return json.loads(result.stdout)

    def test_always_proved(self) -> None:
        cases = list(itertools.product(ALL_FAMILIES, STEPS, SEEDS, DOCUMENTS, HAD))
        # The step shares no factor with any side of the grid, so that every value occurs.
        chosen = [cases[i * 97 % len(cases)] for i in range(-(-len(cases) // PART))]
        ratios = []
        for case in chosen:
            family, steps, seed, documents, isa = case
            with self.subTest(case):
                proof = self.prove(family, steps, "--seed", seed, "--documents", documents,
                                   "--isa", isa)
                self.assertTrue(proof["proved"], proof)
                self.assertTrue(proof["probe"]["clean"])
                ratios.append(proof["gradients"]["worst_ratio"])
        worst = f"worst element at {max(ratios):.3f} of its bound"
        print(f"{len(ratios)} proofs on {', '.join(HAD)}: {worst}")

    def test_every_sabotage_is_far_beyond_the_bound(self) -> None:
        cases = [(sabotage, family, steps) for family, steps in itertools.product(ALL_FAMILIES, STEPS)
                 for sabotage in program.sabotages(family)]
        ratios = []
        for sabotage, family, steps in cases[:: min(PART, 7)]:
            with self.subTest(sabotage, family=family, steps=steps):
                proof = self.prove(family, steps, "--sabotage", sabotage)
                self.assertFalse(proof["proved"])
                ratio = proof["gradients"]["worst_ratio"]  # null: infinite, the bound was 0
                self.assertTrue(ratio is None or ratio >= 100, ratio)
                ratios += [] if ratio is None else [ratio]
        if ratios:
            print(f"sabotages: at least {min(ratios):.0f} times the bound")


if __name__ == "__main__":
    program.main()
