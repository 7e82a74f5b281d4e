"""Reads KV events as a program on vLLM's side does: pyzmq, and msgspec with the classes of vLLM 0.33's kv_events.py.

    subscribe.py ENDPOINT REPLAY_ENDPOINT BATCHES

Prints a line of JSON for each event: those of BATCHES published batches, then those of a replay from number 0.
"""

import json
import sys

import msgspec
import zmq

Hash = bytes | int


class Event(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(Event):
    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple | None] | None = None
    group_idx: int | None = None


class BlockRemoved(Event):
    block_hashes: list[Hash]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


decoder = msgspec.msgpack.Decoder(Batch)


def show(source, seq, payload):
    for e in decoder.decode(payload).events:
        row = {"source": source, "seq": seq, "type": type(e).__name__}
        if not isinstance(e, AllBlocksCleared):
            row |= {"blocks": len(e.block_hashes), "medium": e.medium}
        if isinstance(e, BlockStored):
            row |= {"tokens": len(e.token_ids), "size": e.block_size, "root": e.parent_block_hash is None}
        print(json.dumps(row), flush=True)


context = zmq.Context()
sub = context.socket(zmq.SUB)
sub.setsockopt(zmq.RCVTIMEO, 20000)
sub.setsockopt(zmq.SUBSCRIBE, b"")
sub.connect(sys.argv[1])
for _ in range(int(sys.argv[3])):
    topic, seq, payload = sub.recv_multipart()
    assert topic == b"", topic
    show("published", int.from_bytes(seq, "big"), payload)
replay = context.socket(zmq.DEALER)
replay.setsockopt(zmq.RCVTIMEO, 20000)
replay.connect(sys.argv[2])
replay.send_multipart([b"", (0).to_bytes(8, "big")])
while True:
    _, topic, seq, payload = replay.recv_multipart()
    if int.from_bytes(seq, "big", signed=True) == -1:
        break
    show("replayed", int.from_bytes(seq, "big"), payload)
