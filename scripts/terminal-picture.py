#!/usr/bin/env python3
"""The terminal of the README: records a session with a real model, and draws it as a moving SVG picture.

    scripts/terminal-picture.py            records docs/terminal.cast (asciinema's format, version 2), then draws it
    scripts/terminal-picture.py --draw     draws docs/terminal.svg from docs/terminal.cast
    scripts/terminal-picture.py --draw CAST SVG

The session is a shell in a pseudo-terminal with bin/ in its path. A program asks for the summary of a long document;
beside it someone else's answer keeps its pace. Keys are pressed every 30 ms; all other times are those of the session.
Where a reader wants no motion, and where a program draws SVG without animations, the picture is the last screen.
"""
import codecs
import html
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 100, 40
PROMPT = "$ "
MODEL = "qwen2.5-coder-0.5b"
DOCUMENT = "docs/tools.md"
# (what is typed, the command whose success ends the wait before the next one)
SESSION = [
    (f"uma-serve -m {MODEL}.gguf 2>serve.log &", "uma-cli health"),
    ("uma-cli run -f manual.md 'Summarise this.' >summary.txt 2>&1 &   # a long prompt", None),
    ("uma-cli run -v --temp 0 'Explain a mutex in two sentences.'", None),
    ("uma-cli why --last 1", None),
]


class Shell:
    """A shell in a pseudo-terminal, and the events of its output: (seconds, text)."""

    def __init__(self, env, cwd):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe("bash", ["bash", "--noprofile", "--norc"], env)
        ioctl(self.fd, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.start, self.events, self.text = time.monotonic(), [], ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self, limit, done):
        """Read until done(text) holds, at most limit seconds."""
        end = time.monotonic() + limit
        while not done(self.text):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                sys.exit(f"terminal-picture: no end after {limit} s of: {self.text[-400:]!r}")
            self.read_some()

    def read_some(self):
        text = self.decoder.decode(os.read(self.fd, 65536))
        self.text += text
        self.events.append((round(time.monotonic() - self.start, 3), text))

    def pause(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                self.read_some()

    def type(self, line):
        for key in line:
            os.write(self.fd, key.encode())
            self.pause(0.03)
        self.text = ""
        os.write(self.fd, b"\r")


def record(cast):
    model = subprocess.check_output([ROOT / "scripts/models-fetch.sh", MODEL], text=True).strip()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        (work / f"{MODEL}.gguf").symlink_to(model)
        shutil.copy(ROOT / DOCUMENT, work / "manual.md")
        (work / "inputrc").write_text("set enable-bracketed-paste off\n")
        (work / "run").mkdir(mode=0o700)
        env = {"PATH": f"{ROOT}/bin:{os.environ['PATH']}", "HOME": str(work), "XDG_RUNTIME_DIR": str(work / "run"),
               "TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": PROMPT, "INPUTRC": str(work / "inputrc"),
               "BASH_SILENCE_DEPRECATION_WARNING": "1"}
        shell = Shell(env, work)
        prompted = lambda text: text.endswith(PROMPT)  # noqa: E731
        shell.read(10, prompted)
        for line, ready in SESSION:
            shell.type(line)
            shell.read(300, prompted)
            while ready and subprocess.run(ready.split(), env=env, capture_output=True).returncode != 0:
                shell.pause(0.2)
            shell.pause(1)
        events = list(shell.events)
        os.write(shell.fd, b"kill %2; kill %1; wait; exit\r")
        os.waitpid(shell.pid, 0)
        tokens = re.findall(r"[^\r\n]*tokens/s[^\r\n]*", "".join(text for _, text in events))
    with cast.open("w") as out:
        header = {"version": 2, "width": COLUMNS, "height": ROWS, "env": {"TERM": env["TERM"]}}
        print(json.dumps(header), file=out)
        for at, text in events:
            print(json.dumps([at, "o", text], ensure_ascii=False), file=out)
    print("\n".join(tokens))


class Screen:
    """The lines of a terminal that does not scroll. It knows the sequences of uma-cli and bash, and no others."""

    def __init__(self, columns, rows):
        self.columns, self.rows, self.row, self.column, self.style = columns, rows, 0, 0, ""
        self.lines = [[]]  # of (character, style)

    def write(self, text):
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b.?|[^\x1b]", text, re.S):
            if len(part) > 1 or part == "\x1b":
                self.sequence(part)
            elif part == "\r":
                self.column = 0
            elif part == "\n":
                self.down()
            elif part == "\b":
                self.column -= 1
            elif part == "\t":
                self.put(" " * (8 - self.column % 8))
            elif part >= " ":
                self.put(part)

    def down(self):
        self.row += 1
        if self.row == self.rows:
            sys.exit(f"terminal-picture: the session has more than {self.rows} lines")
        if self.row == len(self.lines):
            self.lines.append([])

    def put(self, text):
        for c in text:
            if self.column == self.columns:
                self.column = 0
                self.down()
            line = self.lines[self.row]
            line += [(" ", "")] * (self.column + 1 - len(line))
            line[self.column] = (c, self.style)
            self.column += 1

    def sequence(self, seq):
        if seq in ("\x1b[K", "\x1b[0K"):
            del self.lines[self.row][self.column:]
        elif seq == "\x1b[2K":
            self.lines[self.row] = []
        elif move := re.fullmatch(r"\x1b\[([0-9]*)([CD])", seq):
            self.column += int(move[1] or 1) * (1 if move[2] == "C" else -1)
        elif seq.endswith("m") and seq.startswith("\x1b["):
            for n in seq[2:-1].split(";"):
                names = {"": "", "0": "", "1": "b", "2": "d", "22": "", "3": "i", "31": "r", "32": "g", "33": "y",
                         "36": "c", "39": ""}
                if n not in names:
                    sys.exit(f"terminal-picture: the style {n} is not drawn")
                self.style = names[n]
        else:
            sys.exit(f"terminal-picture: the sequence {seq!r} is not drawn")


def draw(cast, svg):
    header, *events = [json.loads(line) for line in cast.read_text().splitlines()]
    screen = Screen(header["width"], header["height"])
    drawn = []  # of [row, column, cells, from, to or None]
    shown = []  # by row: the indices of drawn that are on the screen, and their cells
    for at, _, text in events:
        screen.write(text)
        for row, line in enumerate(screen.lines):
            if row == len(shown):
                shown.append(([], []))
            parts, old = shown[row]
            if line == old:
                continue
            column = len(old)
            if line[:column] != old:  # another line in its place
                for part in parts:
                    drawn[part][4] = at
                parts, column = [], 0
            drawn.append([row, column, line[column:], at, None])
            shown[row] = (parts + [len(drawn) - 1], list(line))
    wide, high, margin = 8.4, 18, 14
    width, height = round(header["width"] * wide + 2 * margin), len(screen.lines) * high + 2 * margin
    out = ['<svg xmlns="http://www.w3.org/2000/svg" '
           f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
           "<style>text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d8dee9;white-space:pre}"
           ".b{font-weight:bold}.i{font-style:italic}.d{fill:#7b8496}.r{fill:#e06c75}.g{fill:#98c379}.y{fill:#e5c07b}"
           ".c{fill:#56b6c2}.o{visibility:hidden}@keyframes n{from{visibility:hidden}to{visibility:hidden}}"
           "@keyframes o{from{visibility:visible}to{visibility:visible}}"
           "@media(prefers-reduced-motion){*{animation:none!important}}</style>",
           f'<rect width="{width}" height="{height}" rx="8" fill="#1e2430"/>']
    for row, column, cells, start, end in drawn:
        texts = []
        for run in re.finditer(r"(.)\1*", "".join(s or "n" for _, s in cells), re.S):
            style, text = cells[run.start()][1], "".join(c for c, _ in cells[run.start():run.end()])
            at = column + run.start() + len(text) - len(text.lstrip(" "))
            text = text.strip(" ")
            if text:
                style = f' class="{style}"' if style else ""
                texts.append(f'<text x="{margin + at * wide:.1f}" y="{margin + row * high + 14}" '
                             f'textLength="{len(text) * wide:.1f}"{style}>{html.escape(text, False)}</text>')
        if texts and end is None:
            out.append(f'<g style="animation:n {start}s">{"".join(texts)}</g>')
        elif texts:
            out.append(f'<g class="o" style="animation:o {end - start:.3f}s {start}s">{"".join(texts)}</g>')
    svg.write_text("\n".join(out + ["</svg>"]) + "\n")


def main():
    cast, svg = ROOT / "docs/terminal.cast", ROOT / "docs/terminal.svg"
    if sys.argv[1:2] == ["--draw"]:
        if len(sys.argv) == 4:
            cast, svg = map(Path, sys.argv[2:])
    else:
        record(cast)
    draw(cast, svg)


main()
