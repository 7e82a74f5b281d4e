package gguf

import (
	"strconv"
	"strings"
)

// head returns the number of layers that guess tokens, the last n of so many, and what Info.HeadBytes has of them.
func (h *header) head(n, layers int64) (int64, uint64) {
	if n <= 0 || n >= layers {
		return 0, 0
	}
	var own, output, embedding uint64
	shared := true // the output matrix
	for i := range h.tensors {
		t := &h.tensors[i]
		switch rest, ok := strings.CutPrefix(t.name, "blk."); {
		case ok:
			number, part, _ := strings.Cut(rest, ".")
			if at, err := strconv.ParseInt(number, 10, 64); err == nil && at >= layers-n {
				own += t.bytes
				shared = shared && part != "nextn.shared_head_head.weight"
			}
		case t.name == "output.weight":
			output = t.bytes
		case t.name == "token_embd.weight":
			embedding = t.bytes
		}
	}
	switch {
	case own == 0:
		return 0, 0 // the file was converted without it
	case !shared:
		return n, own
	case output == 0:
		output = embedding
	}
	return n, own + output
}
