package gguf

import (
	"strconv"
	"strings"
)

// Placed are the weights of a model, in bytes, by the places where an engine can put them: each layer, and the output
// behind the last one, can be on a device. The rest is looked up in tables and stays with the processor.
type Placed struct {
	Layers []uint64
	// Experts are the part of each layer that the weights of its experts have.
	Experts []uint64
	Output  uint64
	// Copied is the part of Output that the processor keeps as well: the table of embeddings, in a model without a
	// matrix for the output.
	Copied uint64
}

// Placed returns the weights by their places.
func (i *Info) Placed() Placed { return i.placed }

// maxLayers bounds what a header can claim.
const maxLayers = 1 << 14

// placed is Placed of a model whose number of layers is known.
func (h *header) placed(info *Info) Placed {
	layers := min(info.Layers, maxLayers)
	p := Placed{Layers: make([]uint64, layers), Experts: make([]uint64, layers)}
	var table uint64
	own := false
	for _, t := range h.tensors {
		if n := blockOf(t.name); n >= 0 && n < len(p.Layers) {
			if p.Layers[n] += t.bytes; expert(t.name) {
				p.Experts[n] += t.bytes
			}
			continue
		}
		switch {
		case t.name == "token_embd.weight":
			table = t.bytes
		case strings.HasPrefix(t.name, "output"): // its norm too
			p.Output += t.bytes
			own = own || t.name == "output.weight"
		}
	}
	if !own && !info.Encoder {
		p.Output, p.Copied = p.Output+table, table
	}
	return p
}

// blockOf returns the layer that a tensor belongs to, -1 if it belongs to none.
func blockOf(tensor string) int {
	rest, ok := strings.CutPrefix(tensor, "blk.")
	number, _, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || !dot || err != nil {
		return -1
	}
	return n
}

// expert reports whether a tensor has the weights of a layer's experts.
func expert(tensor string) bool { return strings.Contains(tensor, "_exps.") }

// LayerKVBytes is KVBytesPerToken by layers, rounded up where the header does not tell them apart.
func (i *Info) LayerKVBytes(typeK, typeV string) ([]int64, error) {
	total, err := i.KVBytesPerToken(typeK, typeV)
	if err != nil {
		return nil, err
	}
	list := make([]int64, len(i.placed.Layers))
	for l := range list {
		if len(i.KVHeads) == len(list) && len(list) > 1 {
			of := *i
			of.KVHeads = i.KVHeads[l : l+1]
			of.attentionLayers = 1
			if list[l], err = of.KVBytesPerToken(typeK, typeV); err != nil {
				return nil, err
			}
			continue
		}
		n := int64(len(list))
		list[l] = (total + n - 1) / n
	}
	return list, nil
}
