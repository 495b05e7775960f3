"""The card of a dataset, README.md: it describes the folder's contents, and users may change
it."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import yaml

import program
from program import ProgramTest, bindery, changed, contents

MINE = "---\nlicense: mit\n---\nMine.\n"
FIGURES = {
    "rows": "rows",
    "documents": "documents",
    "tokens of documents": "packed",
    "tokens of padding": "padding",
    "tokens that are predicted": "targets",
}


def front_matter(dataset: Path) -> dict:
    opening, matter, _ = (dataset / "README.md").read_text().split("---\n", 2)
    assert opening == ""
    return yaml.safe_load(matter)


def split_files(dataset: Path) -> dict[str, list[Path]]:
    """Returns the files that the card lists for each split."""
    (config,) = front_matter(dataset)["configs"]
    return {f["split"]: sorted(dataset.glob(f["path"])) for f in config["data_files"]}


def table_rows(dataset: Path) -> dict[str, list[str]]:
    """Returns every row of the card's tables: first cell -> other cells."""
    lines = (dataset / "README.md").read_text().splitlines()
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    return {first: others for first, *others in cells}


class CardTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        texts = [f"{n} " * (n % 50) for n in range(300)]
        self.corpus = self.folder / "corpus.jsonl"
        self.corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        self.options = ["--seq-len", 64, "--unit-size", "5K", "--holdout", "20%"]
        self.dataset = self.pack(self.folder / "dataset", [self.corpus], *self.options)
        self.card = self.dataset / "README.md"
        self.held_out = self.dataset / "holdout"

    def run_again(self, *arguments: object) -> str:
        """Packs once more into the same folder; returns the message about the card."""
        given = [*changed(self.options, *arguments), self.corpus]
        return self.succeeds("pack", "-o", self.dataset, *given).stderr


class Facts(CardTest):
    def test_the_splits_are_the_shards_of_both_parts(self) -> None:
        shards, held_out = (sorted(d.glob("*.arrow")) for d in (self.dataset, self.held_out))
        self.assertGreater(len(shards), 1)
        self.assertEqual(split_files(self.dataset), {"train": shards, "holdout": held_out})
        self.assertEqual(split_files(self.held_out), {"holdout": held_out})

    def test_the_figures_are_those_of_the_manifests(self) -> None:
        table = table_rows(self.dataset)
        manifests = [json.loads((d / "manifest.json").read_text())["totals"]
                     for d in (self.dataset, self.held_out)]
        for words, figure in FIGURES.items():
            self.assertEqual(table[words], [f"{m[figure]:,}" for m in manifests], words)

    def test_the_columns_are_those_of_the_shards(self) -> None:
        table = table_rows(self.dataset)
        schema = pa.ipc.open_file(next(self.dataset.glob("*.arrow"))).schema
        self.assertEqual([f"`{name}`" for name in schema.names],
                         [first for first in table if first.startswith("`")])
        self.assertEqual(table["`input_ids`"][0], "uint16[64]")

    def test_the_manifest_does_not_name_it(self) -> None:
        for name in ["README.md", "tokenizer_config.json"]:
            self.assertNotIn(name, (self.dataset / "manifest.json").read_text())


class Changed(CardTest):
    def change(self) -> None:
        for dataset in (self.dataset, self.held_out):
            (dataset / "README.md").write_text(MINE)

    def assert_kept(self) -> None:
        for dataset in (self.dataset, self.held_out):
            self.assertEqual((dataset / "README.md").read_text(), MINE)
            self.assertTrue((dataset / "manifest.json").exists())
            self.succeeds("verify", dataset)

    def test_a_finished_dataset_with_another_card_is_finished(self) -> None:
        self.change()
        before = contents(self.dataset)
        self.assertIn("is finished already", self.run_again())
        self.assertEqual(contents(self.dataset), before)
        self.assert_kept()

    def test_a_run_that_continues_leaves_it(self) -> None:
        self.change()
        for path in self.dataset.rglob("manifest.json"):
            path.unlink()
        self.assertIn(f"'{self.card}' is not as bindery wrote it and stays", self.run_again())
        self.assert_kept()

    def test_overwriting_leaves_it(self) -> None:
        self.change()
        said = self.run_again("--overwrite", "--seq-len", 100)
        self.assertIn(f"'{self.card}' is not as bindery wrote it and stays", said)
        self.assert_kept()
        # The held-out dataset is removed, but the card in it is not.
        arguments = ["--overwrite", "--seq-len", 64, self.corpus]
        self.succeeds("pack", "-q", "-o", self.dataset, *arguments)
        self.assertEqual(list(contents(self.held_out)), ["README.md"])
        self.assertEqual(self.card.read_text(), MINE)

    def test_repacking_leaves_it(self) -> None:
        out = self.folder / "out"
        self.succeeds("repack", "-q", self.dataset, "-o", out, "--seq-len", 100)
        (out / "README.md").write_text(MINE)
        arguments = [self.dataset, "-o", out, "--seq-len", 90, "--overwrite"]
        said = self.succeeds("repack", *arguments).stderr
        self.assertIn(f"'{out / 'README.md'}' is not as bindery wrote it and stays", said)
        self.assertEqual((out / "README.md").read_text(), MINE)
        self.assertIn("holdout", split_files(out / "holdout"))
        self.succeeds("verify", out)

    def test_it_may_be_there_before_the_dataset(self) -> None:
        out = self.folder / "out"
        out.mkdir()
        (out / "README.md").write_text(MINE)
        self.pack(out, [self.corpus], *self.options)
        self.assertEqual((out / "README.md").read_text(), MINE)

    def test_our_own_is_replaced_by_that_of_the_new_rows(self) -> None:
        fresh = self.pack(self.folder / "fresh", [self.corpus],
                          *changed(self.options, "--seq-len", 100))
        self.assertNotIn("README.md", self.run_again("--overwrite", "--seq-len", 100))
        for name in ["README.md", "holdout/README.md"]:
            self.assertEqual((self.dataset / name).read_bytes(), (fresh / name).read_bytes())

    def test_without_rows_held_out_there_is_no_such_split(self) -> None:
        few = self.folder / "few.jsonl"
        few.write_text('{"text": "one"}\n{"text": "two"}\n')
        dataset = self.pack(self.folder / "few", [few], "--holdout", "0.0001%")
        self.assertEqual(list(split_files(dataset)), ["train"])


class Holdout(CardTest):
    """`bindery repack` also repacks the held-out documents."""

    def test_a_holdout_that_is_elsewhere_is_not_missed(self) -> None:
        self.held_out.rename(self.folder / "elsewhere")
        out = self.folder / "out"
        self.succeeds("repack", "-q", self.dataset, "-o", out, "--seq-len", 100)
        self.assertFalse((out / "holdout").exists())
        self.assertEqual(list(split_files(out)), ["train"])

    def test_another_dataset_in_its_place_is_refused(self) -> None:
        shutil.rmtree(self.held_out)
        self.pack(self.held_out, [self.corpus], "--seq-len", 64)
        out = self.folder / "out"
        result = bindery("repack", self.dataset, "-o", out, "--seq-len", 100)
        self.assertEqual(result.status, 2, result)
        self.assertIn(f"'{self.held_out}' is not what was held out", result.stderr)
        self.assertFalse(out.exists())

    def test_the_holdout_is_not_overwritten_by_what_it_goes_into(self) -> None:
        before = contents(self.dataset)
        arguments = ["-o", self.held_out, "--seq-len", 100, "--overwrite"]
        result = bindery("repack", self.dataset, *arguments)
        self.assertEqual(result.status, 2, result)
        self.assertIn("which is to be packed again", result.stderr)
        self.assertEqual(contents(self.dataset), before)


if __name__ == "__main__":
    program.main()
