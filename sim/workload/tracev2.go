package workload

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// TraceHeader is the YAML half of a TraceV2: what made the trace.
type TraceHeader struct {
	Version        int            `yaml:"trace_version"`
	TimeUnit       string         `yaml:"time_unit"`
	Mode           string         `yaml:"mode"` // generated, real, replayed
	WarmUpRequests int            `yaml:"warm_up_requests"`
	WorkloadSeed   *int64         `yaml:"workload_seed,omitempty"`
	WorkloadSpec   string         `yaml:"workload_spec,omitempty"`
	CreatedAt      string         `yaml:"created_at,omitempty"`
	Server         map[string]any `yaml:"server,omitempty"`
	Network        map[string]any `yaml:"network,omitempty"`
}

// ParseTraceHeader reads a TraceV2 header. Unknown keys are errors.
func ParseTraceHeader(data []byte) (*TraceHeader, error) {
	h := &TraceHeader{}
	if err := yaml.UnmarshalWithOptions(data, h, yaml.DisallowUnknownField()); err != nil {
		return nil, fmt.Errorf("trace header: %w", err)
	}
	switch {
	case h.Version != 2:
		return nil, fmt.Errorf("trace header: trace_version = %d: only 2 can be read", h.Version)
	case h.TimeUnit != "microseconds":
		return nil, fmt.Errorf("trace header: time_unit %q: must be microseconds", h.TimeUnit)
	case h.Mode != "generated" && h.Mode != "real" && h.Mode != "replayed":
		return nil, fmt.Errorf("trace header: mode %q: must be generated, real or replayed", h.Mode)
	case h.WarmUpRequests < 0:
		return nil, fmt.Errorf("trace header: warm_up_requests = %d: must be ≥ 0", h.WarmUpRequests)
	}
	return h, nil
}

// WriteTraceHeader writes the header of a generated trace.
func WriteTraceHeader(w io.Writer, seed *int64) error {
	_, err := io.WriteString(w, "trace_version: 2\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n")
	if err == nil && seed != nil {
		_, err = fmt.Fprintf(w, "workload_seed: %d\n", *seed)
	}
	return err
}

// v2Columns are TraceV2's columns, in their fixed order. A file's header line is ignored; more columns may
// follow.
var v2Columns = strings.Split("request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,"+
	"prefix_length,streaming,"+
	"input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,"+
	"server_input_tokens,"+
	"arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason",
	",")

const (
	v2ID = iota
	v2Client
	v2Tenant
	v2Class
	v2Session
	v2Round
	v2Prefix
	v2PrefixLen
	v2Streaming
	v2Input
	v2Output
	v2ReasonRatio = 15
	v2Model       = 16
	v2Deadline    = 17
	v2Arrival     = 19
)

// ReadTraceV2 reads the CSV half of a TraceV2. A row's input_tokens are those behind the shared prefix; a group's
// prefix has the length that its first row says. The budget of each request is its output length.
func ReadTraceV2(in io.Reader) ([]Request, error) {
	cr := csv.NewReader(bufio.NewReaderSize(in, 1<<16))
	cr.ReuseRecord, cr.FieldsPerRecord = true, -1
	if _, err := cr.Read(); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("trace: the file is empty")
		}
		return nil, fmt.Errorf("trace: %w", err)
	}
	var rows []Request
	groups := map[string]int{}
	for {
		rec, err := cr.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		line, _ := cr.FieldPos(0)
		r, err := v2Row(rec, groups)
		if err != nil {
			return nil, fmt.Errorf("trace: line %d: %w", line, err)
		}
		r.Index = int64(len(rows))
		if r.Name == "request_"+strconv.Itoa(len(rows)) {
			r.Name = ""
		}
		rows = append(rows, r)
	}
}

func v2Row(rec []string, groups map[string]int) (r Request, err error) {
	if len(rec) < len(v2Columns) {
		return r, fmt.Errorf("%d columns: the %d of TraceV2 are needed, the first missing is %s", len(rec),
			len(v2Columns), v2Columns[len(rec)])
	}
	num := func(j int) int64 {
		if rec[j] == "" {
			return 0
		}
		n, e := strconv.ParseInt(rec[j], 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("%s = %.40q: must be a whole number", v2Columns[j], rec[j])
		}
		return n
	}
	text := func(j int) string { return strings.Clone(rec[j]) }
	if rec[v2ID] == "" {
		return r, errors.New("request_id is empty")
	}
	id := num(v2ID)
	input, output, prefix, round := num(v2Input), num(v2Output), num(v2PrefixLen), num(v2Round)
	r = Request{Name: "request_" + strconv.FormatInt(id, 10), Client: text(v2Client), Tenant: text(v2Tenant),
		Class:   text(v2Class),
		Session: text(v2Session), Prefix: text(v2Prefix), Model: text(v2Model), Deadline: num(v2Deadline),
		Arrival:   num(v2Arrival),
		Streaming: rec[v2Streaming] == "true"}
	if err != nil {
		return r, err
	}
	for _, f := range []struct {
		column int
		v      int64
	}{{v2Input, input}, {v2Output, output}, {v2PrefixLen, prefix}, {v2Round, round}} {
		if f.v < 0 || f.v > MaxTokens/2 {
			return r, fmt.Errorf("%s = %d: must be between 0 and %d", v2Columns[f.column], f.v, MaxTokens/2)
		}
	}
	if s := rec[v2ReasonRatio]; s != "" {
		if r.ReasonRatio, err = strconv.ParseFloat(s, 64); err != nil || !(r.ReasonRatio >= 0 && r.ReasonRatio <= 1) {
			return r, fmt.Errorf("reason_ratio = %.40q: must be in [0, 1]", s)
		}
	}
	if r.Prefix != "" {
		if _, known := groups[r.Prefix]; !known {
			groups[r.Prefix] = int(prefix)
		}
		r.PrefixLen = groups[r.Prefix]
	}
	r.Input, r.Output, r.Budget, r.Round = r.PrefixLen+int(input), int(output), int(output), int(round)
	r.Think = int(r.ReasonRatio * float64(output))
	return r, r.check()
}

// Served is the outcome of a request for a trace; times are microseconds on the trace's clock.
type Served struct {
	FirstUs, LastUs int64 // 0 = never
	Status          string
}

// TraceWriter writes the CSV half of a TraceV2.
type TraceWriter struct{ w *csv.Writer }

// NewTraceWriter writes the header line.
func NewTraceWriter(w io.Writer) (*TraceWriter, error) {
	t := &TraceWriter{csv.NewWriter(w)}
	return t, t.w.Write(v2Columns)
}

// Write writes one row.
func (t *TraceWriter) Write(r *Request, s Served) error {
	d := func(n int64) string { return strconv.FormatInt(n, 10) }
	ratio := strconv.FormatFloat(r.ReasonRatio, 'f', -1, 64)
	return t.w.Write([]string{
		strings.TrimPrefix(r.ID(), "request_"), r.Client, r.Tenant, r.Class, r.Session, strconv.Itoa(r.Round), r.Prefix,
		strconv.Itoa(r.PrefixLen),
		strconv.FormatBool(r.Streaming), strconv.Itoa(r.Input - r.PrefixLen), strconv.Itoa(r.Output), "0", "0", "0",
		"0", ratio, r.Model,
		d(r.Deadline), "0", d(r.Arrival), d(r.Arrival), d(s.FirstUs), d(s.LastUs), "0", s.Status, "", ""})
}

// Flush ends the file.
func (t *TraceWriter) Flush() error {
	t.w.Flush()
	return t.w.Error()
}
