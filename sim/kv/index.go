package kv

// index maps block hashes to block ids: open addressing, linear probing, deletion by shifting back. It grows with
// what it holds and never shrinks. 12 bytes an entry at a load of at most one half.
type index struct {
	keys []uint64 // 0 = empty
	ids  []int32
	n    int
}

func (x *index) get(h uint64) (int32, bool) {
	if x.n == 0 {
		return 0, false
	}
	mask := uint64(len(x.keys) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch x.keys[i] {
		case h:
			return x.ids[i], true
		case 0:
			return 0, false
		}
	}
}

func (x *index) set(h uint64, id int32) {
	if 2*(x.n+1) > len(x.keys) {
		x.grow()
	}
	mask := uint64(len(x.keys) - 1)
	i := h & mask
	for x.keys[i] != 0 && x.keys[i] != h {
		i = (i + 1) & mask
	}
	if x.keys[i] == 0 {
		x.n++
	}
	x.keys[i], x.ids[i] = h, id
}

func (x *index) grow() {
	old, ids := x.keys, x.ids
	size := max(64, 2*len(old))
	x.keys, x.ids, x.n = make([]uint64, size), make([]int32, size), 0
	for i, h := range old {
		if h != 0 {
			x.set(h, ids[i])
		}
	}
}

func (x *index) delete(h uint64) {
	if x.n == 0 {
		return
	}
	mask := uint64(len(x.keys) - 1)
	i := h & mask
	for x.keys[i] != h {
		if x.keys[i] == 0 {
			return
		}
		i = (i + 1) & mask
	}
	x.n--
	for j := (i + 1) & mask; x.keys[j] != 0; j = (j + 1) & mask {
		// The entry at j may fill the hole at i unless its home lies cyclically in (i, j].
		if home := x.keys[j] & mask; (j-home)&mask >= (j-i)&mask {
			x.keys[i], x.ids[i] = x.keys[j], x.ids[j]
			i = j
		}
	}
	x.keys[i] = 0
}
