"""The program aider, over OpenAI's, ollama's and Anthropic's APIs. The built-in model edits no files: what is shown is
that its requests are taken and the answer is read."""

import os
import pathlib
import subprocess
import sys
import tempfile

from suite import BASE, MODEL, QUESTION, V1, case, includes, run

home = tempfile.mkdtemp()
env = {**os.environ, "HOME": home, "OPENAI_API_BASE": V1, "OPENAI_API_KEY": "none", "OLLAMA_API_BASE": BASE,
       "ANTHROPIC_BASE_URL": BASE, "ANTHROPIC_API_BASE": BASE, "ANTHROPIC_API_KEY": "none", "AIDER_ANALYTICS": "false",
       "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
flags = ["--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--no-show-release-notes",
         "--no-analytics", "--no-pretty", "--no-gitignore", "--map-tokens", "0", "--no-detect-urls"]


def aider(*args):
    done = subprocess.run([pathlib.Path(sys.executable).parent / "aider", *flags, *args], env=env, cwd=home, text=True,
                          capture_output=True, timeout=85, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-500:]
    shown = "\n".join(line for line in done.stdout.splitlines() if "githubusercontent" not in line)  # prices of models
    assert "Error" not in shown, shown[-500:]
    return shown


for provider in ("openai", "ollama_chat", "anthropic"):
    @case(f"{provider}: ask, stream and no stream")
    def _(provider=provider):
        model = ["--model", f"{provider}/{MODEL}", "--chat-mode", "ask", "--message", QUESTION]
        for more in ([], ["--no-stream"]):
            includes(aider(*model, *more), "Tokens:")


run("aider-chat")
