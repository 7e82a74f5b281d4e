package toolbox

import (
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/metrics"
)

// values read the metrics of a server from its counts.
var values = map[string]func(c *Counts, value func(v float64, labels ...string)){
	metrics.FrontMCPCalls: func(c *Counts, value func(float64, ...string)) {
		each(Results[:], c.Calls[:], "result", value)
	},
	metrics.FrontMCPLists: func(c *Counts, value func(float64, ...string)) {
		each(Results[:], c.Lists[:], "result", value)
	},
	metrics.FrontMCPRefused: func(c *Counts, value func(float64, ...string)) {
		each(setup.Refusals[:], c.Refused[:], "reason", value)
	},
	metrics.FrontMCPSeconds:  func(c *Counts, value func(float64, ...string)) { value(c.CallTime.Seconds()) },
	metrics.FrontMCPSent:     func(c *Counts, value func(float64, ...string)) { value(float64(c.Sent)) },
	metrics.FrontMCPReceived: func(c *Counts, value func(float64, ...string)) { value(float64(c.Received)) },
	metrics.FrontMCPInside:   func(c *Counts, value func(float64, ...string)) { value(float64(c.Inside)) },
	metrics.FrontMCPStarts:   func(c *Counts, value func(float64, ...string)) { value(float64(c.Starts)) },
	metrics.FrontMCPRunning: func(c *Counts, value func(float64, ...string)) {
		if c.Running {
			value(1)
		} else {
			value(0)
		}
	},
}

// each gives the counts of a server by their names.
func each(names []string, counts []uint64, label string, value func(float64, ...string)) {
	for i, name := range names {
		value(float64(counts[i]), label, name)
	}
}

// Metric gives the values of one of metrics.Front for all servers, with their labels; false: it is none of a server.
// The box may be nil.
func (b *Box) Metric(name string, value func(v float64, labels ...string)) bool {
	read := values[name]
	if read == nil {
		return false
	}
	if b != nil {
		for _, server := range b.Names() {
			c := b.Counts(server)
			read(&c, func(v float64, labels ...string) { value(v, append([]string{"server", server}, labels...)...) })
		}
	}
	return true
}
