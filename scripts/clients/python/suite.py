"""A suite runs one library's features and prints a JSON line of each: {client, version, feature, ok, error}."""

import asyncio
import importlib.metadata
import inspect
import json
import math
import os
import signal
import sys
import traceback

BASE = os.environ["UMA_URL"]
V1 = BASE + "/v1"
MODEL = "uma-tiny"
SYSTEM = "You are a calculator."
QUESTION = "What is 4821 + 977?"
ANSWER = "5798"  # the built-in model gets this right with temperature 0
ASK = "What is the weather in Paris?"
LIMIT = 90  # seconds for one feature

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Oslo"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function",
        "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": WEATHER}}
SUM = {
    "type": "object",
    "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99999}},
    "required": ["sum"],
    "additionalProperties": False,
}

features = []


def case(name):
    """Registers a feature: a function, or a coroutine function, that raises if the feature does not work."""

    def add(test):
        features.append((name, test))
        return test

    return add


def valid_weather(args):
    if isinstance(args, str):
        args = json.loads(args)
    assert sorted(args) == ["city", "days"], args
    assert args["city"] in ("Paris", "Oslo") and isinstance(args["days"], int) and 1 <= args["days"] <= 7, args
    return args


def valid_sum(value):
    if isinstance(value, str):
        value = json.loads(value)
    assert list(value) == ["sum"] and isinstance(value["sum"], int) and 0 <= value["sum"] <= 99999, value


def includes(text, part):
    assert part in str(text), f"{text!r} does not hold {part!r}"


def vectors(rows):
    """Checks embeddings of three texts, the first and the last of which are equal."""
    assert len(rows) == 3
    for v in rows:
        assert len(v) > 16 and abs(math.sqrt(sum(x * x for x in v)) - 1) < 1e-3, math.sqrt(sum(x * x for x in v))
    assert all(abs(a - b) < 1e-6 for a, b in zip(rows[0], rows[2])) and rows[0] != rows[1]


class raises:
    """with raises(Error, "text"): the block raises Error, and its message holds the text."""

    def __init__(self, kind, text):
        self.kind, self.text = kind, text

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        assert kind is not None, f"nothing raised {self.kind.__name__}"
        if not issubclass(kind, self.kind):
            return False
        includes(error, self.text)
        return True


def run(package, client=None, exits=True):
    """Runs the registered features, or those that the arguments name. package is the one whose version is told."""
    version = importlib.metadata.version(package)

    def late(*_):
        raise TimeoutError(f"no result after {LIMIT} s")

    signal.signal(signal.SIGALRM, late)
    for name, test in features:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        error = ""
        signal.alarm(LIMIT)
        try:
            if inspect.iscoroutinefunction(test):
                asyncio.run(test())
            else:
                test()
        except BaseException as e:  # libraries raise SystemExit too
            if isinstance(e, KeyboardInterrupt):
                raise
            error = f"{type(e).__name__}: {e}"
            if os.environ.get("VERBOSE"):
                traceback.print_exc()
        signal.alarm(0)
        print(json.dumps({"client": client or package, "version": version, "feature": name, "ok": not error,
                          "error": error}), flush=True)
    # Threads and sockets of libraries are no reason to wait.
    sys.stdout.flush()
    if exits:
        os._exit(0)
