// Package lastwords has the last output to a client of an engine process that has ended: an error in the client's
// protocol, for the place where its answer was cut.
package lastwords

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Say returns the last output to a client that was in the state st with the requests ids, and whether its connection
// stays: an error event for each request in flight, or a whole response if none had begun. Behind a cut frame or event
// no error can follow, and the connection just ends.
func Say(e *wire.Error, st connstate.State, ids []string) (say []byte, stays bool) {
	if st.Cut {
		return nil, false
	}
	switch st.Phase {
	case connstate.Idle:
		return nil, true
	case connstate.Framed:
		for _, id := range ids {
			own := *e
			own.ID = id
			say = wire.AppendError(say, &own)
		}
		return say, !st.Unread
	case connstate.Lines:
		if len(ids) == 0 {
			return nil, !st.Unread
		}
		return wire.AppendErrorLine([]byte{'\n'}, e), false
	case connstate.Reading, connstate.Asked:
		return Response(st.API, e), false
	case connstate.Events, connstate.Values:
		return chunk(lastEvent(st, e), st.Chunked), false
	}
	return nil, false // Resting, Partial
}

// Response returns a whole HTTP response with the error e, which announces the connection's end.
func Response(of connstate.API, e *wire.Error) []byte {
	status, header, body := httpd.Rendered(of, e)
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	header.Set("Connection", "close")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_ = header.Write(&b)
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// lastEvent returns the end of a stream whose answer failed, in the form of its API.
func lastEvent(st connstate.State, e *wire.Error) []byte {
	_, _, body := httpd.Rendered(st.API, e)
	body = bytes.TrimSpace(body)
	switch {
	case st.Phase == connstate.Values:
		return append(body, '\n')
	case st.API == connstate.Gemini: // outside of an event (daemon/api/gemini)
		return append(body, "\n\n"...)
	case st.API == connstate.Anthropic:
		return fmt.Appendf(nil, "event: error\ndata: %s\n\n", body)
	case st.API == connstate.Responses:
		message, err := json.Marshal(e.Message)
		if err != nil {
			panic("lastwords: " + err.Error()) // a string
		}
		return fmt.Appendf(nil, "event: error\ndata: {\"type\":\"error\",\"code\":%q,\"message\":%s,\"param\":null,"+
			"\"sequence_number\":0}\n\n",
			e.Code, message)
	}
	return fmt.Appendf(nil, "data: %s\n\n", body)
}

// chunk returns b as the last part of a body.
func chunk(b []byte, chunked bool) []byte {
	if !chunked {
		return b
	}
	out := fmt.Appendf(nil, "%x\r\n", len(b))
	return append(append(out, b...), "\r\n0\r\n\r\n"...)
}
