package kv

import "github.com/uma-serve/uma-serve/sim/workload"

// index maps block hashes to block ids: open addressing, linear probing, deletion by shifting back. It grows with
// what it holds and never shrinks. A load of at most one half: 32 bytes a block, and a probe is one cache line.
type index struct {
	slots []slot
	n     int
}

type slot struct {
	hash uint64 // 0 = empty
	id   int32
}

func (x *index) get(h uint64) (int32, bool) {
	if x.n == 0 {
		return 0, false
	}
	mask := uint64(len(x.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch s := &x.slots[i]; s.hash {
		case h:
			return s.id, true
		case 0:
			return 0, false
		}
	}
}

func (x *index) set(h uint64, id int32) {
	if 2*(x.n+1) > len(x.slots) {
		x.grow()
	}
	mask := uint64(len(x.slots) - 1)
	i := h & mask
	for x.slots[i].hash != 0 && x.slots[i].hash != h {
		i = (i + 1) & mask
	}
	if x.slots[i].hash == 0 {
		x.n++
	}
	x.slots[i] = slot{h, id}
}

func (x *index) grow() {
	old := x.slots
	x.slots, x.n = make([]slot, max(64, 2*len(old))), 0
	for _, s := range old {
		if s.hash != 0 {
			x.set(s.hash, s.id)
		}
	}
}

func (x *index) delete(h uint64) {
	if x.n == 0 {
		return
	}
	mask := uint64(len(x.slots) - 1)
	i := h & mask
	for x.slots[i].hash != h {
		if x.slots[i].hash == 0 {
			return
		}
		i = (i + 1) & mask
	}
	x.n--
	for j := (i + 1) & mask; x.slots[j].hash != 0; j = (j + 1) & mask {
		// The entry at j may fill the hole at i unless its home lies cyclically in (i, j].
		if home := x.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			x.slots[i] = x.slots[j]
			i = j
		}
	}
	x.slots[i].hash = 0
}

// chain returns the hash of a block given its parent's; 0 stands for "no parent" and "no hash".
func chain(parent, content uint64) uint64 {
	if h := workload.Mix64(parent*0xff51afd7ed558ccd + content); h != 0 {
		return h
	}
	return 1
}
