#!/usr/bin/env python3
"""Writes the tokenizer of a GGUF file in the form of Hugging Face's libraries: load generators count tokens with it.

    tokenizer.py FILE.gguf FOLDER

Byte-level BPE is exact but for the splitting of rare texts. Of a vocabulary with scores (Gemma), where the pair whose
union has the highest score is merged first, the merges are made from the scores. Servers get text, so that a count
changes the size of a load and no answer.
Needs the packages gguf, tokenizers and transformers.
"""

import pathlib
import sys

from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CONTROL = 3  # the token type of markers


def merges_of(tokens, scores):
    """All pairs of tokens whose union is a token, in the order in which they are merged."""
    known = set(tokens)
    best = sorted(range(len(tokens)), key=lambda i: -scores[i])
    return [(t[:k], t[k:]) for t in (tokens[i] for i in best) for k in range(1, len(t))
            if t[:k] in known and t[k:] in known]


def main():
    path, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    fields = GGUFReader(path).fields
    read = lambda key: fields["tokenizer.ggml." + key].contents() if "tokenizer.ggml." + key in fields else None
    tokens, kind = read("tokens"), read("model")
    if kind == "gpt2":
        merges = [tuple(m.split(" ", 1)) for m in read("merges")]
        t = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
    elif kind == "llama":
        t = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges_of(tokens, read("scores")),
                                 unk_token=tokens[read("unknown_token_id") or 0], fuse_unk=True, byte_fallback=True))
        t.normalizer = normalizers.Replace(" ", "▁")
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        sys.exit(f"{path}: its tokenizer is {kind!r}; this script reads gpt2 (BPE) and llama (SentencePiece)")
    types = read("token_type") or []
    t.add_special_tokens([tokens[i] for i, k in enumerate(types) if k == CONTROL])
    name = lambda key: tokens[i] if (i := read(key)) is not None else None
    out = PreTrainedTokenizerFast(tokenizer_object=t, bos_token=name("bos_token_id"), eos_token=name("eos_token_id"),
                                  pad_token=name("padding_token_id") or name("eos_token_id"))
    if "tokenizer.chat_template" in fields:
        out.chat_template = fields["tokenizer.chat_template"].contents()
    else:
        out.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    folder.mkdir(parents=True, exist_ok=True)
    out.save_pretrained(folder)


if __name__ == "__main__":
    main()
