"""The program refuses every document that a schema refuses, and names the key: for every key of
manifest.json, plan.json and a checkpoint's JSON there is a document in which only that key is
missing, of another type, an unknown word, or just beyond a limit, with every checksum right. A
value at the limit is accepted."""

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import program
from forged_dataset import checksum_of, pretty, seal
from program import ROOT, ProgramTest, bindery
from schemas import validator

GOLDEN = ROOT / "tests" / "golden"
FORMAT_1 = GOLDEN / "format-1"
CORPUS = FORMAT_1 / "corpus"
WRONG = {"integer": ["1", 1.5, [1]], "number": ["1"], "string": [7], "boolean": [0, "true"],
         "object": [[1]], "array": [7]}
# Here a reader accepts more than a writer may write: words that only people read, empty lists,
# null or another key's value if a key is absent, and keys that only packing needs.
LENIENT = {("format", "pattern"), ("compression", "enum"), ("inputs", "minItems"),
           ("shards", "minItems"), ("sources", "minItems"), ("joined", "minItems"),
           ("bos", "required"), ("bytes", "required"), ("delimiter", "required"),
           ("max_bad", "type"), ("max_bad", "minimum"), ("max_bad", "maximum")}

Case = tuple[tuple, str, object]  # the path of a key, a keyword of its schema, and a value


def parts_of(schema: dict, value: object, root: dict, path: tuple = ()) -> Iterator[tuple]:
    """Yields (path, schema, value) for everything in a document that its schema describes."""
    while "$ref" in schema:
        name = schema["$ref"].removeprefix("#/").split("/")
        schema = root[name[0]][name[1]]
    yield path, schema, value
    if isinstance(value, dict):
        inner = [(name, of) for name, of in schema.get("properties", {}).items() if name in value]
    elif isinstance(value, list) and value:
        inner = [*enumerate(schema.get("prefixItems", []))]
        inner = inner or [(len(value) - 1, schema.get("items", {}))]
    else:
        inner = []
    for step, of in inner:
        yield from parts_of(of, value[step], root, (*path, step))


def wrong_values(path: tuple, schema: dict, value: object) -> Iterator[Case]:
    kind = schema.get("type", "string")
    for wrong in WRONG[kind if isinstance(kind, str) else kind[0]]:
        yield path, "type", wrong
    if "minimum" in schema:
        yield path, "minimum", schema["minimum"] - 1
    if "maximum" in schema:
        yield path, "maximum", schema["maximum"] + 1
    if "enum" in schema or "const" in schema:
        yield path, "enum", "another word"
    if "pattern" in schema and value is not None:
        yield path, "pattern", f"{value}!"
    if "minItems" in schema:
        yield path, "minItems", value[: schema["minItems"] - 1]
    if "maxItems" in schema and value:
        yield path, "maxItems", value + value[-1:] * (schema["maxItems"] + 1 - len(value))
    for name in schema.get("required", []):
        yield (*path, name), "required", None


def changed(document: dict, case: Case) -> dict:
    (*above, last), keyword, value = case
    result = copy.deepcopy(document)
    holder = result
    for step in above:
        holder = holder[step]
    if keyword == "required":
        del holder[last]
    else:
        holder[last] = value
    return result


def key_of(path: tuple) -> str:
    return next(step for step in reversed(path) if isinstance(step, str))


class SchemaLimits(ProgramTest):
    def check(self, kind: str, document: dict, unread: list[str],
              write: Callable[[dict], None], *command: object) -> None:
        """`unread` lists keys that the command does not read, such as those that the manifest
        repeats."""
        checker, seen = validator(kind), set()
        checker.validate(document)
        for path, schema, value in parts_of(checker.schema, document, checker.schema):
            if path[:1] and path[0] in unread or id(schema) in seen:
                continue
            seen.add(id(schema))
            for case in wrong_values(path, schema, value):
                where, keyword, wrong = case
                if not where or where[0] in unread or (key_of(where), keyword) in LENIENT:
                    continue
                with self.subTest(kind, case=case):
                    refused = changed(document, case)
                    self.assertFalse(checker.is_valid(refused))
                    write(refused)
                    result = bindery(*command)
                    self.assertIn(result.status, (1, 2), result)
                    self.assertRegex(result.output, rf"\b{key_of(where)}\b|{re.escape(str(wrong))}")
            for keyword in {"minimum", "maximum"} & set(schema):
                with self.subTest(kind, limit=path, keyword=keyword):
                    write(changed(document, (path, keyword, schema[keyword])))
                    self.assertNotRegex(bindery(*command).output, f"'{key_of(path)}': not a")
        self.assertGreater(len(seen), 5)

    def dataset(self, name: str) -> tuple[Path, dict]:
        """Returns a golden dataset, or a new one that has every key, without or with masks."""
        dataset, corpus = self.folder / name, self.folder / "corpus"
        if name == "new":
            corpus.mkdir()
            (corpus / "a.txt").write_text("some <|endoftext|> text")
            (corpus / ".hidden").write_text("x")
            self.pack(dataset, [corpus], "--seq-len", 16, "--special-tokens", "token",
                      "--tokenizer", GOLDEN / "world" / "tokenizer.json",
                      "--separator-token", "<|endoftext|>")
        elif name == "masked":
            shutil.copytree(GOLDEN / "format-2" / name, dataset)
        else:
            shutil.copytree(FORMAT_1 / name, dataset)
        return dataset, json.loads((dataset / "manifest.json").read_bytes())

    def seal(self, path: Path, document: dict) -> None:
        document.pop("checksum", None)
        seal(path, document)

    def test_manifests(self) -> None:
        for name in ["concat", "new", "masked"]:  # format 1.0, and today's
            dataset, manifest = self.dataset(name)
            self.check("manifest", manifest, ["checksum"],
                       lambda document: self.seal(dataset / "manifest.json", document),
                       "inspect", "--json", dataset)

    def test_plans(self) -> None:
        for name, unread in [("concat", []), ("joined", ["reading"])]:
            dataset, manifest = self.dataset(name)

            def write(plan: dict) -> None:
                (dataset / "plan.json").write_text(pretty(plan))
                manifest["plan"]["checksum"] = checksum_of(dataset / "plan.json")
                self.seal(dataset / "manifest.json", manifest)

            plan = json.loads((dataset / "plan.json").read_bytes())
            self.check("plan", plan, ["packing", "inputs", *unread], write,
                       "verify", dataset, "--against", CORPUS)

    def test_checkpoints(self) -> None:
        run = self.folder / "run"
        self.succeeds("train", "-q", "--data", GOLDEN / "train-1" / "dataset", "--layers", 1,
                      "--channels", 16, "--heads", 2, "--positions", 64, "--steps", 1, "-o", run)
        path = run / "step-00000001.json"
        self.check("checkpoint", json.loads(path.read_bytes()), ["checksum", "data", "isa"],
                   lambda document: self.seal(path, document),
                   "generate", "-q", "--tokens", 1, run)


if __name__ == "__main__":
    program.main()
