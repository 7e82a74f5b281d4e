#!/usr/bin/env python3
"""Lists the fields that clients may send: writes daemon/api/testdata/fields.json from the types of the newest SDKs.

    scripts/fields.py [--keep DIR]        # then: go test ./daemon/api -run TestFields -rewrite; read docs/fields.md

It installs openai, anthropic and ollama into a temporary folder and reads their request types; of vllm and sglang, whose
wheels are large, it reads the source of the request classes without importing it. --keep keeps the downloads for another
run. A field that the server has no state for is NEW in docs/fields.md: give it one in the API's table, in the tags of its
struct, or in ipc/wire/shape.go.
"""

import argparse
import ast
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import typing
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "daemon" / "api" / "testdata" / "fields.json"
DEPTH = 3  # nested objects that are followed

# The endpoints, and the types of their bodies in each SDK: module, class.
SDK = {
    "/v1/chat/completions": [
        ("openai", "openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
    ],
    "/v1/completions": [("openai", "openai.types.completion_create_params", "CompletionCreateParamsStreaming")],
    "/v1/embeddings": [("openai", "openai.types.embedding_create_params", "EmbeddingCreateParams")],
    "/v1/responses": [("openai", "openai.types.responses.response_create_params", "ResponseCreateParamsStreaming")],
    "/v1/messages": [
        ("anthropic", "anthropic.types.message_create_params", "MessageCreateParamsStreaming"),
        ("anthropic", "anthropic.types.beta.message_create_params", "MessageCreateParamsStreaming"),
    ],
    "/api/chat": [("ollama", "ollama._types", "ChatRequest")],
    "/api/generate": [("ollama", "ollama._types", "GenerateRequest")],
    "/api/embed": [("ollama", "ollama._types", "EmbedRequest")],
    "/api/embeddings": [("ollama", "ollama._types", "EmbeddingsRequest")],
    "/api/show": [("ollama", "ollama._types", "ShowRequest")],
}
# The classes of servers that take more: their own names, found in the wheel.
SERVERS = {
    "ChatCompletionRequest": "/v1/chat/completions",
    "CompletionRequest": "/v1/completions",
    "ResponsesRequest": "/v1/responses",
    "AnthropicMessagesRequest": "/v1/messages",
}
WHEELS = {"vllm": "vllm/entrypoints/", "sglang": "sglang/srt/entrypoints/"}
PLATFORMS = [f"manylinux_2_{n}_{arch}" for arch in ("aarch64", "x86_64") for n in (28, 31, 34, 35)]


class Fields:
    def __init__(self):
        self.of = {}  # endpoint -> (path, kind) -> {"types": set, "from": set}

    def add(self, endpoint, path, kind, types_, source):
        row = self.of.setdefault(endpoint, {}).setdefault((path, kind), {"types": set(), "from": set()})
        row["types"] |= types_
        row["from"].add(source)


def alternatives(tp):
    """The types that a type may be, without Required, Optional and the like."""
    origin = typing.get_origin(tp)
    if origin in (typing.Required, typing.NotRequired, typing.Annotated) or str(origin).endswith("Required"):
        return alternatives(typing.get_args(tp)[0])
    if origin in (typing.Union, types.UnionType):
        return [a for t in typing.get_args(tp) for a in alternatives(t)]
    if isinstance(tp, typing.TypeVar):
        return alternatives(tp.__bound__) if tp.__bound__ else []
    if hasattr(tp, "__value__"):  # type X = …
        return alternatives(tp.__value__)
    return [] if tp is type(None) else [tp]


def is_object(tp):
    return isinstance(tp, type) and (hasattr(tp, "__required_keys__") or hasattr(tp, "model_fields"))


def members(tp):
    if hasattr(tp, "model_fields"):
        return {f.alias or name: f.annotation for name, f in tp.model_fields.items()}
    return typing.get_type_hints(tp, include_extras=True)


def is_list(tp):
    name = getattr(typing.get_origin(tp), "__name__", "")
    return name in ("list", "Iterable", "Sequence", "SequenceNotStr", "List")


def json_types(tp):
    """The JSON types of a type's values; those of a Literal are the values themselves."""
    found = set()
    for t in alternatives(tp):
        if typing.get_origin(t) is typing.Literal:
            found |= {json.dumps(v) for v in typing.get_args(t)}
        elif t is bool:
            found.add("boolean")
        elif t is int:
            found.add("integer")
        elif t is float:
            found.add("number")
        elif is_list(t):
            found.add("array")
        elif is_object(t) or "dict" in str(t).lower() or "Mapping" in str(t) or t is object:
            found.add("object")
        else:
            found.add("string")
    return found


def kinds(tp):
    """The values of an object's type, as one text."""
    t = members(tp).get("type")
    if t is None:
        return ""
    return ",".join(sorted(str(v) for a in alternatives(t) if typing.get_origin(a) is typing.Literal
                           for v in typing.get_args(a)))


def walk(fields, endpoint, source, tp, path, depth):
    if depth > DEPTH:
        return
    for t in alternatives(tp):
        if is_list(t):
            args = typing.get_args(t)
            if args:
                walk(fields, endpoint, source, args[0], path + "[]", depth)
        elif is_object(t):
            kind = kinds(t) if depth > 0 else ""
            for name, member in members(t).items():
                below = f"{path}.{name}" if path else name
                fields.add(endpoint, below, kind, json_types(member), source)
                walk(fields, endpoint, source, member, below, depth + 1)


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def classes(wheel, under):
    """The classes below a folder of a wheel, by name."""
    found = {}
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            if name.startswith(under) and name.endswith(".py") and "protocol" in name:
                for node in ast.parse(z.read(name)).body:
                    if isinstance(node, ast.ClassDef):
                        found.setdefault(node.name, node)
    return found


def annotated(node, all_classes):
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in all_classes:
            yield from annotated(all_classes[base.id], all_classes)
    for s in node.body:
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and not s.target.id.startswith("_"):
            text = ast.unparse(s.annotation)
            if text.startswith("ClassVar") or s.target.id in ("model_config", "field_names"):
                continue
            yield s.target.id, text


def json_types_of_text(text):
    found = set()
    for word, kind in (("bool", "boolean"), ("int", "integer"), ("float", "number"), ("str", "string"),
                       ("list", "array"), ("dict", "object")):
        if word in text.lower():
            found.add(kind)
    if "list" in text.lower() and "str |" not in text and "Union" not in text:
        found = {"array"}
    return found or {"object"}


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--keep", metavar="DIR", help="keep the downloads in this folder, and use those that are there")
    folder = parse.parse_args().keep
    temporary = None
    if folder is None:
        temporary = tempfile.TemporaryDirectory()
        folder = temporary.name
    folder = pathlib.Path(folder)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    sdk = folder / "sdk"
    if not sdk.exists():
        run(*pip, "install", "--target", str(sdk), "openai", "anthropic", "ollama")
    sys.path.insert(0, str(sdk))
    versions = {name: importlib.metadata.version(name) for name in ("openai", "anthropic", "ollama")}

    fields = Fields()
    for endpoint, sources in SDK.items():
        for source, module, name in sources:
            tp = getattr(__import__(module, fromlist=[name]), name)
            walk(fields, endpoint, source, tp, "", 0)
    for name, under in WHEELS.items():
        wheels = folder / name
        if not wheels.exists():
            platforms = [a for p in PLATFORMS for a in ("--platform", p)]
            run(*pip, "download", "--no-deps", "--only-binary", ":all:", "--python-version", "3.12", *platforms,
                "-d", str(wheels), name)
        wheel = next(wheels.glob("*.whl"))
        versions[name] = wheel.name.split("-")[1]
        known = classes(wheel, under)
        for cls, endpoint in SERVERS.items():
            if cls in known:
                for field, text in annotated(known[cls], known):
                    fields.add(endpoint, field, "", json_types_of_text(text), name)

    out = {"versions": versions, "endpoints": {}}
    for endpoint, rows in fields.of.items():
        merged = {}
        for (path, kind), row in sorted(rows.items()):
            to = merged.setdefault(path, (set(), set(), set()))
            to[0].update(kind.split(","))
            to[1].update(row["types"])
            to[2].update(row["from"])
        out["endpoints"][endpoint] = [
            [path, sorted(k), sorted(t, key=lambda v: (v[0] == '"', v))[:6], sorted(f)]
            for path, (k, t, f) in merged.items()]
    with OUT.open("w") as f:  # a row a line: the next version's diff shows what is new
        f.write('{"versions": ' + json.dumps(versions) + ',\n"endpoints": {')
        for i, (endpoint, rows) in enumerate(out["endpoints"].items()):
            f.write(("," if i else "") + f'\n"{endpoint}": [\n')
            f.write(",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "]")
        f.write("}}\n")
    print(f"{sum(len(r) for r in fields.of.values())} fields of {versions}: {OUT}")


if __name__ == "__main__":
    main()
