"""Makes the models that stand in for those which llama-server's tests download.

    models.py FOLDER    folder of tiny.gguf, embed.gguf and rerank.gguf by ggufgen, which are rewritten;
                        infill.gguf, fifteen.gguf and adapter.gguf, a LoRA adapter, are made of
                        tiny.gguf

The weights stay what they are, random ones. The vocabularies become such that the texts of the tests have as many tokens
as with the original models: the tests compare these counts. PYTHONPATH holds llama.cpp's gguf-py.
"""

import os
import shutil
import sys

import gguf
import numpy as np

# Pieces of a SentencePiece vocabulary in order of rank, found by a random search over pieces of common English words:
# with them every text of a test has the count that the test wants of stories260K.
PIECES = """
ct ▁i cc t< ap ▁too ▁kn ▁dow dy out ro ed ▁man te ▁what be ▁any ▁ha ▁b ac re ▁und ▁th Wr ow ar t| ▁sa ▁y ▁H ti ▁p et
▁m fu um ▁u eq ill pl la ▁that ▁and fe xe iq ▁n ▁use ▁as ry ▁can ▁will ▁num ▁out way ▁s ▁bel ▁our el n' er ic ▁e ▁them
▁do e, ▁d ll hat ne ▁w ▁all ie ou lo our ▁how ▁al ▁us ▁int it ev ei ▁me nt ▁eve ▁alway ug ▁h ▁be st ▁r nd ▁t ay ▁T ▁to
_e her ss an ▁day if ing ▁fro ▁pla ▁line ▁k ld ▁ea me ▁have ▁tho co ▁a ▁used ▁into is ▁thou ▁in ▁li ▁numb ng id ▁W at
ure ▁said ve su Fr ▁an em li sy ▁f ok ▁c
""".split()

# The words that embed.gguf has whole, and the pieces of words that rerank.gguf has.
WORDS = "▁i ▁believe ▁the ▁meaning ▁of ▁life ▁is ▁this ▁a ▁test ▁hello".split()
PAIRS = "▁mach ine ▁learning ▁is ▁a ▁which ▁city ▁pari ▁ca it al e ▁de ▁la".split()


def fields(reader, writer, leave):
    """Copies the metadata but for what begins with one of leave."""
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key.startswith(leave):
            continue
        kind = field.types[0]
        writer.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def rewrite(path, leave, change):
    """Writes path anew: without the metadata of leave, and with what change(writer, tensors) says."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path + ".new", reader.fields["general.architecture"].contents())
    fields(reader, writer, leave)
    tensors = {t.name: (np.array(t.data), t.tensor_type) for t in reader.tensors}
    change(writer, tensors)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(path + ".new", path)


def fifteen(writer, tensors):
    """As stories, with a whole word that fills contexts: the original has 32,000 tokens."""
    word = "▁H ▁He ▁Hel ▁Hell ▁Hello".split()
    stories(writer, tensors, pieces=(word + [p for p in PIECES if p not in word])[:len(PIECES)])


def infill(writer, tensors):
    """As stories, with the markers of a gap in the text."""
    stories(writer, tensors, "<fim_prefix>", "<fim_suffix>", "<fim_middle>")
    for key, place in (("pre", 509), ("suf", 510), ("mid", 511)):
        writer.add_uint32("tokenizer.ggml.fim_%s_token_id" % key, place)


def stories(writer, tensors, *markers, pieces=PIECES):
    """The tokenizer of a Llama 2 with 512 tokens, and no chat template."""
    normal, unknown, control, byte = 1, 2, 3, 6
    tokens = [("<unk>", 0, unknown), ("<s>", 0, control), ("</s>", 0, control)]
    tokens += [("<0x%02X>" % b, 0, byte) for b in range(256)]
    first = len(tokens)
    singles = "▁abcdefghijklmnopqrstuvwxyz0123456789.,?!'\"<>|_+-:;()[]{}/\\#*TWAIBCDEFGHJKLMNOPQRSUVXYZ@$%&=~^`àâäçèéêëîïôöùûüßñáíóúæøå«»„“”‘’–—…°§€£"
    tokens += [(p, -float(n), normal) for n, p in enumerate(pieces)]
    tokens += [(c, -1000.0 - n, normal) for n, c in enumerate(singles)][:512 - len(tokens) - len(markers)]
    tokens += [(m, 0, control) for m in markers]
    assert len(tokens) == 512, len(tokens)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([t[0] for t in tokens])
    writer.add_token_scores([float(t[1]) for t in tokens])
    writer.add_token_types([t[2] for t in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)
    # Answers are made of pieces: bytes alone are no UTF-8.
    rows = tensors["output.weight"][0]
    rows[:first] = 0
    # Flatter distributions: a test wants ten likely tokens. A block of Q8_0 begins with its scale.
    scales = rows.reshape(-1, 34)[:, :2].view(np.float16)
    scales *= np.float16(0.4)


def words(more):
    """The tokenizer of the file, in which more takes the place of the last words."""

    def change(writer, tensors):
        tokens = list(change.tokens)
        lacking = [w for w in more if w not in tokens]
        places = [i for i in range(len(tokens) - 1, 0, -1) if tokens[i] not in more and len(tokens[i]) > 2]
        for word, place in zip(lacking, places):
            tokens[place] = word
        writer.add_token_list(tokens)
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)
        writer.add_add_sep_token(False)
        data, kind = tensors["position_embd.weight"]
        tensors["position_embd.weight"] = (np.concatenate([data, data]), kind)
        writer.add_context_length(2 * len(data))

    return change


def encoder(path, more):
    change = words(more)
    change.tokens = gguf.GGUFReader(path).fields["tokenizer.ggml.tokens"].contents()
    rewrite(path, ("tokenizer.ggml.tokens", "bert.context_length"), change)


def adapter(path, model):
    """A LoRA adapter of rank 2 for the queries of the first layer."""
    reader = gguf.GGUFReader(model)
    width = int(reader.fields["llama.embedding_length"].contents())
    rows = next(int(t.shape[1]) for t in reader.tensors if t.name == "blk.0.attn_q.weight")
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 2.0)
    for name, shape in (("lora_a", (2, width)), ("lora_b", (rows, 2))):
        writer.add_tensor("blk.0.attn_q.weight." + name, random.standard_normal(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    folder = sys.argv[1]
    for name in ("infill.gguf", "fifteen.gguf"):
        shutil.copyfile(os.path.join(folder, "tiny.gguf"), os.path.join(folder, name))
    rewrite(os.path.join(folder, "tiny.gguf"), "tokenizer.", stories)
    rewrite(os.path.join(folder, "infill.gguf"), "tokenizer.", infill)
    rewrite(os.path.join(folder, "fifteen.gguf"), "tokenizer.", fifteen)
    encoder(os.path.join(folder, "embed.gguf"), WORDS)
    encoder(os.path.join(folder, "rerank.gguf"), PAIRS)
    adapter(os.path.join(folder, "adapter.gguf"), os.path.join(folder, "tiny.gguf"))
