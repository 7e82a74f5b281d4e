"""A hub of models on this machine, with the few paths of Hugging Face's that a download asks for."""

import hashlib
import http.server
import json
import os
import re
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files = {}  # repository: {name: path}

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def json(self, value):
        self.answer(200, json.dumps(value).encode(), Content_Type="application/json")

    def do_GET(self):
        path = self.path.partition("?")[0]
        if m := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/.*)?", path):
            files, what = self.files.get(m[1]), m[2] or ""
            if files is None:
                self.answer(404, b"{}")
            elif what.startswith("/tree/"):
                self.json([self.entry(name, file) for name, file in files.items()])
            elif what == "/refs":
                self.json({"branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}], "tags": []})
            else:
                self.json({"id": m[1], "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]})
        elif m := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            file = self.files.get(m[1], {}).get(m[2])
            if file is None:
                self.answer(404)
            else:
                self.file(file)
        else:
            self.answer(404)

    do_HEAD = do_GET

    def file(self, path):
        with open(path, "rb") as f:
            data = f.read()
        tag = '"%s"' % hashlib.sha256(data).hexdigest()
        if m := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(m[1]), min(int(m[2] or len(data)), len(data) - 1)
            self.answer(206, data[first : last + 1], ETag=tag, Accept_Ranges="bytes",
                        Content_Range="bytes %d-%d/%d" % (first, last, len(data)))
        else:
            self.answer(200, data, ETag=tag, Accept_Ranges="bytes")

    @staticmethod
    def entry(name, path):
        with open(path, "rb") as f:
            data = f.read()
        return {
            "type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest(),
            "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130},
        }


def serve(files):
    """Serves the files of repositories on a free port, and returns the address."""
    Hub.files = {repo: {n: p for n, p in of.items() if os.path.exists(p)} for repo, of in files.items()}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "http://127.0.0.1:%d" % server.server_port
