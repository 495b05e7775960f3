"""A dataset packed with a tokenizer from a file keeps it, and all commands read it there."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import tokenizers
import xxhash

import program
import reference_tokenizers as reference
from forged_dataset import seal
from program import ROOT, ProgramTest, bindery, contents

TEXTS = ["The first document isn't long.", "", "Straße 語 🧵\n\ttabs", "numbers 1234567 " * 40,
         "the needle lies here"]


class Datasets(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        texts = [(ROOT / "LICENSE").read_text(), *TEXTS]
        self.tokenizer = reference.trained(texts, None, 500, ["<|endoftext|>"])
        self.file = self.folder / "somewhere" / "tokenizer.json"
        self.file.parent.mkdir()
        self.tokenizer.save(str(self.file))
        self.corpus = self.folder / "corpus.jsonl"
        self.corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        self.dataset = self.pack_with("dataset")

    def pack_with(self, name: str, *arguments: object, tokenizer: object = None) -> Path:
        return self.pack(self.folder / name, [self.corpus], "--seq-len", 64, "--tokenizer",
                         tokenizer or self.file, *arguments)

    def packing(self, dataset: Path) -> dict:
        return json.loads((dataset / "manifest.json").read_text())["packing"]

    # ---- The files of a dataset --------------------------------------------------------------

    def documents(self, dataset: Path) -> list[list[int]]:
        """Returns the tokens of each document, in the order of the input."""
        import pyarrow as pa

        ids = {}
        for shard in sorted(dataset.glob("*.arrow")):
            table = pa.ipc.open_file(pa.memory_map(str(shard))).read_all()
            for row in table.to_pylist():
                for document, begin, end in zip(row["documents"], row["cu_seqlens"],
                                                row["cu_seqlens"][1:]):
                    piece = row["input_ids"][begin:end]
                    pieces = ids.setdefault(document["position"], {})
                    pieces[document["offset"]] = piece
        whole = []
        for position in sorted(ids):
            tokens: list[int] = []
            for offset, piece in sorted(ids[position].items()):
                tokens[offset:] = piece
            whole.append(tokens)
        return whole

    def test_rows_hold_the_references_ids(self) -> None:
        separator = self.tokenizer.token_to_id("<|endoftext|>")
        expected = [self.tokenizer.encode(text).ids + [separator] for text in TEXTS]
        self.assertEqual(self.documents(self.dataset), expected)

    def test_the_dataset_keeps_the_tokenizer_and_no_path(self) -> None:
        self.assertEqual(self.packing(self.dataset)["tokenizer"]["name"], "bpe")
        kept = tokenizers.Tokenizer.from_file(str(self.dataset / "tokenizer.json"))
        for text in TEXTS:
            self.assertEqual(kept.encode(text).ids, self.tokenizer.encode(text).ids)
        for name in ("manifest.json", "plan.json"):
            self.assertNotIn("somewhere", (self.dataset / name).read_text())

    def test_a_second_packing_with_the_kept_tokenizer_is_the_same(self) -> None:
        again = self.pack_with("again", tokenizer=self.dataset / "tokenizer.json")
        one, other = contents(self.dataset), contents(again)
        for found in (one, other):
            found.pop("pack-log.json", None)
        self.assertEqual(one, other)

    # ---- Separators --------------------------------------------------------------------------

    def test_the_separator_is_the_tokenizers_or_what_is_given(self) -> None:
        separator = self.tokenizer.token_to_id("<|endoftext|>")
        self.assertEqual(self.packing(self.dataset)["separator"], separator)
        other = self.tokenizer.token_to_id("!")
        for arguments in (["--separator-token", "!"], ["--separator-id", other]):
            dataset = self.pack_with(f"with{arguments[0]}", *arguments)
            self.assertEqual(self.packing(dataset)["separator"], other)

    def test_a_tokenizer_without_separator_needs_one(self) -> None:
        tokenizer = reference.trained(TEXTS, None, 300, [])
        tokenizer.save(str(self.file))
        for arguments, said in [([], "--separator-token"),
                                (["--separator-token", "nothing"], "'nothing'"),
                                (["--separator-token", "a", "--separator-id", 1], "either")]:
            result = bindery("pack", "-o", self.folder / "none", "--tokenizer", self.file,
                             *arguments, self.corpus)
            self.assertEqual(result.status, 2, result)
            self.assertIn(said, result.stderr)

    def test_a_control_token_can_be_named_as_the_separator(self) -> None:
        tokenizer = reference.trained(TEXTS, None, 300, ["<|endoftext|>", "<|next|>"])
        tokenizer.save(str(self.file))
        dataset = self.pack_with("next", "--separator-token", "<|next|>")
        self.assertEqual(self.packing(dataset)["separator"], tokenizer.token_to_id("<|next|>"))

    def test_the_names_of_separators_have_an_order(self) -> None:
        for specials, expected in [(["</s>", "<|end_of_text|>"], "<|end_of_text|>"),
                                   (["</s>", "<s>"], "</s>"),
                                   (["<|end_of_text|>", "<|endoftext|>"], "<|endoftext|>")]:
            tokenizer = reference.trained(TEXTS, None, 300, specials)
            tokenizer.save(str(self.file))
            dataset = self.pack_with("-".join(s.strip("<>/|") for s in specials))
            found = self.packing(dataset)["separator"]
            self.assertEqual(found, tokenizer.token_to_id(expected))

    # ---- Special tokens that documents spell out ---------------------------------------------

    def spelled_out(self) -> list[str]:
        """Makes a tokenizer with special and other added tokens, and a corpus that contains
        them."""
        tokens = [tokenizers.AddedToken("<|endoftext|>", special=True, normalized=False),
                  tokenizers.AddedToken("<|turn|>", special=True, lstrip=True, rstrip=True)]
        self.tokenizer = reference.trained(TEXTS, None, 400, [])
        self.tokenizer.add_special_tokens(tokens)
        self.tokenizer.add_tokens([tokenizers.AddedToken("<tool>", special=False)])
        self.tokenizer.save(str(self.file))
        texts = ["one<|endoftext|>two", " <|turn|> <|turn|>\n", "<|endoftext|>" * 3, "<tool>x<|en",
                 "plain", "<|endof<|endoftext|>text|><tool>"]
        self.corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return texts

    def counts(self, texts: list[str], as_text: bool) -> list[list[int]]:
        self.tokenizer.encode_special_tokens = as_text
        added = self.tokenizer.get_added_tokens_decoder()
        met = Counter(i for text in texts for i in self.tokenizer.encode(text).ids if i in added)
        return [[i, met[i]] for i in sorted(met)]

    def packed_text(self, dataset: Path) -> int:
        return json.loads((dataset / "manifest.json").read_text())["totals"]["text"]

    def test_a_special_token_is_text_or_the_token_as_the_plan_says(self) -> None:
        texts = self.spelled_out()
        packed = {}
        for how, arguments in [("text", []), ("token", ["--special-tokens", "token"])]:
            dataset = packed[how] = self.pack_with(how, *arguments)
            plan = json.loads((dataset / "plan.json").read_text())
            self.assertEqual(plan["reading"]["special_tokens"], how)
            manifest = json.loads((dataset / "manifest.json").read_text())
            totals = manifest["totals"]
            expected = self.counts(texts, how == "text")  # also configures the reference
            self.assertEqual(totals["added_tokens"], expected)
            self.assertEqual(totals["added_tokens_other"], 0)
            self.assertEqual(manifest["sources"][0]["figures"], totals)
            self.assertEqual(totals["text"], sum(len(self.tokenizer.encode(t)) for t in texts))
            n = dict(expected).get(self.tokenizer.token_to_id("<|endoftext|>"), 0)
            self.assertEqual(totals["separator_collisions"], n)
            self.succeeds("verify", "--against", self.corpus, dataset)
            self.succeeds("inspect", "--scan", dataset)
            separator = self.tokenizer.token_to_id("<|endoftext|>")
            self.assertEqual(self.documents(dataset),
                             [self.tokenizer.encode(t).ids + [separator] for t in texts])
        self.assertNotEqual(*map(self.packed_text, packed.values()))

    def test_added_tokens_in_text_are_shown_by_name(self) -> None:
        self.spelled_out()
        shown = self.succeeds("pack", "-o", self.folder / "new", "--tokenizer", self.file,
                              "--special-tokens", "token", self.corpus).stdout
        found = self.succeeds("inspect", self.folder / "new").stdout
        names = {name: self.tokenizer.token_to_id(name)
                 for name in ("<|endoftext|>", "<|turn|>", "<tool>")}
        for said in (shown, found):
            for name, token_id in names.items():
                self.assertRegex(said, rf'(?m)^ +\d+ +{token_id}  "{re.escape(name)}"$')
        added = json.loads(self.succeeds("inspect", "--json", self.folder / "new").stdout)[
            "tokens"]["added"]
        self.assertEqual({item["text"]: item["id"] for item in added}, names)
        again = self.folder / "again"
        self.succeeds("repack", "-q", "-o", again, "--seq-len", 32, self.folder / "new")
        figures = [json.loads((d / "manifest.json").read_text())["totals"]["added_tokens"]
                   for d in (self.folder / "new", again)]
        self.assertEqual(*figures)
        self.succeeds("verify", "--against", self.corpus, again)

    def test_a_plan_that_does_not_say_it_made_them_tokens(self) -> None:
        self.spelled_out()
        for how, status in [("token", 0), ("text", 1)]:
            dataset = self.pack_with(how, "--special-tokens", how)
            plan = json.loads((dataset / "plan.json").read_text())
            del plan["reading"]["special_tokens"]
            (dataset / "plan.json").write_text(json.dumps(plan))
            manifest = json.loads((dataset / "manifest.json").read_text())
            manifest["plan"]["checksum"] = xxhash.xxh3_128_hexdigest(
                (dataset / "plan.json").read_bytes())
            del manifest["checksum"]
            seal(dataset / "manifest.json", manifest)
            self.succeeds("verify", dataset)
            result = bindery("verify", "--against", self.corpus, dataset)
            self.assertEqual(result.status, status, result)

    def test_a_special_token_can_be_an_error(self) -> None:
        self.spelled_out()
        for command in ("pack", "plan"):
            arguments = ["-o", self.folder / "none"] if command == "pack" else []
            result = bindery(command, *arguments, "--tokenizer", self.file, "--special-tokens",
                             "error", self.corpus)
            self.assertEqual(result.status, 2, result)
            self.assertIn("corpus.jsonl', line 1 (byte 0): the text spells the special token "
                          "'<|endoftext|>', id", result.stderr)
            self.assertIn("at byte 3 of the document", result.stderr)
            self.assertFalse((self.folder / "none").exists())
        self.corpus.write_text('{"text": "<tool>"}\n')
        self.pack_with("good", "--special-tokens", "error")

    # ---- Commands that read it ---------------------------------------------------------------

    def test_everybody_opens_the_kept_tokenizer(self) -> None:
        shutil.rmtree(self.file.parent)
        self.succeeds("verify", self.dataset)
        self.succeeds("verify", "--against", self.corpus, self.dataset)
        shown = self.succeeds("inspect", "--row", 0, self.dataset).stdout
        self.assertIn("The first document isn't long.", shown)
        found = self.succeeds("locate", self.dataset, "--find", "needle").stdout
        self.assertIn("needle", found)

    def test_people_read_its_file_and_how_many_ids_it_has(self) -> None:
        n_ids = f"{self.tokenizer.get_vocab_size():,} ids"
        again = self.folder / "again"
        self.succeeds("repack", "-q", "-o", again, "--seq-len", 32, self.dataset)
        shown = f"best-fit,\ntokenizer somewhere/tokenizer.json, {n_ids}\n"
        for dataset in (self.dataset, again):
            self.assertIn(shown, self.succeeds("inspect", dataset).stdout)
        packed = self.succeeds("pack", "-o", self.folder / "new", "--seq-len", 64, "--tokenizer",
                               self.file, self.corpus).stdout
        self.assertIn(shown, packed)
        deep = self.folder / ("d" * 200)
        shutil.copytree(self.file.parent, deep)
        lines = self.succeeds("inspect", self.pack_with("deep", tokenizer=deep)).stdout.split("\n")
        self.assertRegex(lines[1], rf"^tokenizer \.\.\.d+, {n_ids}$")
        self.assertLessEqual(max(map(len, lines)), 80)
        (self.dataset / "pack-log.json").unlink()  # as an older version wrote it
        shown = f"best-fit, tokenizer BPE of {n_ids}\n"
        self.assertIn(shown, self.succeeds("inspect", self.dataset).stdout)
        self.assertIsNone(json.loads(
            self.succeeds("inspect", "--json", self.dataset).stdout)["tokenizer_file"])
        result = bindery("pack", "-o", self.folder / "no", "--tokenizer", self.file,
                         "--separator-id", 9999, self.corpus)
        self.assertIn(f"is not an id of tokenizer '{self.file}'", result.stderr)

    def test_a_dataset_packed_anew_keeps_it(self) -> None:
        again = self.folder / "again"
        self.succeeds("repack", "-q", "-o", again, "--seq-len", 32, self.dataset)
        self.assertEqual((again / "tokenizer.json").read_bytes(),
                         (self.dataset / "tokenizer.json").read_bytes())
        self.succeeds("verify", again)

    def test_a_shard_alone_shows_text_where_its_tokenizer_lies_beside_it(self) -> None:
        shard = next(self.dataset.glob("*.arrow"))
        shown = self.succeeds("inspect", "--row", 0, shard).stdout
        alone = self.folder / "alone"
        alone.mkdir()
        shutil.copy(shard, alone)
        ids = self.succeeds("inspect", "--row", 0, alone / shard.name).stdout
        self.assertIn("first document", shown)
        self.assertNotIn("first document", ids)
        other = reference.trained(TEXTS, None, 300, ["<|endoftext|>"])
        other.save(str(alone / "tokenizer.json"))
        self.assertEqual(self.succeeds("inspect", "--row", 0, alone / shard.name).stdout, ids)

    def test_another_tokenizer_in_its_place_is_found(self) -> None:
        other = reference.trained(TEXTS, None, 300, ["<|endoftext|>"])
        other.save(str(self.dataset / "tokenizer.json"))
        result = bindery("verify", self.dataset)
        self.assertEqual(result.status, 1, result)
        result = bindery("locate", self.dataset, "--find", "needle")
        self.assertEqual(result.status, 2, result)
        self.assertIn("D4", result.stderr)

    def test_the_name_of_a_stored_tokenizer_is_no_tokenizer(self) -> None:
        result = bindery("tokenize", "--tokenizer", "bpe", input=b"x")
        self.assertEqual(result.status, 2, result)

    def test_a_model_generates_with_the_tokenizer_of_its_run(self) -> None:
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", self.dataset, "-o", run, "--preset", "tiny",
                      "--steps", 1, "--batch", 1)
        self.assertEqual((run / "tokenizer.json").read_bytes(),
                         (self.dataset / "tokenizer.json").read_bytes())
        shutil.rmtree(self.dataset)
        result = self.succeeds("generate", "--prompt", "The first", "--tokens", 5, run)
        self.assertTrue(result.stdout.startswith("The first"), result)
        (run / "tokenizer.json").unlink()
        result = bindery("generate", run)
        self.assertEqual(result.status, 2, result)
        self.assertIn("tokenizer.json", result.stderr)


if __name__ == "__main__":
    program.main()
