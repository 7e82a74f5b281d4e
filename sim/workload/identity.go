package workload

// Identity says which tokens a request's positions hold: positions below BaseLen are those of Base, those up to
// PrefixLen of stream Prefix, the others of stream Own. Prompt and generated tokens share one position axis. Requests
// of one session that continue each other's context share Own, so that a later round finds what an earlier one
// computed.
type Identity struct {
	Base      *Identity // nil = none
	BaseLen   int       // tokens
	Prefix    uint64
	PrefixLen int // tokens
	Own       uint64
	Private   bool // no other request has tokens of Own
}

// NamedStream returns the stream of a named prefix group or session.
func NamedStream(name string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a, 64 bits
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return Mix64(h ^ 0x6e616d6564) // apart from the numbered ones
}

// NumberedStream returns the stream of the i-th request of a workload.
func NumberedStream(i int64) uint64 { return Mix64(uint64(i) + 0x9e3779b97f4a7c15) }

// Block returns a number for the tokens [pos, pos+size): equal for equal tokens. A block that crosses the end of the
// prefix belongs to Own, because its last token does.
func (id *Identity) Block(pos, size int) uint64 {
	for id.Base != nil && pos+size <= id.BaseLen {
		id = id.Base
	}
	stream := id.Own
	if pos+size <= id.PrefixLen {
		stream = id.Prefix
	}
	return stream + uint64(pos)*spread
}

// spread keeps the positions of a stream apart.
const spread = 0xd6e8feb86659fd93

// AppendTokens appends the tokens of positions [from, to) as ids ≥ 0, for code that compares tokens: they are equal
// where two identities agree, and differ elsewhere but for collisions of 31 bits.
func (id *Identity) AppendTokens(dst []int32, from, to int) []int32 {
	if id.Base != nil && from < id.BaseLen {
		n := min(to, id.BaseLen)
		dst = id.Base.AppendTokens(dst, from, n)
		from = n
	}
	for pos := from; pos < to; pos++ {
		stream := id.Own
		if pos < id.PrefixLen {
			stream = id.Prefix
		}
		dst = append(dst, int32(Mix64(stream+uint64(pos)*spread)>>33))
	}
	return dst
}

// Mix64 is the finaliser of splitmix64: a bijection in which every input bit changes half of the output.
func Mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
