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
}

// EncodeTimes and DecodeTimes carry RunClient's result between processes: the times of each stream, all of one length.
func EncodeTimes(times [][]int64) []byte {
	var b []byte
	for _, ts := range times {
		for _, t := range ts {
			b = binary.LittleEndian.AppendUint64(b, uint64(t))
		}
	}
	return b
}

// DecodeTimes is the inverse of EncodeTimes for a job.
func DecodeTimes(b []byte, j ClientJob) ([][]int64, error) {
	if want := 8 * j.Streams * j.Tokens; len(b) != want {
		return nil, fmt.Errorf("the client wrote %d bytes, want %d", len(b), want)
	}
	out := make([][]int64, j.Streams)
	for i := range out {
		for range j.Tokens {
			out[i] = append(out[i], int64(binary.LittleEndian.Uint64(b)))
			b = b[8:]
		}
	}
	return out, nil
}
