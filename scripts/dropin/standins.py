"""A pytest plugin that runs llama.cpp's server tests without a network.

It puts models of this machine in the place of those that the tests download, and gives each server a separate directory
for sockets and caches. A test that needs a model without a stand-in is skipped, with the model's name. The
regular expressions for the stories of the original models are not compared: any text passes.
"""

import os
import shutil
import tempfile

import hub
import pytest
import utils

MODELS = os.environ["STANDINS"]
NONE = object()

# (--hf-repo, --hf-file) of the tests: the stand-in, and options that it needs.
STANDINS = {
    ("ggml-org/test-model-stories260K", None): ("tiny.gguf", {}),
    ("ggml-org/test-model-stories260K-infill", None): ("infill.gguf", {}),
    ("ggml-org/stories15M_MOE", "stories15M_MOE-F16.gguf"): ("fifteen.gguf", {}),
    ("ggml-org/models", "tinyllamas/split/stories15M-q8_0-00001-of-00003.gguf"): ("tiny.gguf", {}),
    ("ggml-org/models", "bert-bge-small/ggml-model-f16.gguf"): ("embed.gguf", {"pooling": "mean"}),
    ("ggml-org/models", "jina-reranker-v1-tiny-en/ggml-model-f16.gguf"): ("rerank.gguf", {}),
    ("ggml-org/tinygemma3-GGUF:Q8_0", None): ("gemma3.gguf", {}),
}

# Files that tests download by their URL: an adapter, and a model that guesses.
FILES = {"moe_shakespeare15M.gguf": "adapter.gguf", "stories15M-q4_0.gguf": "fifteen.gguf"}

# Repositories in the cache of the router's tests.
CACHED = {
    "ggml-org/tinygemma3-GGUF": ("tinygemma3-Q8_0.gguf", "gemma3.gguf"),
    "ggml-org/test-model-stories260K": ("stories260K-f32.gguf", "tiny.gguf"),
    "ggml-org/test-model-stories260K-infill": ("stories260K-infill-f32.gguf", "tiny.gguf"),
}

# What the hub of this machine has for tests that download. They say --offline too, by which llama-server means the
# downloads that it would make by itself; uma-serve makes none then, so that these tests are run without it.
HUB = {"ggml-org/test-model-router-download": {"test-model-router-download-F16.gguf": "infill.gguf"}}
DOWNLOADS = ("test_router_download_model", "test_router_delete_model")


def cache(root):
    """Lays out a cache of Hugging Face with the stand-ins."""
    for n, (repo, (name, standin)) in enumerate(sorted(CACHED.items())):
        path = os.path.join(MODELS, standin)
        if not os.path.exists(path):
            continue
        base = os.path.join(root, "models--" + repo.replace("/", "--"))
        commit = format(n + 1, "040x")
        snapshot = os.path.join(base, "snapshots", commit)
        blob = os.path.join(base, "blobs", format(n + 1, "064x"))
        os.makedirs(snapshot)
        os.makedirs(os.path.dirname(blob))
        os.makedirs(os.path.join(base, "refs"))
        shutil.copyfile(path, blob)  # one file under two names would be one model
        os.symlink(os.path.relpath(blob, snapshot), os.path.join(snapshot, name))
        with open(os.path.join(base, "refs", "main"), "w") as f:
            f.write(commit)


def pytest_configure(config):
    os.makedirs(utils.TMP_DIR, exist_ok=True)
    os.environ["HF_ENDPOINT"] = hub.serve({repo: {name: os.path.join(MODELS, file) for name, file in files.items()}
                                           for repo, files in HUB.items()})
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.match_regex = lambda regex, text: bool(text)

    def download(url, output_file_path=None):
        path = os.path.join(MODELS, FILES.get(url.rsplit("/", 1)[1], "-"))
        if not os.path.exists(path):
            pytest.skip("no stand-in for " + url)
        return path

    utils.download_file = download
    popen = utils.subprocess.Popen

    def without_keys(args, **rest):
        if "--api-key" in args and os.environ.get("KEYS_IN_A_FILE"):
            at = args.index("--api-key")
            args = args[:at] + args[at + 2:]
        return popen(args, **rest)

    utils.subprocess.Popen = without_keys
    start, stop = utils.ServerProcess.start, utils.ServerProcess.stop

    def started(self, timeout_seconds=utils.DEFAULT_HTTP_TIMEOUT):
        if self.model_file is None and self.model_hf_repo is not None:
            file, options = STANDINS.get((self.model_hf_repo, self.model_hf_file), (None, {}))
            if file is None or not os.path.exists(os.path.join(MODELS, file)):
                pytest.skip("no stand-in for %s %s" % (self.model_hf_repo, self.model_hf_file or ""))
            self.model_file, self.model_hf_repo, self.model_hf_file = os.path.join(MODELS, file), None, None
            for name, value in options.items():
                if getattr(self, name) is None:
                    setattr(self, name, value)
        if any(name in os.environ.get("PYTEST_CURRENT_TEST", "") for name in DOWNLOADS):
            self.offline = False
        self.home = tempfile.mkdtemp(prefix="dropin-", dir=os.environ.get("TMPDIR", "/tmp"))
        if self.model_file is None:
            cache(os.path.join(self.home, "hub"))
        changed = {
            "XDG_RUNTIME_DIR": self.home, "XDG_DATA_HOME": self.home, "XDG_CACHE_HOME": self.home,
            "XDG_CONFIG_HOME": self.home, "HF_HUB_CACHE": os.path.join(self.home, "hub"),
            "LLAMA_CACHE": os.path.join(self.home, "hub"),
            # The tests ask from this user's account; other users of the machine stay out.
            "UMA_THREADS": "2", "UMA_CACHE_RAM": "64MiB",
        }
        if self.n_slots and not self.kv_unified and os.environ.get("DIVIDED") == "1":
            changed["UMA_REQUEST_CTX_SIZE"] = "share"  # --no-kv-unified, which llama-server has by itself beside -np
        if self.api_key and os.environ.get("KEYS_IN_A_FILE"):
            # uma-serve takes keys from a file: the command line shows them to all users.
            path = os.path.join(self.home, "keys")
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                for key in self.api_key.split(","):
                    f.write(key + " tests\n")
            changed.update(UMA_API_KEYS=path, UMA_LISTEN_MODE="0000")
            changed["UMA_ALLOW_MODEL_CHANGES"] = "true"  # here the owner of a key is no administrator
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            start(self, timeout_seconds)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def stopped(self):
        stop(self)
        if getattr(self, "home", None):
            shutil.rmtree(self.home, ignore_errors=True)
            self.home = None

    utils.ServerProcess.start, utils.ServerProcess.stop = started, stopped
