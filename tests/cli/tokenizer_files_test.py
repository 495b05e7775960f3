"""Tokenizer files mean the same here and in Hugging Face's `tokenizers`."""

import base64
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

from tokenizers import Tokenizer, normalizers

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "oracle"))
import tokenizer_shapes as shapes  # noqa: E402
from characters import characters  # noqa: E402

PROBE = str(pathlib.Path(sys.argv.pop()).resolve())
SEED = 20240520


def probe(*arguments, texts=()):
    sized = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return subprocess.run([PROBE, *arguments], input=sized, capture_output=True, check=False)


class TokenizerFiles(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return str(path)

    def answer(self, *arguments, texts=()):
        run = probe(*arguments, texts=texts)
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        return run.stdout.decode("utf-8")

    def refusal(self, document):
        run = probe("json", self.write("tokenizer.json", document))
        self.assertEqual(run.returncode, 2)
        return run.stderr.decode("utf-8")

    def ids_without_merging(self, document, texts, special_is_text=False):
        """Returns our ids and the reference's for a tokenizer without merges."""
        path = self.write("tokenizer.json", document)
        what = "added-but-special" if special_is_text else "added"
        here = self.answer(what, path, texts=[text.encode() for text in texts])
        tokenizer = Tokenizer.from_file(path)
        tokenizer.encode_special_tokens = special_is_text
        there = tokenizer.encode_batch(texts, add_special_tokens=False)
        return (
            [[int(word) for word in line.split()] for line in here.splitlines()],
            [encoding.ids for encoding in there],
        )

    def assert_same_meaning(self, left, right, rng):
        """Expects the same ids from two tokenizer.json."""
        names = [token["content"] for token in json.loads(left)["added_tokens"]]
        one, other = Tokenizer.from_str(left), Tokenizer.from_str(right)
        for _ in range(300):
            parts = [shapes.random_text(rng, rng.randint(0, 12)) for _ in range(4)]
            text = "".join(part + rng.choice([*names, ""]) for part in parts)
            self.assertEqual(
                one.encode(text, add_special_tokens=False).ids,
                other.encode(text, add_special_tokens=False).ids,
                repr(text),
            )

    def test_every_family_is_accepted_and_written_with_the_same_meaning(self):
        rng = random.Random(SEED)
        for name, document in shapes.families(SEED).items():
            with self.subTest(name):
                path = self.write(f"{name}.json", document)
                written = self.answer("json", path)
                self.assert_same_meaning(json.dumps(document), written, rng)
                again = self.write(f"{name}-again.json", written)
                self.assertEqual(self.answer("json", again), written)
                self.assertEqual(
                    self.answer("fingerprint", again), self.answer("fingerprint", path)
                )

    def test_pairs_that_never_merge_change_neither_fingerprint_nor_file(self):
        vocabulary, merges = shapes.trained(SEED + 1)
        few = self.write("few.json", shapes.document(vocabulary, merges))
        many = self.write(
            "many.json",
            shapes.document(vocabulary, shapes.all_pairs(vocabulary), ignore_merges=True),
        )
        self.assertEqual(self.answer("json", few), self.answer("json", many))
        self.assertEqual(self.answer("fingerprint", few), self.answer("fingerprint", many))

    def test_three_ways_to_write_a_vocabulary_have_one_fingerprint(self):
        vocabulary, merges = shapes.trained(SEED + 2)
        self.write("vocab.json", vocabulary)
        spaced = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
        self.write("merges.txt", "\n".join(["#version: 0.2", *spaced]) + "\n")
        byte_of = {symbol: byte for byte, symbol in enumerate(shapes.alphabet())}
        lines = [
            base64.b64encode(bytes(byte_of[symbol] for symbol in token)).decode() + f" {rank}"
            for token, rank in vocabulary.items()
        ]
        ranks = self.write("ranks.tiktoken", "\n".join(lines) + "\n")
        whole = self.write("tokenizer.json.txt", shapes.document(vocabulary, merges))
        found = {
            self.answer("fingerprint", spec)
            for spec in (str(self.folder), self.folder / "merges.txt", ranks + ":gpt2", whole)
        }
        self.assertEqual(len(found), 1)
        self.assertNotEqual(found, {self.answer("fingerprint", ranks + ":cl100k")})

    def test_added_tokens_are_found_where_hugging_face_finds_them(self):
        rng = random.Random(SEED)
        flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
        pieces = ["<x>", "<x", ">", "ab", "bc", "b", " b", "  ", "é", "e", "\u0301", "_"]
        pieces.append("\u3000")
        texts_of_all = ["<x>", "<x>b", "ab", "bc", " b", "  ", "e\u0301"]
        for case in range(120):
            tokens = rng.sample(texts_of_all, 4)
            chosen = [
                shapes.added(256 + i, text, **{flag: rng.random() < 0.3 for flag in flags})
                for i, text in enumerate(tokens)
            ]
            for token in chosen:  # otherwise the reference panics if both take the same space
                token["rstrip"] |= token["content"] == "  " and token["lstrip"]
            # A token that is also in the vocabulary keeps its id from there.
            chosen.append(shapes.added(ord("_"), "_", lstrip=rng.random() < 0.3))
            document = shapes.bytes_only(
                chosen,
                normalizer={"type": "NFC"} if case % 2 else None,
                pre_tokenizer=shapes.byte_level(prefix_space=case % 3 == 0),
            )
            texts = ["".join(rng.choices(pieces, k=rng.randint(0, 12))) for _ in range(60)]
            for special_is_text in (False, True):
                ids = self.ids_without_merging(document, texts, special_is_text)
                for text, here, there in zip(texts, *ids):
                    self.assertEqual(here, there, (text, chosen, case, special_is_text))

    def test_single_words_end_at_the_same_characters(self):
        document = shapes.bytes_only([shapes.added(256, "<x>", single_word=True)])
        every = characters()
        texts = [
            "".join(character + "<x>-" for character in every[i : i + 500])
            for i in range(0, len(every), 500)
        ]
        for text, here, there in zip(texts, *self.ids_without_merging(document, texts)):
            self.assertEqual(here, there, hex(ord(text[0])))

    def normal_forms(self, texts):
        run = probe("normal-form", texts=[text.encode() for text in texts])
        self.assertEqual((run.returncode, run.stderr), (0, b""))
        at = 0
        while at < len(run.stdout):
            (size,) = struct.unpack_from("<I", run.stdout, at)
            yield run.stdout[at + 4 : at + 4 + size].decode()
            at += 4 + size

    def test_the_normal_form_of_characters_is_hugging_faces(self):
        rng = random.Random(SEED)
        reference = normalizers.NFC()
        every = characters()
        texts = [f"a\u0323{character}\u0301" for character in every]
        marks = [
            character
            for character in every
            if reference.normalize_str(f"á{character}\u0323") != f"á{character}\u0323"
        ]
        texts += [
            rng.choice("aeo\u1100\uac00\u0391")
            + "".join(rng.choices(marks, k=rng.randint(0, 40)))
            for _ in range(5000)
        ]
        for text, here in zip(texts, self.normal_forms(texts), strict=True):
            self.assertEqual(here, reference.normalize_str(text), ascii(text))

    def test_unsupported_features_of_a_file_are_named(self):
        step = shapes.byte_level()
        for changes, words in (
            ({"truncation": {"max_length": 5}}, "'truncation' is {"),
            ({"padding": {"pad_id": 0}}, "'padding' is {"),
            ({"normalizer": {"type": "NFKC"}}, """'normalizer' is {"type":"NFKC"}"""),
            ({"pre_tokenizer": {"type": "New"}}, """'pre_tokenizer' is {"type":"New"}"""),
            ({"pre_tokenizer": shapes.sequence(step, step)}, "a step after ByteLevel"),
            (
                {"pre_tokenizer": shapes.sequence(shapes.split("a"), shapes.byte_level(True))},
                "'add_prefix_space' of 'pre_tokenizer' is true after",
            ),
            (
                {"pre_tokenizer": shapes.sequence(shapes.split("a", "Removed"), step)},
                '"behavior":"Removed"',
            ),
            ({"pre_tokenizer": shapes.split("a")}, "has no ByteLevel"),
            ({"post_processor": {"type": "New"}}, """'post_processor' is {"type":"New"}"""),
            ({"decoder": {"type": "New"}}, """'decoder' is {"type":"New"}"""),
            ({"byte_fallback": True}, "'model': 'byte_fallback' is true"),
            ({"dropout": 0.1}, "'model': 'dropout' is 0.1"),
            ({"continuing_subword_prefix": "##"}, "'continuing_subword_prefix' is \"##\""),
            ({"end_of_word_suffix": "</w>"}, "'end_of_word_suffix' is \"</w>\""),
            ({"type": "Unigram", "vocab": []}, "'model': 'type' is \"Unigram\""),
            ({"new_key": 1}, "'model': 'new_key' is 1"),
        ):
            with self.subTest(words):
                message = self.refusal(shapes.bytes_only(**changes))
                self.assertTrue(message.startswith("unsupported: cannot use"), message)
                self.assertIn(words, message)


if __name__ == "__main__":
    unittest.main()
