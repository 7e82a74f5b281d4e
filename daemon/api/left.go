package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// HeaderIgnored is the header of an answer that lists the fields of the request's body that this server does not know.
const HeaderIgnored = "X-Uma-Ignored"

// left are the unknown fields of one HTTP request's body. They are left out and told: new fields of clients must not
// break them. Without it, which is --strict-fields, an unknown field is refused.
type left struct {
	s      *Server
	r      *http.Request
	header http.Header // of the answer
	wire.Strays
	told int // entries of List that were counted and logged
}

type leftKey struct{}

// Telling returns a handler whose bodies may have unknown fields, unless s refuses them.
func (s *Server) Telling(next http.HandlerFunc) http.HandlerFunc {
	if s.StrictFields {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		l := &left{s: s, r: r, header: w.Header()}
		next(w, r.WithContext(context.WithValue(r.Context(), leftKey{}, l)))
	}
}

// leftOf returns where the unknown fields of r's body go; nil: they are refused.
func leftOf(r *http.Request) *left {
	l, _ := r.Context().Value(leftKey{}).(*left)
	return l
}

// tell says in the header, the metrics and the log what was added since the last call.
func (l *left) tell() {
	if len(l.List) == 0 {
		return
	}
	l.header.Set(HeaderIgnored, headerText(l.text(true)))
	if more := l.List[l.told:]; len(more) > 0 {
		if l.s.CountIgnored != nil {
			l.s.CountIgnored(len(more))
		}
		for _, f := range more {
			l.s.told.log(l, f)
		}
		l.told = len(l.List)
	}
}

// text lists the fields. In a header's list a comma of a name would begin another one.
func (l *left) text(header bool) string {
	var b strings.Builder
	for i, f := range l.List {
		if i > 0 {
			b.WriteString(", ")
		}
		if header {
			f.Name = strings.ReplaceAll(f.Name, ",", "?")
		}
		if b.WriteString(f.Name); f.Meant != "" {
			b.WriteString(" (did you mean " + f.Meant + "?)")
		}
	}
	if l.More > 0 {
		fmt.Fprintf(&b, ", and %d more", l.More)
	}
	return b.String()
}

// ignoredReason is the reason of the note in a request's decisions. The header names the fields already, so that no
// Warning does.
const ignoredReason = "fields_ignored"

// note returns the note for why.
func (l *left) note() wire.Note {
	return wire.Note{Reason: ignoredReason, Times: len(l.List) + l.More,
		Text: "Fields of the request that this server does not know were left out: " + l.text(false) + "."}
}

const (
	maxTold       = 1024 // pairs of a client and a field that are remembered
	maxAgentBytes = 80
)

// toldFields are the fields that were logged, each once for a client: its user and its User-Agent.
type toldFields struct {
	mu   sync.Mutex
	told map[string]struct{}
}

func (t *toldFields) log(l *left, f wire.Stray) {
	agent := l.r.UserAgent()
	agent = strings.ToValidUTF8(agent[:min(len(agent), maxAgentBytes)], "")
	owner := l.s.Owner(l.r.Context())
	key := fmt.Sprintf("%d %s %s", owner, f.Name, agent)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.told[key]; known || len(t.told) > maxTold {
		return
	}
	if t.told == nil {
		t.told = map[string]struct{}{}
	}
	if t.told[key] = struct{}{}; len(t.told) > maxTold {
		l.s.Log.Info("no further unknown fields are logged", "fields", maxTold)
		return
	}
	log := l.s.Log.With("field", f.Name, "path", l.r.URL.Path, "user_agent", agent, "uid", owner)
	if f.Meant != "" {
		log = log.With("did_you_mean", f.Meant)
	}
	log.Info("a request has a field that this server does not know: it is left out")
}

// Strays notes the unknown members of a taken field's value that is decoded as a type of of.
func (b *Body) strays(dst any) {
	if b.left == nil {
		return
	}
	shape := shapeOf(dst)
	for _, m := range b.taken {
		if inner := shape.Inner[m.name]; inner != nil {
			inner.Strays(m.value, b.under+m.name, &b.left.Strays)
		}
	}
	b.left.tell()
}

// unknown leaves a field out that no table has, or returns the error for it.
func (b *Body) unknown(name string, table Table) error {
	switch {
	case b.left == nil && (name == "event" || name == "type"):
		return Refusef("field %q belongs to the framed protocol; leave it out", name)
	case b.left == nil:
		return Refuse(wire.UnknownField(name).Error())
	case len(b.left.List) < wire.MaxStrays && wire.Nearest(name, table.names()) != "":
		b.left.Add(b.under, name, table.names())
	default:
		b.left.AddField(b.under, name)
	}
	return nil
}

// names returns the names of the fields that are taken.
func (t Table) names() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, f := range t {
			if f.Use == Taken && !yield(f.Name) {
				return
			}
		}
	}
}

// Alone leaves out the fields without a row in the table, of an endpoint that makes no request of them; or it returns
// the error.
func (b *Body) Alone() error {
	for _, m := range b.passed {
		if b.left == nil {
			return Refusef("field %q is not known here; docs/http.md lists the fields", m.name)
		}
		b.left.Add(b.under, m.name, slices.Values([]string(nil)))
	}
	b.passed = nil
	if b.left != nil {
		b.left.tell()
	}
	return nil
}
