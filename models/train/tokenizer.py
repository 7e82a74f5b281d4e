"""Byte-level BPE whose merges only ever extend the beginning of a word.

A merge joins two pieces only if the left one starts at the beginning of a pre-token and that beginning is a space or a
capital. Frequent words (" letters", "What") become one piece, and the rest of an unknown word falls apart into single
letters: a model of two million weights then need not learn how hundreds of syllables are spelled before it can count
letters. Nothing of this shows in the file: merges are applied as in every other byte-level BPE.

Pre-tokens are cut as by llama.cpp's "qwen2" pre-tokenizer (llama-vocab.cpp), whose digits are single; here for ASCII.
"""
import collections
import json
import re

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
END, IM_START, IM_END, THINK, UNTHINK = range(5)
RAW = "\x01"  # switches, in a text, to single characters and back: what scratchpads are written in

PRETOKEN = re.compile(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_runes():
    """The character GPT-2's vocabularies write each byte as."""
    table, spare = [], 0x100
    for b in range(256):
        if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE:
            table.append(chr(b))
        else:
            table.append(chr(spare))
            spare += 1
    return table


BYTES = byte_runes()


def may_start(piece):
    return piece[0] == BYTES[0x20] or "A" <= piece[0] <= "Z"


def train(texts, size):
    """Learns size pieces from the parts of texts that are not RAW."""
    words = collections.Counter()
    for text in texts:
        for part in text.split(RAW)[::2]:
            words.update(PRETOKEN.findall(part))
    newline = BYTES[0x0A]
    merges = [(newline, newline)]
    split = [[[BYTES[b] for b in w.encode()], n] for w, n in words.items()]
    while 5 + 256 + len(merges) < size:
        pairs = collections.Counter()
        for pieces, n in split:
            if len(pieces) > 1 and may_start(pieces[0]) and newline not in pieces:
                pairs[pieces[0], pieces[1]] += n
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for entry in split:
            p = entry[0]
            if len(p) > 1 and (p[0], p[1]) == best:
                entry[0] = [p[0] + p[1]] + p[2:]
    return Tokenizer(merges)


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.tokens = SPECIAL + BYTES + [a + b for a, b in self.merges]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.cache = {}
        self.unrune = {r: b for b, r in enumerate(BYTES)}

    def save(self, path):
        with open(path, "w") as f:
            json.dump({"merges": [list(m) for m in self.merges]}, f, ensure_ascii=False, indent=0)

    @staticmethod
    def load(path):
        with open(path) as f:
            return Tokenizer(json.load(f)["merges"])

    def word(self, w):
        got = self.cache.get(w)
        if got is None:
            p = [BYTES[b] for b in w.encode()]
            while len(p) > 1:
                r, i = min((self.rank.get((p[i], p[i + 1]), 1 << 30), i) for i in range(len(p) - 1))
                if r == 1 << 30:
                    break
                p[i : i + 2] = [p[i] + p[i + 1]]
            got = [self.ids[x] for x in p]
            if len(self.cache) < 200_000:
                self.cache[w] = got
        return got

    def encode(self, text):
        """Tokens of a text without markers."""
        out = []
        for i, part in enumerate(text.split(RAW)):
            if i % 2:
                out += [5 + b for b in part.encode()]
            else:
                for w in PRETOKEN.findall(part):
                    out += self.word(w)
        return out

    def decode(self, ids):
        out = bytearray()
        for i in ids:
            if i < len(SPECIAL):
                out += SPECIAL[i].encode()
            else:
                out += bytes(self.unrune[c] for c in self.tokens[i])
        return out.decode(errors="replace")
