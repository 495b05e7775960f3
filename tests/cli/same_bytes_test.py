"""A dataset is a pure function of its inputs' bytes and the options.

Only `pack-log.json` may differ between two runs.
"""

import random
from pathlib import Path

import program
from corpus import DELIMITER, make_corpus
from program import ProgramTest, contents, option_arguments, write_inputs
from reference_packer import Input, Options

SEED = 20240608
ROUNDS = 20 if program.LONG else 2
THREADS = [1, 2, 7]


def published(dataset: Path) -> dict[str, bytes]:
    """Every file of a dataset but the log of its run."""
    files = contents(dataset)
    files.pop("pack-log.json", None)
    return files


class SameBytes(ProgramTest):
    def make_inputs(self, seed: str) -> tuple[list[Input], Options]:
        rng = random.Random(seed)
        options = Options(
            seq_len=rng.choice([16, 64, 100]),
            strategy=rng.choice(["best-fit", "concat"]),
            unit_size=rng.choice([100, 300]),
            delimiter=DELIMITER,
            invalid_utf8="keep",
        )
        return make_corpus(rng, options, n_documents=120).inputs, options

    def packed(self, name: str, inputs: list[Path], options: Options, *more: object) -> dict:
        """The published files of a fresh dataset."""
        dataset = self.pack(self.folder / name, inputs, *option_arguments(options), *more)
        return published(dataset)

    def assert_same(self, expected: dict[str, bytes], found: dict[str, bytes]) -> None:
        self.assertEqual(list(expected), list(found))
        different = [name for name in expected if expected[name] != found[name]]
        self.assertEqual(different, [])

    def test_any_number_of_threads_gives_the_same_bytes(self) -> None:
        for n in range(ROUNDS):
            seed = f"{SEED}-{n}"
            inputs, options = self.make_inputs(seed)
            files = write_inputs(self.folder / f"corpus-{n}", inputs)
            first = self.packed(f"{n}-first", files, options, "--threads", 1)
            self.assertGreater(len(first), 10)
            for threads in THREADS:
                with self.subTest(seed=seed, threads=threads):
                    again = self.packed(f"{n}-{threads}", files, options, "--threads", threads)
                    self.assert_same(first, again)

    def test_the_place_of_the_inputs_does_not_matter(self) -> None:
        inputs, options = self.make_inputs(f"{SEED}-place")
        here = self.folder / "here" / "corpus"
        there = self.folder / "quite" / "another" / "place" / "corpus"
        files_here, files_there = write_inputs(here, inputs), write_inputs(there, inputs)
        with self.subTest("folders"):
            self.assert_same(
                self.packed("folder-here", [here], options),
                self.packed("folder-there", [there], options),
            )
        with self.subTest("files"):
            self.assert_same(
                self.packed("files-here", files_here, options),
                self.packed("files-there", files_there, options),
            )

    def test_nothing_of_the_run_is_published(self) -> None:
        inputs, options = self.make_inputs(f"{SEED}-run")
        files = write_inputs(self.folder / "corpus", inputs)
        for name, data in self.packed("dataset", files, options).items():
            self.assertNotIn(bytes(self.folder), data, name)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
