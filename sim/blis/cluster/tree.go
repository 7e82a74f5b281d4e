package cluster

// tree is a tournament over n values: the smallest and its lowest index in O(1), a change in O(log n).
type tree struct {
	size int // leaves, a power of two
	v    []int64
	win  []int32 // win[k] is the leaf that won at inner node k; leaf i is node size+i
}

func (t *tree) init(n int, value int64) {
	t.size = 1
	for t.size < n {
		t.size *= 2
	}
	t.v = make([]int64, t.size)
	t.win = make([]int32, 2*t.size)
	for i := range t.v {
		t.v[i] = value
		if i >= n {
			t.v[i] = 1<<63 - 1
		}
		t.win[t.size+i] = int32(i)
	}
	for k := t.size - 1; k > 0; k-- {
		t.play(k)
	}
}

func (t *tree) play(k int) {
	a, b := t.win[2*k], t.win[2*k+1]
	if t.v[b] < t.v[a] {
		a = b
	}
	t.win[k] = a
}

func (t *tree) set(i int, v int64) {
	if t.v[i] == v {
		return
	}
	t.v[i] = v
	for k := (t.size + i) / 2; k > 0; k /= 2 {
		t.play(k)
	}
}

func (t *tree) min() (int, int64) {
	i := t.win[1]
	return int(i), t.v[i]
}

// push and pop keep a binary min-heap of moves.
func push(h *[]move, m move) {
	*h = append(*h, m)
	s := *h
	for i := len(s) - 1; i > 0; {
		p := (i - 1) / 2
		if !s[i].before(s[p]) {
			return
		}
		s[i], s[p] = s[p], s[i]
		i = p
	}
}

func pop(h *[]move) move {
	s := *h
	top, n := s[0], len(s)-1
	s[0] = s[n]
	s[n] = move{}
	s = s[:n]
	*h = s
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			return top
		}
		if c+1 < n && s[c+1].before(s[c]) {
			c++
		}
		if !s[c].before(s[i]) {
			return top
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
}
