"""Texts that say which tokens are trained: chats, prompts with completions, and segments. Ids and
masks are those of a second implementation (tests/oracle/chat_renderer.py) and of transformers,
whatever holds the records.

    python tests/cli/chat_test.py PROGRAM PYTHON

PYTHON is the one that has transformers; without it, that comparison is skipped.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers
import xxhash

import program
import chat_renderer as renderer
import reference_tokenizers as reference
from program import ROOT, amount, bindery
from refusals import Refusals
from schemas import validate

SEED = 20261118
FORMATS = list(renderer.RENDERERS)
WORDS = ["the", "Fox", "isn't", "42", "naïve", "世界", "🧵", "a\u0301", "tabs\t", "\n", "\n\n", " ",
         "  ", "\u00a0", "\u3000", "<tool_call>", "</tool_response>", '"quoted"', "back\\slash",
         "\u0001", "über", "1234567", "\u2028", "{}", "User:", "assistant"]  # fmt: skip
OPTIONS = ["--seq-len", 4096, "--messages-field", "messages"]
LICENSE = (ROOT / "LICENSE").read_text()

Document = tuple[list[int], list[int]]  # ids, and which of them are trained


@cache
def tokenizer_text(name: str, is_real: bool = False) -> str:
    """A byte-level BPE with the special tokens of the format, and two added ones that are not: a
    small one, or that of cl100k."""
    tokens = renderer.TOKENS[name]
    if is_real:
        tokenizer = tokenizers.Tokenizer.from_str(reference.cl100k_hugging_face().to_str())
        tokenizer.add_special_tokens(tokens)
    else:
        texts = [LICENSE, " ".join(WORDS) * 9]
        tokenizer = reference.trained(texts, reference.LLAMA3, 700, tokens)
    tokenizer.add_tokens([tokenizers.AddedToken(text, special=False, normalized=False)
                          for text in ("<tool_call>", "</tool_call>")])
    return tokenizer.to_str()


@cache
def tokenizer_of(name: str, is_real: bool = False) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(tokenizer_text(name, is_real))


def random_content(rng: random.Random, name: str) -> str:
    """Words, white space around them, and what spells a special token."""
    words = [*WORDS, *renderer.TOKENS[name], renderer.TOKENS[name][0][:-1]]
    joined = rng.choice([" ", ""]).join(rng.choice(words) for _ in range(rng.randint(0, 12)))
    return rng.choice(["", "", " ", "\n"]) + joined


def random_calls(rng: random.Random) -> list[dict]:
    values = [1, -7, 2.5, 1e16, 1e-7, 0.1, 1e22, 123456789012345680.0, True, None, "x\n\"é", [1, [2]],
              {"deep": {"er": []}}, 2**63, -(2**63), 3.0, 5e-324, -0.0]  # fmt: skip
    calls = []
    for _ in range(rng.randint(1, 3)):
        arguments = {f"key {i} ü": rng.choice(values) for i in range(rng.randint(0, 4))}
        given = arguments if rng.random() < 0.7 else json.dumps(arguments)
        call = {"name": rng.choice(["f", 'g"']), "arguments": given}
        calls.append(call if rng.random() < 0.3 else {"type": "function", "function": call})
    return calls


def random_chat(rng: random.Random, name: str, with_calls: bool = True) -> list[dict]:
    """A conversation that begins as all formats allow: system (perhaps), user."""
    others = [role for role in renderer.FORMATS[name] if role != "system"]
    roles = ["system"] if rng.random() < 0.4 else []
    roles += ["user", *(rng.choice(others) for _ in range(rng.choice([0, 1, 1, 2, 5, 12])))]
    chat = []
    for role in roles:
        message = {"role": role, "content": random_content(rng, name)}
        if role == "assistant" and with_calls and "tool" in others and name != "plain":
            if rng.random() < 0.3:
                message["tool_calls"] = random_calls(rng)
                message["content"] = rng.choice([message["content"], None, ""])
        if rng.random() < 0.05:
            message["train"] = rng.random() < 0.5
        if rng.random() < 0.2:
            message |= {"name": "ignored", "reasoning_content": None, "id": 7}
        chat.append(message)
    return chat


def read_documents(dataset: Path) -> dict[int, Document]:
    """Returns the documents by position, put together from their pieces."""
    found: dict[int, Document] = {}
    pieces = []
    for shard in sorted(dataset.glob("*.arrow")):
        for row in pa.ipc.open_file(shard).read_all().to_pylist():
            bounds = zip(row["documents"], row["cu_seqlens"], row["cu_seqlens"][1:])
            for document, begin, end in bounds:
                pieces.append((document["position"], document["offset"],
                               row["input_ids"][begin:end], row["loss_mask"][begin:end]))
    for position, offset, ids, mask in sorted(pieces):
        document = found.setdefault(position, ([], []))
        repeated = len(document[0]) - offset  # the context of a piece after the first
        document[0].extend(ids[repeated:])
        document[1].extend(map(int, mask[repeated:]))
    return found


class ChatTest(Refusals):
    """What the tests of this file share."""

    has_real_vocabulary = False

    def setUp(self) -> None:
        super().setUp()
        self.rng = random.Random(SEED)

    def tokenizer(self, name: str) -> Path:
        path = self.folder / f"{name}-tokenizer.json"
        path.write_text(tokenizer_text(name, self.has_real_vocabulary))
        return path

    def arguments(self, name: str, *others: object) -> list:
        return [*OPTIONS, "--chat-format", name, "--tokenizer", self.tokenizer(name),
                "--separator-token", renderer.TOKENS[name][1], *others]

    def write_lines(self, file: str, records: list[dict]) -> Path:
        path = self.folder / file
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return path

    def packed(self, corpus: Path, *arguments: object) -> list[Document]:
        """Packs, lets `verify --against` compare, and returns the documents in order."""
        dataset = self.folder / "dataset"
        shutil.rmtree(dataset, ignore_errors=True)
        self.pack(dataset, [corpus], *arguments)
        self.succeeds("verify", "-q", dataset, "--against", corpus)
        return [document for _, document in sorted(read_documents(dataset).items())]

    def expected(self, name: str, chat: list[dict], roles=("assistant",), turn_end="all") -> Document:
        """The document of a chat, with its separator."""
        tokenizer = tokenizer_of(name, self.has_real_vocabulary)
        pieces = renderer.render(name, chat, roles, turn_end)
        separator = renderer.TOKENS[name][1]
        ids, mask = renderer.tokens(tokenizer, pieces)
        if pieces[-1] not in (renderer.Piece(separator, True, yes) for yes in (False, True)):
            ids.append(tokenizer.token_to_id(separator))
            mask.append(int(renderer.separator_is_trained(name, chat, roles, turn_end)))
        return ids, [0, *mask[1:]]

    def assert_same(self, found: list[Document], expected: list[Document]) -> None:
        """Names the first token that differs (a comparison of whole lists would take minutes)."""
        for i, (one, other) in enumerate(zip(found, expected)):
            for t, (a, b) in enumerate(zip(zip(*one), zip(*other))):
                self.assertEqual(a, b, f"(id, trained) of token {t} of document {i}")
            self.assertEqual(len(one[0]), len(other[0]), f"tokens of document {i}")
        self.assertEqual(len(found), len(expected))

    def trained_only(self, documents: list[Document]) -> list[Document]:
        """Without the documents that `untrained` counts."""
        return [document for document in documents if any(document[1])]


class Chats(ChatTest):
    def test_ids_and_masks_are_those_of_an_independent_renderer(self) -> None:
        n = amount(brief=40, usual=150, long=3000)
        for name in FORMATS:
            with self.subTest(format=name):
                chats = [random_chat(self.rng, name) for _ in range(n)]
                corpus = self.write_lines("chats.jsonl", [{"messages": chat} for chat in chats])
                expected = self.trained_only([self.expected(name, chat) for chat in chats])
                self.assertGreater(len(expected), n // 3)
                self.assert_same(self.packed(corpus, *self.arguments(name)), expected)

    def test_roles_and_ends_of_turns_are_trained_as_asked(self) -> None:
        for name in FORMATS:
            for roles in [("assistant",), ("user",), ("user", "assistant")]:
                for turn_end in ("all", "last", "none"):
                    with self.subTest(format=name, roles=roles, turn_end=turn_end):
                        chats = [random_chat(self.rng, name) for _ in range(12)]
                        corpus = self.write_lines("c.jsonl", [{"messages": chat} for chat in chats])
                        expected = [self.expected(name, chat, roles, turn_end) for chat in chats]
                        found = self.packed(corpus, *self.arguments(name), "--train-roles",
                                            ",".join(roles), "--train-turn-end", turn_end)
                        self.assert_same(found, self.trained_only(expected))

    def test_every_form_of_a_file_gives_the_same_documents(self) -> None:
        for name in FORMATS:
            with self.subTest(format=name):
                chats = [random_chat(self.rng, name) for _ in range(30)]
                for chat in chats:
                    for message in chat:  # a struct has the same members in every row
                        calls = message.get("tool_calls")
                        for call in calls or []:
                            function = call.get("function", call)
                            if not isinstance(function["arguments"], str):
                                function["arguments"] = json.dumps(function["arguments"])
                lines = self.write_lines("chats.jsonl", [{"a": {"b": chat}} for chat in chats])
                array = self.folder / "chats.json"
                array.write_text(json.dumps([{"a": {"b": chat}} for chat in chats], indent=1))
                files = [lines, array, *self.tables(chats)]
                arguments = self.arguments(name)
                arguments[arguments.index("messages")] = "a.b"
                expected = self.trained_only([self.expected(name, chat) for chat in chats])
                for file in files:
                    with self.subTest(file=file.name):
                        self.assert_same(self.packed(file, *arguments), expected)

    def tables(self, chats: list[list[dict]]) -> list[Path]:
        function = pa.struct([("name", pa.string()), ("arguments", pa.large_string())])
        call = pa.struct([("type", pa.string()), ("function", function), ("name", pa.string()),
                          ("arguments", pa.large_string())])
        message = pa.struct([("when", pa.timestamp("us")), ("content", pa.string()),
                             ("role", pa.string()), ("tool_calls", pa.list_(call)),
                             ("train", pa.bool_()), ("weight", pa.float64())])
        paths = []
        for kind in (pa.list_(message), pa.large_list(message)):
            column = pa.array([{"b": chat, "c": i} for i, chat in enumerate(chats)],
                              pa.struct([("c", pa.int64()), ("b", kind)]))
            # Slices begin inside the buffers.
            table = pa.table({"before": list(range(len(chats))), "a": column})
            table = pa.concat_tables([table.slice(0, 7), table.slice(7)])
            path = self.folder / f"{len(paths)}.parquet"
            pq.write_table(table, path, row_group_size=11)
            paths.append(path)
            for maker, ending in [(pa.ipc.new_file, "arrow"), (pa.ipc.new_stream, "arrows")]:
                path = self.folder / f"{len(paths)}.{ending}"
                with maker(path, table.schema) as writer:
                    writer.write_table(table, max_chunksize=9)
                paths.append(path)
        return paths

    def test_split_conversations_keep_their_masks(self) -> None:
        for name in ("chatml", "plain"):
            chats = [random_chat(self.rng, name) for _ in range(40)]
            corpus = self.write_lines("chats.jsonl", [{"messages": chat} for chat in chats])
            expected = self.trained_only([self.expected(name, chat) for chat in chats])
            arguments = self.arguments(name, "--long", "split", "--unit-size", "4K")
            arguments[arguments.index(4096)] = 37
            self.assert_same(self.packed(corpus, *arguments), expected)

    def test_long_conversations_are_dropped_unless_asked_otherwise(self) -> None:
        corpus = self.write_lines("c.jsonl", [{"messages": [
            {"role": "user", "content": text}, {"role": "assistant", "content": "y"}]}
            for text in ("x", "x" * 100)])  # fmt: skip
        arguments = ["--seq-len", 32, "--messages-field", "messages", "--chat-format", "plain"]
        self.assertEqual(len(self.packed(corpus, *arguments)), 1)
        figures = json.loads((self.folder / "dataset" / "manifest.json").read_text())["totals"]
        self.assertEqual(figures["dropped_documents"], 1)
        said = self.succeeds("pack", "-o", self.folder / "other", *arguments, corpus).stderr
        self.assertIn("chats longer than a row were dropped: 1 (--long truncate", said)
        self.assertEqual(len(self.packed(corpus, *arguments, "--long", "split")), 2)

    def test_a_conversation_has_one_bos_and_one_separator(self) -> None:
        chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        corpus = self.write_lines("c.jsonl", [{"messages": chat}])
        tokenizer = tokenizers.Tokenizer.from_str(tokenizer_text("mistral"))
        bos = tokenizer.token_to_id("<s>")
        [(ids, mask)] = self.packed(corpus, *self.arguments("mistral", "--bos", bos))
        names = [tokenizer.id_to_token(i) for i in ids]
        self.assertEqual(names, ["<s>", "[INST]", "a", "[/INST]", "b", "</s>"])
        self.assertEqual(mask, [0, 0, 0, 0, 1, 1])

    def test_a_holdout_divides_by_what_is_said(self) -> None:
        chats = [random_chat(self.rng, "chatml") for _ in range(60)]
        corpus = self.write_lines("chats.jsonl", [{"messages": chat, "id": i}
                                                  for i, chat in enumerate(chats)])
        dataset = self.pack(self.folder / "divided", [corpus], *self.arguments("chatml"),
                            "--holdout", "40%")
        expected = []
        for chat in chats:
            said = b"".join(
                text.encode() + b"\0" for message in chat
                for text in (message["role"], message["content"] or "", *renderer.calls_of(message)))
            share = xxhash.xxh3_64_intdigest(said) * 1_000_000 >> 64
            document = self.expected("chatml", chat)
            if share < 400_000 and any(document[1]):
                expected.append(document)
        found = read_documents(dataset / "holdout")
        self.assert_same([document for _, document in sorted(found.items())], expected)
        self.assertGreater(len(expected), 5)
        self.succeeds("verify", "-q", dataset / "holdout", "--against", corpus)

    def test_a_description_of_ones_own_is_used_and_kept(self) -> None:
        file = self.folder / "own.json"
        own = json.loads((ROOT / "common" / "chat" / "formats" / "plain.json").read_text())
        own["roles"]["assistant"]["before"] = [{"text": "A> "}]
        own["default_system"] = "ö"
        file.write_text(json.dumps(own))
        corpus = self.write_lines("c.jsonl", [{"messages": [
            {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}])
        arguments = ["--messages-field", "messages", "--chat-format"]
        [(ids, mask)] = self.packed(corpus, *arguments, file)
        text = "System:\nö\n\nUser:\nx\n\nA> y\n\n".encode()
        self.assertEqual(bytes(ids[:-1]), text)
        self.assertEqual(mask, [0] * (len(text) - 3) + [1] * 4)
        dataset = self.folder / "dataset"
        own["default_system"] = "u"
        file.write_text(json.dumps(own))
        self.succeeds("verify", "-q", dataset, "--against", corpus)  # by the plan's own copy
        self.assert_refusal(bindery("pack", "-q", "-o", dataset, *arguments, file, corpus),
                            "chat.format.default_system")

    def test_the_built_in_formats_follow_the_schema(self) -> None:
        files = sorted((ROOT / "common" / "chat" / "formats").glob("*.json"))
        self.assertEqual(sorted(path.stem for path in files), sorted(FORMATS))
        for path in files:
            description = json.loads(path.read_text())
            validate(description, "chat-format")
            self.assertEqual(description["name"], path.stem)

    def test_plans_follow_the_schema(self) -> None:
        corpus = self.write_lines("c.jsonl", [{
            "messages": [{"role": "assistant", "content": "a"}], "prompt": "a", "completion": "b"}])
        for options in (["--messages-field", "messages", "--chat-format", "plain"],
                        ["--prompt-field", "prompt", "--completion-field", "completion"]):
            self.packed(corpus, *options)
            plan = json.loads((self.folder / "dataset" / "plan.json").read_text())
            validate(plan, "plan")

    def test_same_bytes_for_any_number_of_threads(self) -> None:
        chats = [random_chat(self.rng, "llama3") for _ in range(200)]
        corpus = self.write_lines("chats.jsonl", [{"messages": chat} for chat in chats])
        shards = []
        for n in (1, 3):
            dataset = self.pack(self.folder / f"by{n}", [corpus], *self.arguments("llama3"),
                                "--threads", n, "--unit-size", "9K")
            shards.append({path.name: path.read_bytes() for path in dataset.glob("*.arrow")})
        self.assertGreater(len(shards[0]), 2)
        self.assertEqual(*shards)

    def test_locate_finds_the_record_of_a_token(self) -> None:
        chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "needle"}]
        corpus = self.write_lines("c.jsonl", [{"messages": chat}] * 2)
        self.packed(corpus, "--messages-field", "messages", "--chat-format", "plain")
        found = self.succeeds("locate", self.folder / "dataset", "--corpus", corpus, "0:40")
        self.assertIn("needle", found.stdout)

    def test_plan_counts_the_documents_that_pack_has(self) -> None:
        chats = [random_chat(self.rng, "chatml") for _ in range(50)]
        corpus = self.write_lines("chats.jsonl", [{"messages": chat} for chat in chats])
        documents = self.packed(corpus, *self.arguments("chatml"))
        arguments = self.arguments("chatml", "--json")
        planned = json.loads(self.succeeds("plan", *arguments, corpus).stdout)
        validate(planned, "estimate")
        self.assertEqual(planned["targets"], sum(sum(mask) for _, mask in documents))
        self.assertEqual(planned["estimates"][-1]["documents"], len(documents))


class RealVocabulary(ChatTest):
    has_real_vocabulary = True

    def test_ids_and_masks_are_those_of_an_independent_renderer(self) -> None:
        for name in ("chatml", "llama3", "mistral-v3"):
            with self.subTest(format=name):
                chats = [random_chat(self.rng, name) for _ in range(60)]
                corpus = self.write_lines("chats.jsonl", [{"messages": chat} for chat in chats])
                expected = self.trained_only([self.expected(name, chat) for chat in chats])
                self.assert_same(self.packed(corpus, *self.arguments(name)), expected)


class Transformers(ChatTest):
    def setUp(self) -> None:
        super().setUp()
        if not os.path.exists(os.environ.get("BINDERY_TRANSFORMERS", "")):
            self.skipTest("no transformers (scripts/setup --test has it on Debian)")

    def test_ids_and_masks_are_those_of_apply_chat_template(self) -> None:
        n = amount(brief=20, usual=60, long=1000)
        for name in FORMATS:
            with self.subTest(format=name):
                chats = [self.comparable(random_chat(self.rng, name, False), name) for _ in range(n)]
                corpus = self.write_lines("chats.jsonl", [{"messages": chat} for chat in chats])
                expected = self.trained_only(self.rendered(name, chats))
                self.assertGreater(len(expected), n // 4)
                self.assert_same(self.packed(corpus, *self.arguments(name)), expected)

    def comparable(self, chat: list[dict], name: str) -> list[dict]:
        """Takes away what transformers does otherwise: content that spells a special token becomes
        one there, and a token may span the border before a message of the assistant."""
        for message in chat:
            for token in (*renderer.TOKENS[name], "<|", "|>"):
                message["content"] = message["content"].replace(token, "")
            message.pop("train", None)
            if message["role"] == "assistant":
                message["content"] = "So" + message["content"].lstrip()
            if message["role"] in ("tool", "ipython"):
                message["role"] = "user"
        return chat

    def rendered(self, name: str, chats: list[list[dict]]) -> list[Document]:
        tokenizer = tokenizers.Tokenizer.from_str(tokenizer_text(name))
        separator = tokenizer.token_to_id(renderer.TOKENS[name][1])
        script = ROOT / "tests" / "oracle" / "chat_templates.py"
        run = subprocess.run(
            [os.environ["BINDERY_TRANSFORMERS"], script, self.tokenizer(name)],
            input=json.dumps({name: chats}), text=True, capture_output=True, timeout=600, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        documents = []
        for (ids, mask), chat in zip(json.loads(run.stdout)[name], chats, strict=True):
            if ids[-1] != separator:
                ids.append(separator)
                mask.append(int(renderer.separator_is_trained(name, chat, ("assistant",), "all")))
            documents.append((ids, [0, *mask[1:]]))
        return documents


class Completions(ChatTest):
    def test_prompts_and_completions_follow_trls_rule(self) -> None:
        """TRL tokenises the prompt, and the prompt with the completion; what the first does not have
        is trained. Where a token of the whole spans the border, TRL warns, and we cut there."""
        file = self.tokenizer("chatml")
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
        tokenizer.encode_special_tokens = True
        end = tokenizer.token_to_id("<|endoftext|>")
        records, expected, n_compared = [], [], 0
        for _ in range(amount(brief=100, usual=400, long=5000)):
            prompt, completion = (random_content(self.rng, "chatml") for _ in range(2))
            records.append({"src": prompt, "deep": {"tgt": completion}})
            before = tokenizer.encode(prompt).ids
            whole = tokenizer.encode(prompt + completion).ids
            after = tokenizer.encode(completion).ids
            if whole == before + after:
                n_compared += 1
            mask = [0] * len(before) + [1] * (len(after) + 1)
            expected.append((before + after + [end], [0, *mask[1:]]))
        self.assertGreater(n_compared, len(records) // 4)
        lines = self.write_lines("pairs.jsonl", records)
        table = self.folder / "pairs.parquet"
        pq.write_table(pa.Table.from_pylist(records), table, row_group_size=30)
        for file_of_pairs in (lines, table):
            found = self.packed(file_of_pairs, "--seq-len", 4096, "--tokenizer", file,
                                "--prompt-field", "src", "--completion-field", "deep.tgt")
            self.assert_same(found, self.trained_only(expected))

    def test_segments_are_trained_as_they_say(self) -> None:
        file = self.tokenizer("chatml")
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
        records, expected = [], []
        for _ in range(amount(brief=60, usual=200, long=3000)):
            pieces = [renderer.Piece(random_content(self.rng, "chatml"), False, self.rng.random() < 0.5)
                      if self.rng.random() < 0.8 else
                      renderer.Piece("<|im_end|>", True, self.rng.random() < 0.5)
                      for _ in range(self.rng.randint(1, 6))]
            records.append({"parts": [{"token" if piece.is_token else "text": piece.text,
                                       "train": piece.trained} for piece in pieces]})
            ids, mask = renderer.tokens(tokenizer, [piece for piece in pieces if piece.text])
            ids.append(tokenizer.token_to_id("<|endoftext|>"))
            mask.append(int(pieces[-1].trained))
            expected.append((ids, [0, *mask[1:]]))
        lines = self.write_lines("parts.jsonl", records)
        table = self.folder / "parts.parquet"
        kind = pa.list_(pa.struct([("text", pa.string()), ("token", pa.string()), ("train", pa.bool_())]))
        pq.write_table(pa.table({"parts": pa.array([record["parts"] for record in records], kind)}), table)
        for file_of_parts in (lines, table):
            found = self.packed(file_of_parts, "--seq-len", 4096, "--tokenizer", file,
                                "--segments-field", "parts")
            self.assert_same(found, self.trained_only(expected))


class BadChats(ChatTest):
    PLAIN = ("--messages-field", "messages", "--chat-format", "plain")

    def assert_record_refused(self, record: object, said: str, *options: object) -> None:
        good = {"messages": [{"role": "user", "content": "a"}], "prompt": "a", "completion": "b",
                "parts": [{"text": "a", "train": True}]}
        corpus = self.write_lines("bad.jsonl", [good, record])
        place = len(json.dumps(good)) + 1
        result = self.assert_pack_refused([corpus], options=options or self.PLAIN)
        self.assertEqual(result.stderr, f"bindery pack: '{corpus}', line 2 (byte {place}): {said}\n")

    def test_a_bad_record_is_named_with_its_place_and_reason(self) -> None:
        turn = {"role": "user", "content": "a"}
        for messages, said in [
            (None, "the field 'messages' is not a list"),
            ([], "the field 'messages' is an empty list"),
            ([turn, 7], "messages[1] is not an object"),
            ([{"content": "a"}], "'role' of messages[0] is missing or null"),
            ([turn, {"role": "user"}], "'content' of messages[1] is missing or null"),
            ([{"role": "user", "content": None}], "'content' of messages[0] is missing or null"),
            ([{"role": "user", "content": ["a"]}],
             "'content' of messages[0] is not a string: join its parts into one text"),
            ([{"role": "critic", "content": "a"}],
             "message 0 has the role 'critic'; chat format 'plain' has system, user, assistant, tool"),
            ([{**turn, "reasoning_content": "hm"}],
             "'reasoning_content' of messages[0] would be lost: put it into the content, or remove it"),
            ([{**turn, "train": 1}], "'train' of messages[0] is neither true nor false"),
            ([{**turn, "weight": 0.5}], "'weight' of messages[0] is neither 0 nor 1"),
            ([{**turn, "weight": 1, "train": False}], "'weight' of messages[0] contradicts 'train'"),
            ([{**turn, "tool_calls": "f()"}], "'tool_calls' of messages[0] is not a list"),
            ([{**turn, "tool_calls": [{"name": "f"}]}],
             "'tool_calls' of messages[0] has a call without a name or arguments"),
            ([{**turn, "tool_calls": [{"name": "f", "arguments": {}}]}],
             "message 0 has tool calls, and chat format 'plain' does not say how they are written: "
             "put them into the content, or give a format with 'tool_calls'"),
        ]:  # fmt: skip
            with self.subTest(messages=messages):
                self.assert_record_refused({"messages": messages}, said)
        self.assert_record_refused({"chat": []}, "no field 'messages'")

    def test_a_record_of_another_form_names_the_option_that_reads_it(self) -> None:
        """And that option reads it."""
        chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        pair = {"prompt": "a", "completion": "b"}
        for record, said, option in [
            ({"messages": chat}, "'messages' is read by pack ", "--chat-format"),
            ({"messages": chat, **pair}, "'messages' is read by pack ", "--chat-format"),
            (pair, "'prompt' and 'completion' are read by pack ",
             "--prompt-field prompt --completion-field completion"),
            ({"prompt": "a"}, "", ""),
            ({"text": ["messages"]}, "", ""),
        ]:  # fmt: skip
            with self.subTest(record=record):
                corpus = self.write_lines("other.jsonl", [record])
                result = self.assert_pack_refused([corpus])
                missing = "the field 'text' is not a string" if "text" in record else "no field 'text'"
                hint = f"; {said}{option}" if said else ""
                self.assertEqual(result.stderr.split("(byte 0): ")[1], f"{missing}{hint}\n")
                if said:
                    value = ["plain"] if option == "--chat-format" else []
                    self.assertEqual(len(self.packed(corpus, *option.split(), *value)), 1)

    def test_a_chat_is_in_the_field_messages_unless_said_otherwise(self) -> None:
        chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
        corpus = self.write_lines("c.jsonl", [{"messages": chat, "m": chat[1:]}])
        named = self.packed(corpus, *self.PLAIN)
        self.assertEqual(self.packed(corpus, "--chat-format", "plain"), named)
        other = self.packed(corpus, "--chat-format", "plain", "--messages-field", "m")
        self.assertNotEqual(other, named)

    def test_a_key_that_occurs_twice_is_refused(self) -> None:
        corpus = self.write("twice.jsonl", b'{"messages": [{"role": "user", "role": "tool"}]}\n')
        self.assert_pack_refused([corpus], r"'role' occurs twice in messages\[0\]", options=self.PLAIN)

    def test_bad_pairs_and_segments_are_refused(self) -> None:
        pair = ("--prompt-field", "prompt", "--completion-field", "completion")
        parts = ("--segments-field", "parts")
        self.assert_record_refused({"prompt": "a"}, "no field 'completion'", *pair)
        self.assert_record_refused({"prompt": None, "completion": "b"},
                                   "the field 'prompt' is not a string", *pair)
        for segments, said in [
            ([{"text": "a"}], "'train' of parts[0] is missing or null"),
            ([{"train": True}], "parts[0] has neither a text nor a token"),
            ([{"text": "a", "token": "b", "train": True}], "parts[0] has both a text and a token"),
            ([{"token": "<nothing>", "train": True}], "the tokenizer has no token '<nothing>'"),
        ]:
            self.assert_record_refused({"parts": segments}, said, *parts)

    def test_a_system_message_must_have_a_place(self) -> None:
        arguments = self.arguments("gemma")
        for roles, said in [
            (["user", "system"],
             "message 1 is a system message, which chat format 'gemma' has only at the beginning"),
            (["system", "assistant"],
             "chat format 'gemma' puts the system message into a user's turn, and there is none"),
        ]:  # fmt: skip
            corpus = self.write_lines("s.jsonl", [{"messages": [{"role": role, "content": "a"}
                                                                for role in roles]}])
            result = self.assert_pack_refused([corpus], options=tuple(arguments))
            self.assertIn(said, result.stderr)

    def test_bad_records_can_be_skipped_and_are_counted(self) -> None:
        good = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
        bad = [{"messages": [{"role": "critic", "content": "a"}]}, {"messages": []}, {}]
        corpus = self.write_lines("some.jsonl", [good, *bad, good])
        dataset = self.pack(self.folder / "some", [corpus], *self.PLAIN, "--bad-records", "skip",
                            "--max-bad", "90%")
        self.assertEqual(len(read_documents(dataset)), 2)
        totals = json.loads((dataset / "manifest.json").read_text())["totals"]
        self.assertEqual(totals["bad_missing_text"], len(bad))
        self.succeeds("verify", "-q", dataset, "--against", corpus)

    def test_options_that_contradict_each_other_are_refused(self) -> None:
        corpus = self.write_lines("c.jsonl", [{"messages": []}])
        for options, said in [
            (["--messages-field", "m"], "--messages-field needs --chat-format"),
            (["--chat-format", "plain", "--segments-field", "s"], "either --prompt-field and"),
            (["--chat-format", "plain", "--text-field", "t"], "--text-field is for records of one"),
            (["--train-turn-end", "all"], "go with --chat-format"),
            (["--train-roles", "user"], "go with --chat-format"),
            (["--prompt-field", "p"], "--prompt-field and --completion-field go together"),
            (["--segments-field", "s", *self.PLAIN], "either --prompt-field and"),
            ([*self.PLAIN, "--train-roles", "user,bot"],
             "chat format 'plain' has no role 'bot'; it has system, user, assistant, tool"),
            ([*self.PLAIN, "--text-field", "text"], "--text-field is for records of one text"),
            ([*self.PLAIN, "--source", f"a={corpus},text-field=b"], "text-field is for records of"),
            ([*self.PLAIN, "--special-tokens", "token"], "come from its format alone"),
            (["--messages-field", "m", "--chat-format", "vicuna"],
             "no chat format 'vicuna': it is neither built in .*--segments-field"),
            (["--messages-field", "m", "--chat-format", "chatml"],
             r"chat format 'chatml' needs the special token '<\|im_start\|>', which tokenizer "
             "'bytes' does not have"),
        ]:  # fmt: skip
            with self.subTest(options=options):
                self.assert_pack_refused([corpus], said, options=tuple(options))

    def test_inputs_without_fields_are_refused(self) -> None:
        for name, kind in [("a.txt", "text"), ("a.csv", "csv")]:
            path = self.write(name, b"messages,b\n1,2\n")
            self.assert_pack_refused([path], f"is {kind}, which has no field 'messages'",
                                     options=self.PLAIN)

    def test_a_description_that_says_nothing_clear_is_refused(self) -> None:
        corpus = self.write_lines("c.jsonl", [{"messages": []}])
        good = json.loads((ROOT / "common" / "chat" / "formats" / "gemma.json").read_text())
        for change, said in [
            ({"chat_format": 2}, "'chat_format'"),
            ({"begins": []}, "unknown key 'begins'"),
            ({"roles": {}}, "'roles' is empty"),
            ({"train": ["model"]}, "'train' names the role 'model', which is not there"),
            ({"train": []}, "'train' names no role"),
            ({"begin": [{"text": ""}]}, r"'begin\[0\]': a piece is empty"),
            ({"begin": [{"text": "a", "token": "b"}]}, r"'begin\[0\]': a piece has a text or a token"),
            ({"begin": [{}]}, r"'begin\[0\]': a piece has a text or a token"),
            ({"roles": {**good["roles"], "user": {"pre": []}}}, "'roles.user': unknown key 'pre'"),
            ({"roles": {**good["roles"], "system": {}}}, "the role 'system' has no turn of its own"),
            ({"system": "turn"}, "'system_between' goes with"),
            ({"system": "middle"}, "'system'"),
        ]:
            with self.subTest(change=change):
                file = self.write("bad-format.json", json.dumps({**good, **change}).encode())
                self.assert_pack_refused(
                    [corpus], "cannot use the chat format .*" + said,
                    options=("--messages-field", "m", "--chat-format", file))

    def test_tables_without_the_column_are_refused(self) -> None:
        path = self.folder / "t.parquet"
        pq.write_table(pa.table({"chat": [[{"role": "user", "content": "a"}]], "n": [1]}), path)
        self.assert_pack_refused([path], "it has no column 'messages'; it has 'chat', 'n'",
                                 options=self.PLAIN)
        result = self.assert_pack_refused([path], options=("--messages-field", "n", *self.PLAIN[2:]))
        self.assertIn("row 0: the field 'n' is not a list", result.stderr)


class Answers(ChatTest):
    """`generate --chat`: a model that has learnt one chat answers as it was trained."""

    MODEL = ("--layers", 1, "--channels", 32, "--heads", 4, "--positions", 256)

    def train(self, corpus: Path, *packing: object, steps: int = 60) -> tuple[Path, Document]:
        """Returns a run, and the first document that it was trained on."""
        [document, *_] = self.packed(corpus, *packing)
        run = self.folder / f"{corpus.stem}-run"
        self.succeeds("train", "-q", "--data", self.folder / "dataset", "-o", run, "--steps", steps,
                      "--batch", 1, "--learning-rate", 0.02, *self.MODEL)  # fmt: skip
        return run, document

    def answer(self, run: Path, name: object, *arguments: object) -> dict:
        how = ["--chat", name, "--temperature", 0, "--tokens", 40, *arguments]
        line = json.loads(self.succeeds("generate", "--json", *how, run).stdout)
        validate(line, "generated")
        said = self.succeeds("generate", *how, run).stdout
        self.assertEqual(said, line["text"] + "\n")  # without the prompt
        return line

    def test_they_follow_what_pack_put_before_them(self) -> None:
        """Also where a prompt spells special tokens, and where BOS is the format's first token."""
        for i, name in enumerate(FORMATS):
            with self.subTest(name=name):
                user, answer = f"What is {renderer.TOKENS[name][0]}?", "A token."
                chat = [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
                system = [{"role": "system", "content": "Be brief."}] if i % 2 == 0 else []
                corpus = self.write_lines(f"{name}.jsonl", [{"messages": system + chat}] * 4)
                first = tokenizer_of(name).token_to_id(renderer.TOKENS[name][0])
                bos = ["--bos", first] if name in ("llama3", "gemma", "mistral") else []
                packing = ["--seq-len", 256, *self.arguments(name)[2:], *bos]
                run, (ids, mask) = self.train(corpus, *packing)
                how = ["--system", "Be brief."] if system else []
                line = self.answer(run, name, "--prompt", user, *how)
                self.assertEqual(line["prompt_tokens"], mask.index(1))
                self.assertEqual(line["text"].removeprefix(" "), answer)
                last = max(t for t, trained in enumerate(mask) if trained)
                ends_document = ids[last] == ids[-1] and name != "plain"
                self.assertEqual(line["ended_by"], "end" if ends_document else "turn")

    def test_text_ends_a_turn_and_is_left_out(self) -> None:
        chat = [{"role": role, "content": content} for role, content in
                [("user", "Hi"), ("assistant", "Ho\nhe"), ("user", "Hi"), ("assistant", "Ho\nhe")]]
        corpus = self.write_lines("c.jsonl", [{"messages": chat}] * 4)
        run, _ = self.train(corpus, "--chat-format", "plain", "--seq-len", 128, steps=150)
        line = self.answer(run, "plain", "--prompt", "Hi")
        self.assertEqual((line["text"], line["ended_by"]), ("Ho\nhe", "turn"))
        self.assertEqual(line["prompt_tokens"], len("User:\nHi\n\nAssistant:\n"))
        line = self.answer(run, "plain", "--prompt", "Hi", "--stop", "he")
        self.assertEqual((line["text"], line["ended_by"]), ("Ho\n", "stop"))
        said = self.succeeds("generate", "--chat", "plain", "--temperature", 0, "--prompt", "Hi",
                             "--prompt", "Hi", run).stdout  # fmt: skip
        self.assertEqual(said, "==> 1 of 2 <==\nHo\nhe\n\n==> 2 of 2 <==\nHo\nhe\n")

        own = json.loads((ROOT / "common" / "chat" / "formats" / "plain.json").read_text())
        own["roles"]["assistant"]["end"] = [{"text": "\n"}]
        file = self.folder / "own.json"
        file.write_text(json.dumps(own))
        self.assertEqual(self.answer(run, file, "--prompt", "Hi")["text"], "Ho")
        del own["roles"]["system"]
        file.write_text(json.dumps(own))
        own["roles"]["model"] = own["roles"].pop("assistant")
        own["train"] = ["model"]
        other = self.folder / "other.json"
        other.write_text(json.dumps(own))
        for arguments, mention in [
            (["--system", "x", "--prompt", "x"], "--system goes with --chat"),
            (["--chat", "plain"], "--chat needs --prompt or --prompts"),
            (["--chat", "chatml", "--prompt", "x"],
             r"--chat: chat format 'chatml' needs the special token '<\|im_start\|>', which "
             "tokenizer 'bytes' does not have"),
            (["--chat", "vicuna", "--prompt", "x"], "no chat format 'vicuna'"),
            (["--chat", file, "--system", "x", "--prompt", "x"],
             "--chat: message 0 has the role 'system'; chat format 'plain' has user, "),
            (["--chat", other, "--prompt", "x"], "--chat: chat format 'plain' has no role 'assistant'"),
            (["--chat", "plain", "--prompt", "x" * 240], "--prompt: 259 tokens"),
        ]:  # fmt: skip
            with self.subTest(arguments=arguments):
                self.assert_refusal(bindery("generate", *arguments, run), mention)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[2].startswith("/"):
        os.environ["BINDERY_TRANSFORMERS"] = os.path.abspath(sys.argv.pop(2))
    print(f"seed {SEED}")
    program.main()
