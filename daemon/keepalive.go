package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
)

// The keep_alive of ollama's API: for how long the model of a request stays loaded without another one. An engine
// process tells its front, which unloads models.

// KeepDefault, as the body of LinkKeep, means what the configuration says.
const KeepDefault = math.MinInt64

// keepAlive reads the keep_alive of a request for this process. It counts for the requests of root and of the server's
// user, and with --allow-model-changes for those of everyone.
func (s *Server) keepAlive(r *http.Request, body []byte) {
	e := s.parts.engine
	if !strings.HasPrefix(r.URL.Path, "/api/") || r.Method != http.MethodPost {
		return
	}
	peer, _ := ipc.PeerOf(r.Context())
	if !s.cfg.AllowModelChanges && !s.cfg.Privileged(s.in.Access.OwnerOf(r, peer)) {
		return
	}
	keep := int64(KeepDefault)
	if bytes.Contains(body, []byte(`"keep_alive"`)) {
		var of struct {
			KeepAlive json.RawMessage `json:"keep_alive"`
		}
		if json.Unmarshal(body, &of) != nil { // its handler says what is wrong
			return
		}
		if d, err := parseKeepAlive(of.KeepAlive); err == nil {
			keep = int64(d)
		}
	}
	if e.kept.Swap(keep) != keep {
		_ = e.link.Send(LinkKeep, 0, -1, strconv.AppendInt(nil, keep, 10)) // fails when the front has ended
	}
}

// parseKeepAlive reads a number of seconds or a duration with a unit, also as a text; less than 0 is for ever (-1).
func parseKeepAlive(raw json.RawMessage) (time.Duration, error) {
	text := string(bytes.TrimSpace(raw))
	var s string
	if json.Unmarshal(raw, &s) == nil && s != "" {
		text = s
	}
	d, err := time.ParseDuration(text)
	if seconds, nerr := strconv.ParseFloat(text, 64); nerr == nil {
		d, err = time.Duration(min(seconds, 1e9)*float64(time.Second)), nil
	}
	if err != nil {
		return 0, fmt.Errorf("keep_alive is %.40s; it must be a number of seconds, or a duration such as \"5m\"", text)
	}
	return max(d, -1), nil
}
