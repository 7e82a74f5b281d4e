package kvsnap

import "math/bits"

// blockTokens is the length of a block, in tokens: the unit that the sketch counts.
const blockTokens = 16

// sketch estimates how often each block of tokens was requested lately. It is a count-min sketch with conservative
// update, 4-bit saturating counters and periodic halving, as in TinyLFU (Einziger, Friedman, Manes, ACM Transactions on
// Storage 13(4), 2017). It also covers blocks that were evicted, and so tells a recurring conversation from a prompt
// that is sent once. Apart from the halving it never underestimates.
type sketch struct {
	rows    [4][]uint8
	seed    uint64
	added   int
	halveAt int
}

const sketchMax = 15

func newSketch(blocks int, seed uint64) sketch {
	// The history between two halvings is ten times the pool's blocks; eight counters per block of the pool keep
	// collisions among them rare.
	width := 1 << bits.Len(uint(max(256, blocks*8)-1))
	s := sketch{seed: seed, halveAt: 10 * max(32, blocks)}
	for i := range s.rows {
		s.rows[i] = make([]uint8, width)
	}
	return s
}

func (s *sketch) slot(row int, key uint64) *uint8 {
	r := s.rows[row]
	return &r[mum(key^s.seed, mulKeys[row])&uint64(len(r)-1)]
}

func (s *sketch) estimate(key uint64) int {
	least := uint8(sketchMax)
	for i := range s.rows {
		least = min(least, *s.slot(i, key))
	}
	return int(least)
}

func (s *sketch) add(key uint64) {
	least := s.estimate(key)
	// Only the least counters grow (conservative update): the larger ones also count colliding blocks.
	if least < sketchMax {
		for i := range s.rows {
			if c := s.slot(i, key); int(*c) == least {
				*c++
			}
		}
	}
	if s.added++; s.added >= s.halveAt {
		s.added /= 2
		for _, r := range s.rows {
			for i := range r {
				r[i] /= 2
			}
		}
	}
}

// mulKeys are odd constants with about as many ones as zeros, as multiply-and-fold hashes need (the digits of π).
var mulKeys = [8]uint64{
	0x243f6a8885a308d3, 0x13198a2e03707345, 0xa4093822299f31d1, 0x082efa98ec4e6c89,
	0x452821e638d01377, 0xbe5466cf34e90c6d, 0xc0ac29b7c97c50dd, 0x3f84d5b5b5470917,
}

// mum multiplies to 128 bits and folds the halves by exclusive or.
func mum(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b)
	return hi ^ lo
}

// hashStart returns the hash of the empty prefix in a namespace.
func hashStart(ns uint64) uint64 { return mum(uint64(ns)+1, mulKeys[7]) }

// hashBlock extends h, the hash of the preceding tokens, by one block. Its eight products are independent, so the CPU
// computes them in parallel.
func hashBlock(h uint64, b *[blockTokens]Token) uint64 {
	var sum uint64
	for i := range mulKeys {
		sum += mum(uint64(uint32(b[2*i]))|uint64(uint32(b[2*i+1]))<<32, mulKeys[i])
	}
	return mum(h^sum, mulKeys[0])
}

// hashBlocks completes hashes, which holds the prefix hash at the end of each whole block of tokens.
func hashBlocks(hashes []uint64, ns uint64, tokens []Token) []uint64 {
	h := hashStart(ns)
	if n := len(hashes); n > 0 {
		h = hashes[n-1]
	}
	for i := len(hashes) * blockTokens; i+blockTokens <= len(tokens); i += blockTokens {
		h = hashBlock(h, (*[blockTokens]Token)(tokens[i:]))
		hashes = append(hashes, h)
	}
	return hashes
}

// hashTail returns the hash of all tokens, given the hashes of their whole blocks.
func hashTail(hashes []uint64, ns uint64, tokens []Token) uint64 {
	h := hashStart(ns)
	n := len(tokens) / blockTokens
	if n > 0 {
		h = hashes[n-1]
	}
	for _, x := range tokens[n*blockTokens:] {
		h = mum(h^uint64(uint32(x)), mulKeys[1])
	}
	return h
}
