package masks

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
)

// Case is a schema with instances.
type Case struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
	Tests  []Instance      `json:"tests"`
}

// Instance is a JSON value, valid for its schema or not.
type Instance struct {
	Valid bool            `json:"valid"`
	Data  json.RawMessage `json:"data"`
}

// maxLine bounds one line of a file of cases, in bytes.
const maxLine = 64 << 20

// Read reads a case a line from path, which may be compressed with gzip.
func Read(path string) ([]Case, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var out []Case
	for lines.Scan() {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		var c Case
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(out)+1, err)
		}
		out = append(out, c)
	}
	return out, lines.Err()
}

// Outcome is the result of one case: its errors, nil if it passes, and its times.
type Outcome struct {
	Name         string
	Compile      error // the schema was refused
	Validation   error // a valid instance was rejected
	Invalidation error // an invalid instance was accepted
	First        time.Duration
	Masks        []time.Duration
}

// Passes reports whether nothing went wrong.
func (o *Outcome) Passes() bool {
	return o.Compile == nil && o.Validation == nil && o.Invalidation == nil
}

// Options are the settings with which schemas are compiled.
type Options struct {
	Schema jsonschema.Options
	Limits jsonschema.Limits
}

// DefaultOptions accepts every text of a valid instance: the members of instances are in any order.
func DefaultOptions() Options { return Options{Schema: jsonschema.Options{AnyForm: true}} }

// Run measures cases one after another on t's vocabulary. each is called after each case; it may be nil.
func Run(cases []Case, t *Tokenizer, o Options, each func(done int, o *Outcome)) []Outcome {
	v := grammar.NewVocabulary(t.Pieces, t.Ends)
	out := make([]Outcome, len(cases))
	for i := range cases {
		out[i] = run(&cases[i], t, v, o)
		if each != nil {
			each(i+1, &out[i])
		}
	}
	return out
}

func run(c *Case, t *Tokenizer, v *grammar.Vocabulary, o Options) (out Outcome) {
	out.Name = c.Name
	defer func() {
		if e := recover(); e != nil {
			out.Validation = fmt.Errorf("panic: %v\n%s", e, debug.Stack())
		}
	}()
	began := time.Now()
	g, err := jsonschema.Compile(c.Schema, o.Schema, o.Limits)
	if err != nil {
		out.Compile = err
		return out
	}
	m := grammar.NewMatcher(g, v)
	m.Mask()
	out.First = time.Since(began)
	for i, test := range c.Tests {
		text, err := Dumps(test.Data)
		if err != nil {
			out.Validation = fmt.Errorf("instance %d: %w", i, err)
			return out
		}
		m.Reset()
		at, ok := out.follow(m, t.Encode(text))
		if err := m.Err(); err != nil {
			out.Validation = fmt.Errorf("instance %d: %w", i, err)
			return out
		}
		switch {
		case ok && !test.Valid:
			out.Invalidation = fmt.Errorf("instance %d is invalid and was accepted: %.300s", i, text)
		case !ok && test.Valid:
			from := len(t.Text(t.Encode(text)[:at]))
			out.Validation = fmt.Errorf("instance %d is valid and was rejected at %q: %.300s", i,
				text[from:min(from+20, len(text))], text)
		}
	}
	return out
}

// Text returns the bytes of tokens.
func (t *Tokenizer) Text(tokens []int32) []byte {
	var out []byte
	for _, id := range tokens {
		out = append(out, t.Pieces[id]...)
	}
	return out
}

// follow times the mask of each token and takes it where it is allowed. It returns the token that was not, and whether
// the whole text was taken and may end.
func (o *Outcome) follow(m *grammar.Matcher, tokens []int32) (at int, ok bool) {
	for i, t := range tokens {
		began := time.Now()
		allowed := m.Mask()[t/32]>>(t%32)&1 != 0
		if allowed && m.Accept(t) != nil {
			allowed = false
		}
		o.Masks = append(o.Masks, time.Since(began))
		if !allowed {
			return i, false
		}
	}
	return len(tokens), m.MayEnd()
}

// Dumps writes a JSON value as Python's json.dumps(value, ensure_ascii=False) does, as MaskBench tokenizes it: a space
// behind commas and colons, members in their order.
func Dumps(data []byte) (string, error) {
	var p fastjson.Parser
	v, err := p.ParseBytes(data)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	dump(&b, v)
	return b.String(), nil
}

func dump(b *strings.Builder, v *fastjson.Value) {
	switch v.Type() {
	case fastjson.TypeObject:
		b.WriteByte('{')
		first := true
		v.GetObject().Visit(func(key []byte, v *fastjson.Value) {
			if !first {
				b.WriteString(", ")
			}
			first = false
			writeString(b, string(key))
			b.WriteString(": ")
			dump(b, v)
		})
		b.WriteByte('}')
	case fastjson.TypeArray:
		b.WriteByte('[')
		for i, it := range v.GetArray() {
			if i > 0 {
				b.WriteString(", ")
			}
			dump(b, it)
		}
		b.WriteByte(']')
	case fastjson.TypeString:
		writeString(b, string(v.GetStringBytes()))
	default:
		b.Write(v.MarshalTo(nil))
	}
}

func writeString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ':
			b.WriteRune(r)
		default:
			if i := strings.IndexRune("\b\f\n\r\t", r); i >= 0 {
				b.WriteByte('\\')
				b.WriteByte("bfnrt"[i])
			} else {
				fmt.Fprintf(b, `\u%04x`, r)
			}
		}
	}
	b.WriteByte('"')
}

// Spread is a distribution of times in microseconds.
type Spread struct {
	Avg  float64 `json:"avg"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Report sums up a run. A case that fails in two ways counts in each.
type Report struct {
	Schemas      int    `json:"schemas"`
	Passing      int    `json:"passing"`
	Compile      int    `json:"compile_error"`
	Validation   int    `json:"validation_error"`
	Invalidation int    `json:"invalidation_error"`
	TBM          Spread `json:"tbm_us"`
	TTFM         Spread `json:"ttfm_us"`
	Tokens       int    `json:"tokens"`
}

// Sum makes the report of outcomes.
func Sum(outcomes []Outcome) Report {
	r := Report{Schemas: len(outcomes)}
	var masks, first []time.Duration
	for i := range outcomes {
		o := &outcomes[i]
		if o.Passes() {
			r.Passing++
		}
		if o.Compile != nil {
			r.Compile++
			continue
		}
		if o.Validation != nil {
			r.Validation++
		}
		if o.Invalidation != nil {
			r.Invalidation++
		}
		first = append(first, o.First)
		masks = append(masks, o.Masks...)
	}
	r.TBM, r.TTFM, r.Tokens = spread(masks), spread(first), len(masks)
	return r
}

func spread(ds []time.Duration) Spread {
	if len(ds) == 0 {
		return Spread{}
	}
	slices.Sort(ds)
	var sum time.Duration
	for _, d := range ds {
		sum += d
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()/10) / 100 }
	at := func(q float64) float64 { return us(ds[min(int(q*float64(len(ds))), len(ds)-1)]) }
	return Spread{Avg: us(sum / time.Duration(len(ds))), P50: at(0.5), P99: at(0.99), P999: at(0.999),
		Max: us(ds[len(ds)-1])}
}

// Reason returns the short form of a refusal, for counting: the keyword, and its defect.
func Reason(err error) string {
	if e, ok := errors.AsType[*jsonschema.Error](err); ok {
		return fmt.Sprintf("%s: %v: %s", e.Keyword, e.Kind, e.Reason)
	}
	return err.Error()
}
