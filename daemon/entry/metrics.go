package entry

import (
	"fmt"

	"github.com/uma-serve/uma-serve/daemon/access"
	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/tlspipe"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// bindMetrics connects the metrics to the counters of the poller and of the log, and declares label values.
func (e *Entry) bindMetrics() {
	c := e.Loop.Stats()
	e.Metrics.BindIO(metrics.IO{
		Accepted: c.Accepted.Load, Refused: c.RefusedTotal, RxBytes: c.RxBytes.Load, TxBytes: c.TxBytes.Load,
		Errors: c.IOErrors.Load, Sessions: c.Sessions.Load,
		Closed: func() (n uint64) {
			for i := range c.Closed {
				n += c.Closed[i].Load()
			}
			return n
		},
		RefusedBy: metrics.Counts{Names: labels(ipc.Refusals()),
			Get: func(i int) uint64 { return c.Refused[ipc.Refusals()[i]].Load() }},
		Handshakes: e.handshakes(),
		ClosedBy:   metrics.Counts{Names: labels(ipc.Causes()), Get: func(i int) uint64 { return c.Closed[i].Load() }},
		AcceptedBy: metrics.Counts{Names: addresses(e.Listeners),
			Get: func(i int) uint64 { return e.Listeners[i].Accepted() }},

		ProtocolErrors: metrics.Counts{Names: codeNames(),
			Get: func(i int) uint64 { return c.ProtocolErrors(ipc.MessageErrors[i]) }},
	})
	if l := logq.Of(e.Log); l != nil {
		e.Metrics.BindLog(func() metrics.Log {
			st := l.Stats()
			return metrics.Log{Lines: st.Lines, Dropped: st.Dropped, Suppressed: st.Suppressed}
		})
	}
	for _, c := range wire.Codes {
		e.Metrics.RejectReasons.Declare(string(c))
	}
	e.Metrics.HTTPRefused.Declare(access.RefusedHost, access.RefusedOrigin, access.RefusedUser, access.RefusedKey)
}

// handshakes counts those of TLS.
func (e *Entry) handshakes() metrics.Counts {
	if e.tls == nil {
		return metrics.Counts{}
	}
	return metrics.Counts{Names: labels(tlspipe.Handshakes()),
		Get: func(i int) uint64 { return e.tls.Count(tlspipe.Handshakes()[i]) }}
}

// addresses returns the values of the label "listener": the TCP addresses, and "unix".
func addresses(lns []*ipc.Listener) []string {
	names := make([]string, len(lns))
	for i, ln := range lns {
		if names[i] = ln.Network(); ln.TCP().IsValid() {
			names[i] = ln.Address()
		}
	}
	return names
}

// labels returns the names of values, for a metric's label.
func labels[T fmt.Stringer](values []T) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	return names
}

func codeNames() []string {
	names := make([]string, len(ipc.MessageErrors))
	for i, c := range ipc.MessageErrors {
		names[i] = string(c)
	}
	return names
}
