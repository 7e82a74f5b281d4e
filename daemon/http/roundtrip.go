package httpd

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// RoundTrip sends a request over a connection, which it closes, and returns the whole answer of an engine process. It
// takes the time within at most.
func RoundTrip(fd int, r *http.Request, body []byte, within time.Duration) (status int, answer []byte, err error) {
	file := os.NewFile(uintptr(fd), "engine")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return 0, nil, err
	}
	out := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: uma\r\nConnection: close\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n",
		r.Method, r.URL.RequestURI(), len(body))
	if _, err := conn.Write(append(out, body...)); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, answer, err
}

// maxAnswer bounds what an engine process may answer the front.
const maxAnswer = 16 << 20
