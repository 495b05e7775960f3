"""A dataset is a pure function of its inputs' bytes and the options.

Only `pack-log.json` may differ between two runs, however the work was shared, interrupted, or
repeated from the rows of another dataset.
"""

import dataclasses
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import program
from corpus import DELIMITER, make_corpus, with_compression
from corpus_files import FORMATS, MASKED_FORMATS
from program import ProgramTest, bindery, contents, option_arguments, write_inputs
from reference_packer import VOCAB_SIZE, Input, Options
from reference_test_case import part_of

SEED = 20240608
ROUNDS = program.amount(brief=1, usual=2, long=20)
THREADS = [1, 2, 8]
N_RANKS = 3


def published(dataset: Path) -> dict[str, bytes]:
    """Returns every file of a dataset and its holdout, except the logs of their runs."""
    files = contents(dataset)
    return {name: files[name] for name in files if Path(name).name != "pack-log.json"}


def held_out_files(files: dict[str, bytes]) -> dict[str, bytes]:
    """Returns the files of the holdout."""
    own = {name: data for name, data in files.items() if name.startswith("holdout/")}
    return {name.removeprefix("holdout/"): data for name, data in own.items()}


class SameBytesTest(ProgramTest):
    def make_inputs(self, seed: str, **settings: object) -> tuple[list[Input], Options]:
        rng = random.Random(seed)
        options = Options(
            seq_len=rng.choice([16, 64, 100]),
            strategy=rng.choice(["best-fit", "first-fit", "concat"]),
            unit_size=rng.choice([100, 300]),
            delimiter=DELIMITER,
            invalid_utf8="keep",
            **settings,
        )
        return with_compression(rng, make_corpus(rng, options, n_documents=120).inputs), options

    def packed(self, name: str, inputs: list[Path], options: Options, *more: object) -> dict:
        """Returns the published files of a new dataset."""
        dataset = self.pack(self.folder / name, inputs, *option_arguments(options), *more)
        return published(dataset)

    def assert_same(self, expected: dict[str, bytes], found: dict[str, bytes]) -> None:
        self.assertEqual(list(expected), list(found))
        different = [name for name in expected if expected[name] != found[name]]
        self.assertEqual(different, [])


class Runs(SameBytesTest):
    def test_any_number_of_threads_gives_the_same_bytes(self) -> None:
        settings = [{}, {"holdout": 300_000, "shuffle": 7, "codec": "zstd", "limit": 70}]
        for n in range(ROUNDS):
            seed = f"{SEED}-{n}"
            inputs, options = self.make_inputs(seed, **settings[n % 2])
            files = write_inputs(self.folder / f"corpus-{n}", inputs)
            first = self.packed(f"{n}-first", files, options, "--threads", 1)
            self.assertGreater(len(first), 10)
            for threads in THREADS:
                with self.subTest(seed=seed, threads=threads):
                    again = self.packed(f"{n}-{threads}", files, options, "--threads", threads)
                    self.assert_same(first, again)

    def test_masks_are_the_same_for_any_number_of_threads(self) -> None:
        """Three tables of several units, whose rows begin inside the bytes of the mask."""
        for name, form in MASKED_FORMATS.items():
            rng = random.Random(f"{SEED}-{name}")
            texts = [rng.randbytes(rng.randrange(100)) for _ in range(90)]
            [item] = form.write(rng, texts)
            [data] = item.stored.values()
            tables = [Input(f"{i}-{item.name}", data) for i in range(3)]
            files = write_inputs(self.folder / name, tables)
            options = Options(seq_len=rng.choice([7, 9, 101]), unit_size=900, holdout=200_000,
                              vocab_size=VOCAB_SIZE, separators_are=form.separators_are)
            first = self.packed(f"{name}-first", files, options, "--threads", 1)
            for threads in THREADS:
                with self.subTest(name, threads=threads):
                    again = self.packed(f"{name}-{threads}", files, options, "--threads", threads)
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
        inputs, options = self.make_inputs(f"{SEED}-run", holdout=300_000)
        files = write_inputs(self.folder / "corpus", inputs)
        for name, data in self.packed("dataset", files, options).items():
            self.assertNotIn(bytes(self.folder), data, name)


class Ranks(SameBytesTest):
    def setUp(self) -> None:
        super().setUp()
        inputs, self.options = self.make_inputs(f"{SEED}-ranks", holdout=200_000)
        rng = random.Random(f"{SEED}-masked")
        texts = [rng.randbytes(rng.randrange(100)) for _ in range(60)]
        inputs += MASKED_FORMATS["arrow of tokens with masks, append"].write(rng, texts)
        self.files = write_inputs(self.folder / "corpus", inputs)
        self.alone = self.packed("alone", self.files, self.options)
        self.assertGreater(len(self.alone), 10)

    def arguments(self, dataset: Path) -> list:
        return ["pack", "-q", "-o", dataset, *option_arguments(self.options), *self.files]

    def run_rank(self, dataset: Path, rank: int) -> None:
        ranks = ["--rank", rank, "--ranks", N_RANKS]
        self.succeeds(*self.arguments(dataset), *ranks, "--threads", 1)

    def test_ranks_one_after_another_give_the_same_bytes(self) -> None:
        for n, order in enumerate([[0, 1, 2], [2, 0, 1]]):
            dataset = self.folder / f"dataset-{n}"
            for rank in order:
                self.run_rank(dataset, rank)
            self.assert_same(self.alone, published(dataset))

    def test_ranks_at_once_give_the_same_bytes(self) -> None:
        for n in range(ROUNDS):
            dataset = self.folder / f"dataset-{n}"
            with ThreadPoolExecutor(N_RANKS) as pool:
                runs = [pool.submit(self.run_rank, dataset, rank) for rank in range(N_RANKS)]
                for run in runs:
                    run.result()
            self.assert_same(self.alone, published(dataset))

    def test_missing_units_are_listed_and_packed_later(self) -> None:
        """As if all ranks had died before the last one could publish the manifests."""
        dataset = self.folder / "dataset"
        shutil.copytree(self.folder / "alone", dataset)
        for path in dataset.rglob("manifest.json"):
            path.unlink()
        missing = sorted(path.name for path in dataset.glob("*-00000.arrow"))[1::4]
        self.assertGreater(len(missing), 1)
        for name in missing:
            (dataset / name).unlink()
        before = contents(dataset)
        result = bindery(*self.arguments(dataset), "--finish")
        self.assertEqual(result.status, 2, result)
        self.assertEqual([line.split()[0] for line in result.stdout.splitlines()], missing)
        self.assertIn(missing[0], result.stderr)
        self.assertEqual(contents(dataset), before)
        self.succeeds(*self.arguments(dataset))
        self.assert_same(self.alone, published(dataset))

    def test_the_work_of_dead_ranks_is_finished(self) -> None:
        """The last rank died before it could publish the manifests."""
        dataset = self.folder / "dataset"
        shutil.copytree(self.folder / "alone", dataset)
        for path in dataset.rglob("manifest.json"):
            path.unlink()
        self.succeeds(*self.arguments(dataset), "--finish")
        self.assert_same(self.alone, published(dataset))

    def test_a_lost_shard_is_packed_again_and_alike(self) -> None:
        dataset = self.folder / "dataset"
        shutil.copytree(self.folder / "alone", dataset)
        for path in dataset.rglob("manifest.json"):
            path.unlink()
        for path in sorted(dataset.rglob("*.arrow"))[::3]:
            path.unlink()
        self.succeeds(*self.arguments(dataset))
        self.assert_same(self.alone, published(dataset))


class Repacked(SameBytesTest):
    def repack(self, dataset: Path, out: str, options: Options) -> Path:
        given = [("--seq-len", options.seq_len), ("--strategy", options.strategy),
                 ("--long", options.long), ("--max-documents", options.max_documents),
                 ("--shuffle", options.shuffle)]
        arguments = [part for pair in given if pair[1] is not None for part in pair]
        self.succeeds("repack", "-q", dataset, "-o", self.folder / out, *arguments)
        return self.folder / out

    def test_to_another_length_and_back_is_packing_afresh(self) -> None:
        for n in range(ROUNDS):
            for strategy in ["best-fit", "first-fit", "concat"]:
                seed = f"{SEED}-repack-{n}"
                with self.subTest(seed=seed, strategy=strategy):
                    name = f"{n}-{strategy}"
                    inputs, options = self.make_inputs(seed)
                    options = dataclasses.replace(options, strategy=strategy)
                    other = dataclasses.replace(options, seq_len=options.seq_len + 17)
                    files = write_inputs(self.folder / name, inputs)
                    fresh = self.packed(f"{name}-fresh", files, options)
                    fresh_other = self.packed(f"{name}-fresh-other", files, other)
                    there = self.repack(self.folder / f"{name}-fresh", f"{name}-there", other)
                    self.assert_same(fresh_other, published(there))
                    back = self.repack(there, f"{name}-back", options)
                    self.assert_same(fresh, published(back))

    def test_to_another_order_and_company_is_packing_afresh(self) -> None:
        inputs, options = self.make_inputs(f"{SEED}-repack-options")
        files = write_inputs(self.folder / "corpus", inputs)
        dataset = self.pack(self.folder / "dataset", files, *option_arguments(options))
        for n, changes in enumerate([
            {"shuffle": 3}, {"max_documents": 2}, {"shuffle": 2**32, "max_documents": 3},
            {"long": "truncate"}, {"long": "drop", "strategy": "concat"},
        ]):
            with self.subTest(**changes):
                changed = dataclasses.replace(options, **changes)
                expected = self.packed(f"{n}-fresh", files, changed)
                repacked = self.repack(dataset, f"{n}-repacked", changed)
                self.assert_same(expected, published(repacked))

    def test_a_selection_is_kept(self) -> None:
        """Documents that were left out are counted as before; the held-out ones are repacked, too,
        and can also be repacked alone."""
        for n, settings in enumerate([
            {"min_tokens": 9}, {"limit": 50}, {"limit": 70, "shuffle": 5, "codec": "zstd"},
            {"holdout": 300_000}, {"holdout": 300_000, "min_tokens": 9, "shuffle": 2**63 - 1},
            {"bos": 7, "padding": 0, "max_documents": 2},
        ]):
            with self.subTest(**settings):
                inputs, options = self.make_inputs(f"{SEED}-selected-{n}", **settings)
                other = dataclasses.replace(options, seq_len=options.seq_len + 17)
                files = write_inputs(self.folder / f"{n}", inputs)
                self.packed(f"{n}-first", files, options)
                expected = self.packed(f"{n}-fresh", files, other)
                again = self.repack(self.folder / f"{n}-first", f"{n}-again", other)
                self.assert_same(expected, published(again))
                if "held-out" in options.parts:
                    held_out = part_of(self.folder / f"{n}-first", "held-out")
                    alone = published(self.repack(held_out, f"{n}-held-out", other))
                    alone.pop(".lock")
                    self.assert_same(held_out_files(expected), alone)

    def test_tokens_are_repacked_like_text(self) -> None:
        for name in ["megatron, present", "dolma, append", "llm.c", "parquet of tokens, append",
                     *MASKED_FORMATS]:
            with self.subTest(name):
                form = {**FORMATS, **MASKED_FORMATS}[name]
                rng = random.Random(f"{SEED}-{name}")
                texts = [rng.randbytes(rng.randrange(100)) for _ in range(60)]
                files = write_inputs(self.folder / name, form.write(rng, texts))
                options = Options(
                    seq_len=33, unit_size=500, vocab_size=VOCAB_SIZE,
                    separators_are=form.separators_are,
                )
                other = dataclasses.replace(options, seq_len=64)
                self.packed(f"{name}-first", files, options)
                expected = self.packed(f"{name}-fresh", files, other)
                again = self.repack(self.folder / f"{name}-first", f"{name}-again", other)
                self.assert_same(expected, published(again))


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
