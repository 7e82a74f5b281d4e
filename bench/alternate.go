package bench

import (
	"errors"
	"fmt"
	"io"
)

// alternate measures n greedy streams of tokens each on two daemons, rounds times, and the first of the two changes
// each time. A round before the first warms up. connections are those of the n streams. client: see OverheadConfig.
func alternate(sockets [2]string, client func(ClientJob) ([][]int64, error), n, connections, tokens, rounds int,
	log io.Writer) (sides [2][]Side, err error) {
	for round := range rounds + 1 {
		var got [2]Side
		for k := range 2 {
			i := (k + round) % 2
			times, err := client(ClientJob{Socket: sockets[i], Streams: n, Connections: connections, Tokens: tokens,
				Prompt: 4, Round: round})
			if err != nil {
				return sides, err
			}
			gaps := together(times)
			if len(gaps) == 0 {
				return sides, errors.New("the streams never ran at the same time: more tokens per stream are needed")
			}
			got[i] = side(float64(n)*1000/mean(gaps), gaps)
		}
		if round == 0 {
			continue
		}
		if log != nil {
			fmt.Fprintf(log, "%2d streams, round %d: %.1f and %.1f tok/s\n", n, round, got[0].TokensPerSecond,
				got[1].TokensPerSecond)
		}
		sides[0], sides[1] = append(sides[0], got[0]), append(sides[1], got[1])
	}
	return sides, nil
}
