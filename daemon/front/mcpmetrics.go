package front

import (
	"github.com/uma-serve/uma-serve/daemon/toolbox"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/metrics"
)

// mcpMetrics read the metrics of an MCP server from its counts.
var mcpMetrics = map[string]func(c *toolbox.Counts, value func(v float64, labels ...string)){
	metrics.FrontMCPCalls: func(c *toolbox.Counts, value func(float64, ...string)) {
		each(toolbox.Results[:], c.Calls[:], resultLabel, value)
	},
	metrics.FrontMCPLists: func(c *toolbox.Counts, value func(float64, ...string)) {
		each(toolbox.Results[:], c.Lists[:], resultLabel, value)
	},
	metrics.FrontMCPRefused: func(c *toolbox.Counts, value func(float64, ...string)) {
		each(setup.Refusals[:], c.Refused[:], "reason", value)
	},
	metrics.FrontMCPSeconds: func(c *toolbox.Counts, value func(float64, ...string)) {
		value(c.CallTime.Seconds())
	},
	metrics.FrontMCPSent:     func(c *toolbox.Counts, value func(float64, ...string)) { value(float64(c.Sent)) },
	metrics.FrontMCPReceived: func(c *toolbox.Counts, value func(float64, ...string)) { value(float64(c.Received)) },
	metrics.FrontMCPInside:   func(c *toolbox.Counts, value func(float64, ...string)) { value(float64(c.Inside)) },
	metrics.FrontMCPStarts:   func(c *toolbox.Counts, value func(float64, ...string)) { value(float64(c.Starts)) },
	metrics.FrontMCPRunning: func(c *toolbox.Counts, value func(float64, ...string)) {
		if c.Running {
			value(1)
		} else {
			value(0)
		}
	},
}

// each writes the counts of a server by their names.
func each(names []string, counts []uint64, label string, value func(float64, ...string)) {
	for i, name := range names {
		value(float64(counts[i]), label, name)
	}
}

// mcpMetric writes the values of a metric of MCP servers; false: it is another one.
func (f *Front) mcpMetric(name string, value func(v float64, labels ...string)) bool {
	read := mcpMetrics[name]
	if read == nil {
		return false
	}
	if f.box != nil {
		for _, server := range f.box.Names() {
			c := f.box.Counts(server)
			read(&c, func(v float64, labels ...string) { value(v, append([]string{"server", server}, labels...)...) })
		}
	}
	return true
}
