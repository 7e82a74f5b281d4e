package gguf

import (
	"strconv"
	"strings"
)

// head returns the number of layers that guess tokens, the last n of so many, and what Info.HeadBytes has of them. The
// model's output matrix has so many bytes.
func (h *header) head(n, layers int64, output uint64) (int64, uint64) {
	if n <= 0 || n >= layers {
		return 0, 0
	}
	var own uint64
	shared := true // the output matrix
	for i := range h.tensors {
		t := &h.tensors[i]
		if rest, ok := strings.CutPrefix(t.name, "blk."); ok {
			number, part, _ := strings.Cut(rest, ".")
			if at, err := strconv.ParseInt(number, 10, 64); err == nil && at >= layers-n {
				own += t.bytes
				shared = shared && part != "nextn.shared_head_head.weight"
			}
		}
	}
	switch {
	case own == 0:
		return 0, 0 // the file was converted without it
	case !shared:
		return n, own
	}
	return n, own + output
}

// outputBytes returns the size of the output matrix, or of the embeddings that stand for it.
func (h *header) outputBytes() (n uint64) {
	for i := range h.tensors {
		switch t := &h.tensors[i]; t.name {
		case "output.weight":
			return t.bytes
		case "token_embd.weight":
			n = t.bytes
		}
	}
	return n
}
