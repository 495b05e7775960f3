"""`bindery tokenize` gives exactly the ids of tiktoken and of Hugging Face's tokenizers.

The texts are made to break tokenizers, random strings from a fixed seed, and real text: the
sources of this project and of the Python packages that its tests use. BINDERY_TEST_LONG=1 takes a
million strings and all of the text; BINDERY_TEST_CORPUS=FILE.jsonl takes the field "text" of that
file (bench/corpus makes one) as the real text instead.
"""

import hashlib
import json
import os
import random
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402

import program  # noqa: E402
import reference_tokenizers as reference  # noqa: E402
import tokenizer_shapes as shapes  # noqa: E402
import torture_text  # noqa: E402
from program import LONG, ROOT, ProgramTest  # noqa: E402

SEED = 8
N_RANDOM = program.amount(brief=2_000, usual=8_000, long=1_000_000)
REAL_BYTES = program.amount(brief=500_000, usual=2_000_000, long=10**12)
TORTURES = program.amount(brief=7, usual=1, long=1)  # every n-th text
N_SPELLED = program.amount(brief=300, usual=1_000, long=50_000)
SHORT = 2_000  # longest text, in characters, that a slow reference gets in a short run
BATCH_CHARACTERS = 4_000_000
GOLDEN = ROOT / "tests" / "golden" / "tokenizer"
CORPUS = os.environ.get("BINDERY_TEST_CORPUS")
TEXT_FOLDERS = [ROOT / name for name in ("common", "docs", "kernels", "packer", "scripts", "tests",
                                         "trainer")] + [Path(sysconfig.get_path("purelib"))]
TEXT_ENDINGS = {".c", ".css", ".cu", ".h", ".html", ".js", ".md", ".py", ".txt"}
LARGEST_TEXT = 100_000  # size of one text in a short run, so that there are many

Encode = Callable[[list[str]], list[list[int]]]


def by_tiktoken(name: str) -> Encode:
    """Returns tiktoken's encoder with added tokens, which any text may contain."""
    encoding = reference.encoding(name)
    return lambda texts: encoding.encode_batch(texts, num_threads=1, allowed_special="all")


def by_hugging_face(tokenizer) -> Encode:
    return lambda texts: [
        found.ids for found in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ]


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch, n = [], 0
    for text in texts:
        batch.append(text)
        n += len(text)
        if n > BATCH_CHARACTERS:
            yield batch
            batch, n = [], 0
    if batch:
        yield batch


def source_texts() -> Iterator[str]:
    """Yields sources and documents, shuffled by name, so that the first ones are a mixture."""
    yield Path(reference.__file__).read_text()  # this file spells the added tokens
    files = [(path.relative_to(folder).as_posix(), path) for folder in TEXT_FOLDERS
             for path in folder.rglob("*") if path.suffix in TEXT_ENDINGS]
    for _, path in sorted(files, key=lambda file: hashlib.sha256(file[0].encode()).digest()):
        if not LONG and path.stat().st_size > LARGEST_TEXT:
            continue
        try:
            yield path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def corpus_texts(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]


def real_texts() -> Iterator[str]:
    n_bytes = 0
    for text in corpus_texts(CORPUS) if CORPUS else source_texts():
        n_bytes += len(text.encode())
        if n_bytes > REAL_BYTES:
            return
        yield text


def torture_texts() -> Iterator[str]:
    return islice(torture_text.texts(), 0, None, TORTURES)


def difference(text: str, found: list[int], expected: list[int]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b),
              min(len(found), len(expected)))
    shown = text if len(text) < 200 else f"{text[:200]}… ({len(text)} characters)"
    return f"{shown!r}: id {at} of {found[:at + 3][-8:]}, expected {expected[:at + 3][-8:]}"


class Exactness(ProgramTest):
    def encode(self, spec: str, texts: list[str], *options: str) -> list[list[int]]:
        path = self.folder / "texts.jsonl"
        with open(path, "w", encoding="ascii") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        result = self.succeeds("tokenize", "--tokenizer", spec, "--text-field", "text",
                               *options, path)
        ids = [[int(word) for word in line.split(" ")] if line else []
               for line in result.stdout.split("\n")[:-1]]
        self.assertEqual(len(ids), len(texts))
        return ids

    def compare(self, spec: str, expected: Encode, texts: Iterable[str]) -> None:
        n = 0
        for batch in batches(texts):
            for text, found, wanted in zip(batch, self.encode(spec, batch), expected(batch)):
                if found != wanted:
                    self.fail(difference(text, found, wanted))
            n += len(batch)
        self.assertGreater(n, 0)

    # ---- tiktoken --------------------------------------------------------------------------

    def test_torture_texts_have_tiktokens_ids(self) -> None:
        for name in reference.KNOWN:
            with self.subTest(name):
                texts = torture_texts()
                if name not in ("gpt2", "cl100k"):  # tiktoken fails on the patterns of the others
                    texts = (text for text in texts if len(text) < 500_000)
                self.compare(reference.spec(name), by_tiktoken(name), texts)

    def test_random_strings_have_tiktokens_ids(self) -> None:
        for name in reference.KNOWN:
            with self.subTest(name):
                self.compare(reference.spec(name), by_tiktoken(name),
                             torture_text.random_texts(SEED, N_RANDOM))

    def test_real_text_has_tiktokens_ids(self) -> None:
        for name in ("gpt2", "cl100k"):
            with self.subTest(name):
                self.compare(reference.spec(name), by_tiktoken(name), real_texts())

    def test_added_tokens_are_found_unless_they_are_ordinary(self) -> None:
        for name in ("gpt2", "cl100k"):
            encoding = reference.encoding(name)
            specials = sorted(encoding.special_tokens_set)
            texts = [text for special in specials for text in (
                special, special * 3, f"a{special}b", f" {special} ", f"it{special}'s\n",
                f"<|{special}|>", special[:-1], f"1{special}2{special[:-1]}")]
            found = self.encode(reference.spec(name), texts)
            wanted = [encoding.encode(text, allowed_special="all") for text in texts]
            self.assertEqual(found, wanted, name)
            for option in (["--ordinary"], ["--special-tokens", "text"]):
                found = self.encode(reference.spec(name), texts, *option)
                self.assertEqual(found, encoding.encode_ordinary_batch(texts), (name, option))

    # ---- Hugging Face's tokenizers ---------------------------------------------------------

    def hugging_face_texts(self) -> Iterator[str]:
        """Yields the same texts; in a short run without the longest, since this reference is
        slow."""
        yield from (t for t in torture_texts() if LONG or len(t) < SHORT)
        yield from torture_text.random_texts(SEED + 1, N_RANDOM)
        yield from real_texts() if LONG else islice(real_texts(), 150)

    def test_vocab_and_merges_have_hugging_faces_ids(self) -> None:
        self.compare(str(reference.FOLDER / "gpt2"),
                     by_hugging_face(reference.gpt2_hugging_face()), self.hugging_face_texts())

    def test_tokenizer_json_has_hugging_faces_ids(self) -> None:
        path = self.folder / "tokenizer.json"
        tokenizer = reference.cl100k_hugging_face()
        tokenizer.save(str(path))
        self.compare(str(path), by_hugging_face(tokenizer), self.hugging_face_texts())

    def test_small_models_of_every_pattern_have_hugging_faces_ids(self) -> None:
        texts = list(islice(real_texts(), 300))
        for name, pattern in SMALL_MODELS.items():
            with self.subTest(name):
                path = self.folder / f"{name}.json"
                tokenizer = reference.trained(texts, pattern, 2000, ["<|endoftext|>"])
                tokenizer.save(str(path))
                self.compare(str(path), by_hugging_face(tokenizer),
                             torture_text.random_texts(SEED + 2, N_RANDOM // 4))

    def test_special_tokens_as_text_have_hugging_faces_ids(self) -> None:
        """As split_special_tokens does in transformers, for tokenizers of every family's shape."""
        rng = random.Random(SEED)
        for name, document in shapes.families(SEED).items():
            with self.subTest(name):
                path = self.folder / f"{name}.json"
                path.write_text(json.dumps(document))
                tokenizer = tokenizers.Tokenizer.from_file(str(path))
                tokenizer.encode_special_tokens = True
                spelled = [token["content"] for token in document["added_tokens"]]
                parts = [part for text in spelled for part in (text, text, text[:-1], text[1:])]
                texts = ["".join(rng.choice([rng.choice(parts), shapes.random_text(rng, 5)])
                                 for _ in range(rng.randint(0, 8))) for _ in range(N_SPELLED)]
                found = self.encode(str(path), texts, "--special-tokens", "text")
                for text, here, there in zip(texts, found, by_hugging_face(tokenizer)(texts)):
                    if here != there:
                        self.fail(difference(text, here, there))

    # ---- Bytes that are not text -----------------------------------------------------------

    def test_any_bytes_come_back(self) -> None:
        files = []
        for number, data in enumerate(torture_text.invalid_texts(SEED)):
            files.append(self.folder / f"{number}.bin")
            files[-1].write_bytes(data)
        for name in reference.KNOWN:
            spec = reference.spec(name)
            ids = self.succeeds("tokenize", "--tokenizer", spec, *files)
            (self.folder / "ids").write_text(ids.stdout)
            decoded = self.folder / "decoded"
            with open(decoded, "wb") as out:
                self.succeeds("tokenize", "--tokenizer", spec, "--decode", self.folder / "ids",
                              stdout=out)
            expected = b"".join(file.read_bytes() for file in files)
            self.assertEqual(decoded.read_bytes(), expected, name)

    def test_bytes_that_are_no_text_do_not_change_what_is_around_them(self) -> None:
        """An invalid byte is a character of its own: no letter, no number and no white space."""
        spec = reference.spec("cl100k")
        for bad in (b"\xff", b"\xc3", b"\xe2\x82"):
            path = self.folder / "mixed.bin"
            path.write_bytes(b"first words" + bad + b" last words")
            found = self.succeeds("tokenize", "--tokenizer", spec, path).stdout.split()
            first, last = self.encode(spec, ["first words", " last words"])
            self.assertEqual([int(i) for i in found[: len(first)]], first)
            self.assertEqual([int(i) for i in found[-len(last):]], last)

    # ---- Files with the same meaning -------------------------------------------------------

    def test_files_of_one_vocabulary_have_one_fingerprint(self) -> None:
        path = self.folder / "tokenizer.json"
        reference.gpt2_hugging_face().save(str(path))
        corpus = self.folder / "corpus.txt"
        corpus.write_text("one document")
        found = {}
        for spec in [str(path), str(reference.FOLDER / "gpt2"), reference.spec("gpt2")]:
            arguments = ["--tokenizer", spec, "--separator-id", 50256]
            dataset = self.pack(self.folder / f"dataset{len(found)}", [corpus], *arguments)
            found[spec] = json.loads((dataset / "manifest.json").read_text())["packing"]
        self.assertEqual({packing["tokenizer"]["name"] for packing in found.values()}, {"bpe"})
        fingerprints = {packing["tokenizer"]["fingerprint"] for packing in found.values()}
        self.assertEqual(len(fingerprints), 1, found)

    # ---- Ids of golden files ---------------------------------------------------------------

    def test_golden_ids_stay(self) -> None:
        for path in sorted(GOLDEN.glob("*.json")):
            golden = json.loads(path.read_text())
            with self.subTest(path.stem):
                if "tokenizer" in golden:  # a small model, stored here itself
                    spec = self.folder / f"{path.stem}.json"
                    spec.write_text(json.dumps(golden["tokenizer"]))
                else:
                    spec = reference.spec(path.stem)
                texts = [case["text"] for case in golden["cases"]]
                self.assertEqual(self.encode(str(spec), texts),
                                 [case["ids"] for case in golden["cases"]])


SMALL_MODELS = {
    "gpt2": None,
    "llama3": reference.LLAMA3,
    "qwen2": reference.QWEN2,
    "o200k": reference.O200K,
    "other": r"[a-z]+|[A-Z][a-z]*|\s|[^a-zA-Z\s]{1,4}",
}


def write_golden() -> None:
    """BINDERY_GOLDEN=write: makes the golden files again, by the references alone."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in reference.KNOWN:
        write_cases(name, by_tiktoken(name), {})
    texts = [(ROOT / "LICENSE").read_text(), *GOLDEN_TEXTS]
    for name, pattern in SMALL_MODELS.items():
        tokenizer = reference.trained(texts, pattern, 400, ["<|endoftext|>"])
        write_cases(f"small-{name}", by_hugging_face(tokenizer),
                    {"tokenizer": reference.canonical(tokenizer)})


GOLDEN_TEXTS = [
    "",
    "Bindery binds documents into training sequences.",
    "It's 2026; they'RE sure: 1234567 isn't 12,345.67!",
    "  two spaces,\n\n\tand   three \r\n end  ",
    "Straße, naïve, Ελλάδα, Москва, 日本語の文書, 한국어, עברית, العربية",
    "e\u0301 x\u0327 👩\u200d👩\u200d👧 🇩🇪 ½ Ⅳ ٣",
    "for (int i = 0; i < n; i++) { total += values[i] * 0x1F; }  // HTTPServer's",
]


def write_cases(name: str, encode: Encode, more: dict) -> None:
    encoded = zip(GOLDEN_TEXTS, encode(GOLDEN_TEXTS))
    cases = [{"text": text, "ids": ids} for text, ids in encoded]
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    extra = f',\n "tokenizer": {json.dumps(more["tokenizer"])}' if more else ""
    (GOLDEN / f"{name}.json").write_text(f'{{"cases": [\n{lines}\n ]{extra}}}\n')


if __name__ == "__main__":
    if os.environ.get("BINDERY_GOLDEN") == "write":
        write_golden()
    elif not (reference.FOLDER / "stamp").exists():
        print("skipped: no vocabularies (scripts/setup --test fetches them)")
        raise SystemExit(77)
    else:
        program.main()
