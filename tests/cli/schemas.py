"""Checks the program's output with the schemas of the project."""

import functools
import json

import jsonschema
from program import ROOT
from referencing import Registry
from referencing.jsonschema import DRAFT202012


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Returns the validator of schemas/NAME-vN.schema.json, which must be a valid schema itself. It
    may refer to others by their file names."""
    schemas = {
        path.name: json.loads(path.read_text()) for path in (ROOT / "schemas").glob("*.schema.json")
    }
    [schema] = [of for file, of in schemas.items() if file.rsplit("-v", 1)[0] == name]
    jsonschema.Draft202012Validator.check_schema(schema)
    resources = [(file, DRAFT202012.create_resource(other)) for file, other in schemas.items()]
    return jsonschema.Draft202012Validator(schema, registry=Registry().with_resources(resources))


def validate(document: object, name: str) -> None:
    """Raises if the document does not follow the schema NAME."""
    validator(name).validate(document)
