package bench

import (
	"encoding/binary"
	"fmt"
)

// ClientJob is a measuring client's work: Streams greedy answers at once, over Connections connections.
type ClientJob struct {
	Socket                                      string
	Streams, Connections, Tokens, Prompt, Round int
	// Text is the prompt of every stream; "" = texts of about Prompt tokens, one for each stream and round.
	Text string
	// Bound is the number of streams, counted from the first, whose answers are JSON of a schema. Such a stream may
	// have fewer times than tokens: a character of several tokens is one event.
	Bound int
}

// EncodeTimes and DecodeTimes carry RunClient's result between processes: of each stream the number of its times, and
// the times.
func EncodeTimes(times [][]int64) []byte {
	var b []byte
	for _, ts := range times {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(ts)))
		for _, t := range ts {
			b = binary.LittleEndian.AppendUint64(b, uint64(t))
		}
	}
	return b
}

// DecodeTimes is the inverse of EncodeTimes for a job.
func DecodeTimes(b []byte, j ClientJob) ([][]int64, error) {
	next := func() (v int64) {
		if len(b) >= 8 {
			v, b = int64(binary.LittleEndian.Uint64(b)), b[8:]
		}
		return v
	}
	out := make([][]int64, j.Streams)
	for i := range out {
		n := next()
		if n < 1 || n > int64(j.Tokens) || n > int64(len(b)/8) || i >= j.Bound && n != int64(j.Tokens) {
			return nil, fmt.Errorf("the client wrote %d times of stream %d, want %d", n, i, j.Tokens)
		}
		for range n {
			out[i] = append(out[i], next())
		}
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("the client wrote %d bytes too many", len(b))
	}
	return out, nil
}
