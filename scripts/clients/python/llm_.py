"""The command llm, with OpenAI's API by extra-openai-models.yaml, and with the plugin llm-ollama."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from suite import ANSWER, BASE, MODEL, QUESTION, SUM, SYSTEM, V1, case, includes, run, valid_sum

home = tempfile.mkdtemp()
env = {**os.environ, "LLM_USER_PATH": home, "OLLAMA_HOST": BASE, "OPENAI_API_KEY": "none", "PYTHONWARNINGS": "ignore"}
pathlib.Path(home, "extra-openai-models.yaml").write_text(f"""
- model_id: tiny
  model_name: {MODEL}
  api_base: "{V1}"
  supports_schema: true
  supports_tools: true
- model_id: tiny-completion
  model_name: {MODEL}
  api_base: "{V1}"
  completion: true
""")


def llm(*args, stdin=""):
    done = subprocess.run([pathlib.Path(sys.executable).parent / "llm", *args], env=env, input=stdin, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


greedy = ["-o", "temperature", "0", "-o", "max_tokens", "400"]


@case("prompt, system, no stream, pipe")
def _():
    includes(llm("-m", "tiny", *greedy, QUESTION), ANSWER)
    includes(llm("-m", "tiny", *greedy, "--no-stream", "-s", SYSTEM, stdin=QUESTION), ANSWER)


@case("--schema, json_object, a conversation")
def _():
    valid_sum(llm("-m", "tiny", *greedy, "--schema", json.dumps(SUM), QUESTION))
    assert llm("-m", "tiny", *greedy, "-o", "json_object", "1", QUESTION).lstrip().startswith("{")
    llm("-m", "tiny", *greedy, QUESTION)
    includes(llm("-c", "-m", "tiny", *greedy, "Subtract 45 from 1234."), "1189")


@case("tools")
def _():
    assert llm("-m", "tiny", *greedy, "-T", "llm_version", QUESTION)


@case("completion")
def _():
    assert llm("-m", "tiny-completion", "-o", "max_tokens", "8", QUESTION)


@case("llm-ollama: models, prompt, schema")
def _():
    includes(llm("models", "list"), MODEL)
    includes(llm("ollama", "models"), "completion")
    name = "ollama/" + MODEL
    includes(llm("-m", name, "-o", "temperature", "0", QUESTION), ANSWER)
    valid_sum(llm("-m", name, "--schema", json.dumps(SUM), QUESTION))


run("llm")
