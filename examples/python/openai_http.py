"""OpenAI's chat completions over the Unix socket, with the standard library only. With OpenAI's own package:

    openai.OpenAI(base_url="http://uma/v1", api_key="none",
                  http_client=httpx.Client(transport=httpx.HTTPTransport(uds=uma.default_socket())))
"""

import http.client
import json
import socket
import sys

import uma


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("uma")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


question = " ".join(sys.argv[1:]) or "What is 4821 + 977?"
body = {
    "model": "default",
    "messages": [{"role": "user", "content": question}],
    "temperature": 0,
    "max_tokens": 400,
    "stream": True,
    "stream_options": {"include_usage": True},
}
connection = Connection(uma.default_socket())
connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
response = connection.getresponse()
if response.status != 200:
    sys.exit(f"{response.status}: {json.load(response)['error']['message']}")
for line in response:
    data = line.decode().strip().removeprefix("data: ")
    if not data:
        continue
    if data == "[DONE]":
        break
    chunk = json.loads(data)
    if "error" in chunk:
        sys.exit(chunk["error"]["message"])
    for choice in chunk["choices"]:
        print(choice["delta"].get("content") or "", end="", flush=True)
    if chunk.get("usage"):
        print(f"\n({chunk['usage']['completion_tokens']} tokens)", end="", file=sys.stderr)
print()
