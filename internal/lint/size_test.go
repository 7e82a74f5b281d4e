package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file has one subject, a package has one job, and a reader holds a struct in mind: beyond these sizes each of them
// had several when they were looked at.
const (
	maxFileLines    = 500
	maxTestLines    = 1000
	maxPackageLines = 5000 // without tests
	maxFields       = 30
)

// allowance lets a package or a struct be larger than the rule, up to most; 0 = no limit, for tables. It goes when
// it is no longer needed.
type allowance struct {
	most int
	why  string
}

var largePackages = map[string]allowance{}

var largeStructs = map[string]allowance{
	"bench/report.Report":           {0, "a file's fields, by name"},
	"client.Request":                {0, "the protocol's fields, by name"},
	"client.Sampling":               {0, "the table of sampling parameters"},
	"client/gollama.PredictOptions": {0, "another library's options"},
	"daemon/api/llamaform.Settings": {0, "a foreign API's fields, by name"},
	"daemon/config.Config":          {0, "the table of options"},
	"ipc/wire.Request":              {0, "the protocol's fields, by name"},
	"metrics.Metrics":               {0, "the table of metrics"},
	"model/gguf.Info":               {0, "a file's facts, by name"},
	"runtime/llama.engine":          {36, "a C context and what is known about it"},
	"sampler.Params":                {0, "the table of sampling parameters"},
	"sim.Config":                    {0, "the table of the simulator's options"},
	"sim/workload.Request":          {0, "a recorded request's fields, by name"},
}

// widestReach are the structs that have more than maxFields behind their dot when those of embedded structs are
// counted: how many, which only goes down, and why they are embedded; 0 = no limit, for what embeds a table.
var widestReach = map[string]allowance{
	"cmd/uma-cli.inspection":     {0, "a file's facts, and those about the file"},
	"core.Core":                  {33, "the state of restores"},
	"core.Request":               {65, "what a request asks, and where core has it"},
	"daemon.request":             {89, "core's request, with its connection's side"},
	"daemon/api/gemini.asked":    {0, "the protocol's fields, and those of a foreign API"},
	"daemon/front.Front":         {44, "groups by what they are for"},
	"daemon/front.served":        {38, "a model, and the record of its processes"},
	"daemon/prepare.Prepared":    {53, "core's request, and what its answer needs"},
	"grammar.automaton":          {34, "memory that is reused, and keys"},
	"ipc.Conn":                   {44, "fields by the goroutine that owns them"},
	"ipc.Loop":                   {40, "fields by the goroutine that owns them"},
	"ipc/wire/reports.InfoModel": {0, "a model's facts, by name"},
	"meridian.Control":           {37, "a router, and the budget of its thoughts"},
	"model/toolcall.Parser":      {42, "the call that is being read"},
	"models/store.Header":        {0, "a file's facts, and their digest"},
	"runtime/fake.Config":        {0, "an engine's options, and the fake's"},
	"runtime/llama.engine":       {42, "what a step in flight, heads, rankings and images need"},
	"runtime/llama.head":         {45, "an engine that is a head"},
	"sched.Config":               {32, "the table of a scheduler's options"},
	"sim.Engine":                 {31, "the state of a step"},
	"sim.request":                {32, "a recorded request, and its progress"},
	"sim.served":                 {0, "core's request"},
	"sim/blis.Config":            {0, "the table of options, and BLIS's"},
	"sim/synthetic.request":      {0, "a recorded request's fields, by name"},

	"internal/wireclient/clienttest.Request": {0, "the protocol's fields, and those of a test"},
}

// tooLarge reports what is wrong with a size beside its rule and its allowance.
func tooLarge(what string, size, rule int, allowed map[string]allowance) string {
	a, ok := allowed[what]
	switch {
	case !ok && size > rule:
		return fmt.Sprintf("%s has %d, the maximum is %d: divide it", what, size, rule)
	case ok && a.most > 0 && size > a.most:
		return fmt.Sprintf("%s has %d, it may have %d (%s): divide it", what, size, a.most, a.why)
	case ok && size <= rule:
		return fmt.Sprintf("%s has %d: it needs no allowance any more", what, size)
	}
	return ""
}

// TestSizes: files, packages and structs are small enough to have one subject each.
func TestSizes(t *testing.T) {
	packages, structs, reach := map[string]int{}, map[string]int{}, map[string]int{}
	all := structTypes(sources(t))
	for name, d := range all {
		structs[name] = d.typ.Fields.NumFields()
		if a, ok := largeStructs[name]; !ok || a.most > 0 { // a table may have as many as it likes
			reach[name] = all.reach(name)
		}
	}
	for _, s := range sources(t) {
		b, err := os.ReadFile(filepath.Join("../..", s.path))
		if err != nil {
			t.Fatal(err)
		}
		lines, rule := strings.Count(string(b), "\n"), maxFileLines
		if s.test {
			rule = maxTestLines
		} else {
			packages[s.dir] += lines
		}
		if wrong := tooLarge(s.path, lines, rule, nil); wrong != "" {
			t.Error(wrong)
		}
	}
	for _, of := range []struct {
		sizes   map[string]int
		rule    int
		allowed map[string]allowance
	}{{packages, maxPackageLines, largePackages}, {structs, maxFields, largeStructs},
		{reach, maxFields, widestReach}} {
		for name, size := range of.sizes {
			if wrong := tooLarge(name, size, of.rule, of.allowed); wrong != "" {
				t.Error(wrong)
			}
		}
		for name := range of.allowed {
			if _, ok := of.sizes[name]; !ok {
				t.Errorf("%s has an allowance and does not exist", name)
			}
		}
	}
	for name, a := range widestReach {
		if n := reach[name]; n < a.most {
			t.Errorf("%s has %d fields in reach, and may have %d: lower its allowance", name, n, a.most)
		}
	}
	a := map[string]allowance{"x": {12, ""}, "table": {0, ""}}
	for _, c := range []struct {
		what string
		size int
		ok   bool
	}{{"y", 10, true}, {"y", 11, false}, {"x", 12, true}, {"x", 13, false}, {"x", 10, false}, {"table", 99, true}} {
		if got := tooLarge(c.what, c.size, 10, a); (got == "") != c.ok {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
