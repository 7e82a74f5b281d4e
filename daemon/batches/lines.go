package batches

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

// lines reads JSON lines; f returns whether to continue.
func lines(in io.Reader, f func(text []byte) bool) error {
	s := bufio.NewScanner(in)
	s.Buffer(nil, 2*maxAnswer)
	for s.Scan() {
		if !f(bytes.TrimSpace(s.Bytes())) {
			return nil
		}
	}
	return s.Err()
}

// marshal returns the line of v. It escapes no "<", which would make a line longer than lines reads.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return out.Bytes(), err
}

func seconds(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, longestRetry)
}
