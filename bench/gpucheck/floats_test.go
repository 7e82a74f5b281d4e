package gpucheck

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

type stored []byte

func (b stored) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b)
	return int64(n), err
}

// eighths decodes blocks of 34 bytes: a scale, of which only 0.125 is known, and 32 numbers of eight bits.
func eighths(typ uint32, from []byte, to []float32) error {
	if typ != 8 || len(from) != len(to)/32*34 {
		return errors.New("no blocks of Q8_0")
	}
	for i := range to {
		block := from[i/32*34:]
		if binary.LittleEndian.Uint16(block) != 0x3000 {
			return errors.New("the scale is not an eighth")
		}
		to[i] = float32(int8(block[2+i%32])) / 8
	}
	return nil
}

// writeModel writes a model with a vector in F32 and, where quantised is set, a matrix in Q8_0, of which it returns the
// values. It is larger than what is read at a time.
func writeModel(t *testing.T, path string, quantised bool, more ...gguffile.KV) (want []float32) {
	t.Helper()
	const rows, columns = 100, 1024
	vector := make(stored, 4*columns)
	for i := range columns {
		binary.LittleEndian.PutUint32(vector[4*i:], math.Float32bits(float32(i)+0.3))
	}
	tensors := []gguffile.Tensor{{Name: "norm.weight", Shape: []uint64{columns}, Data: vector}}
	if quantised {
		var b stored
		for i := range rows * columns {
			if i%32 == 0 {
				b = append(b, 0x00, 0x30)
			}
			q := int8(i * 37)
			b = append(b, byte(q))
			want = append(want, float32(q)/8)
		}
		tensors = append(tensors, gguffile.Tensor{Name: "w.weight", Type: 8, Shape: []uint64{columns, rows}, Data: b})
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kvs := []gguffile.KV{{Key: "general.name", Value: "some"}, {Key: "general.file_type", Value: uint32(7)}}
	kvs = append(kvs, more...)
	if err := gguffile.Write(f, kvs, tensors); err != nil {
		t.Fatal(err)
	}
	return want
}

// TestWriteFloats: the copy has the same pairs and tensors, with the quantised ones decoded.
func TestWriteFloats(t *testing.T) {
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "f32.gguf")
	want := writeModel(t, path, true)
	v := values{}
	if err := writeFloats(t.Context(), path, copied, eighths, v); err != nil {
		t.Fatal(err)
	}
	if v["tensors"] != 1 || v["bytes"] != uint64(4*1024+4*len(want)) {
		t.Errorf("recorded %v", v)
	}
	in, kvs, tensors, err := open(copied)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if len(kvs) != 2 || kvs[0].Value != "some" || kvs[1].Value != uint32(0) {
		t.Errorf("pairs %v", kvs)
	}
	if len(tensors) != 2 || tensors[1].Type != 0 || !slices.Equal(tensors[1].Shape, []uint64{1024, 100}) {
		t.Fatalf("tensors %+v", tensors)
	}
	var vector, matrix bytes.Buffer
	if _, err := tensors[0].Data.WriteTo(&vector); err != nil {
		t.Fatal(err)
	}
	if _, err := tensors[1].Data.WriteTo(&matrix); err != nil {
		t.Fatal(err)
	}
	if got := math.Float32frombits(binary.LittleEndian.Uint32(vector.Bytes()[40:])); got != 10.3 {
		t.Errorf("element 10 of the vector is %v", got)
	}
	got := make([]float32, len(want))
	if _, err := binary.Decode(matrix.Bytes(), binary.LittleEndian, got); err != nil || !slices.Equal(got, want) {
		t.Errorf("the matrix has other values (%v)", err)
	}
	if yes, err := hasRounded(path); err != nil || !yes {
		t.Errorf("the model: %t, %v", yes, err)
	}
	if yes, err := hasRounded(copied); err != nil || yes {
		t.Errorf("the copy: %t, %v", yes, err)
	}
}

// TestWriteFloatsRefuses: what cannot be copied is told, and nothing is left.
func TestWriteFloatsRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.gguf")
	writeModel(t, path, true)
	part := filepath.Join(dir, "part.gguf")
	writeModel(t, part, true, gguffile.KV{Key: "split.count", Value: uint16(2)})
	cut := filepath.Join(dir, "cut.gguf")
	if err := os.WriteFile(cut, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		path   string
		decode Decoder
		want   string
	}{
		"no decoder": {t.Context(), path, func(uint32, []byte, []float32) error { return errors.New("unknown type") },
			"unknown type"},
		"no time":     {over, path, eighths, "context canceled"},
		"one of many": {t.Context(), part, eighths, "--reference own"},
		"no model":    {t.Context(), cut, eighths, cut},
		"no file":     {t.Context(), filepath.Join(dir, "none.gguf"), eighths, "no such file"},
	} {
		dst := filepath.Join(dir, "f32.gguf")
		err := writeFloats(c.ctx, c.path, dst, c.decode, values{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := os.Stat(dst); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v of the copy", name, err)
		}
	}
}

// TestReference: a device is judged by the processor's answers with F32 weights. One that leaves them is excused where
// the processor with the file's own weights leaves them as often and as far.
func TestReference(t *testing.T) {
	// A server's answers, all of a token, with these log-probabilities of tokens 1 and 2 at each position.
	side := func(token int, one, two float64) []answer {
		p := cand(1, one, 2, two)
		return []answer{{tokens: []int{1, token}, probs: [][]candidate{p, p}},
			{tokens: []int{1, 1}, probs: [][]candidate{p, p}}}
	}
	truth := side(1, -0.2, -1.8)
	for name, c := range map[string]struct {
		own, device []answer
		want        string // a part of the error; "" = passed
	}{
		"equal":                       {side(1, -0.2, -1.8), side(1, -0.2, -1.8), ""},
		"equal, unlike the processor": {side(2, -0.4, -1.2), side(1, -0.2, -1.8), ""},
		"as the processor":            {side(2, -0.4, -1.2), side(2, -0.4, -1.2), ""},
		"as far, elsewhere":           {side(2, -0.4, -1.2), side(2, -0.1, -2), ""},
		"more often":                  {side(1, -0.4, -1.2), side(2, -0.4, -1.2), "1 of 2 answers part"},
		"farther":                     {side(2, -0.4, -1.2), side(2, -0.6, -1), "allowed: 1 answers, 0.2000"},
		"no yardstick":                {nil, side(2, -0.2, -1.8), "1 of 2 answers part by more than 0.25 nats"},
	} {
		r := &run{Config: &Config{Near: 0.25}}
		var own *Agreement
		if c.own != nil {
			var err error
			if own, err = r.compare(truth, c.own, values{}); err != nil {
				t.Fatal(err)
			}
		}
		err := r.judge(truth, c.device, own, values{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestRunFloats: the processor is asked with a copy in F32, then with the file; the copy is removed.
func TestRunFloats(t *testing.T) {
	for name, c := range map[string]struct {
		quantised bool
		decode    Decoder
		floats    *fake // answers with the copy
		own, gpu  *fake
		want      map[string]string
		steps     []string
	}{
		"quantised": {true, eighths, &fake{}, &fake{shift: 1}, &fake{}, nil,
			[]string{"F32 weights, ", "answers of the processor, uma-serve, processor, F32",
				"answers of the processor, uma-serve, processor", "answers, uma-serve"}},
		"the device is off": {true, eighths, &fake{}, &fake{}, &fake{shift: 1},
			map[string]string{"answers, uma-serve": "4 of 4 answers part"}, nil},
		"F32": {false, eighths, nil, &fake{}, &fake{}, nil,
			[]string{"F32 weights, ", "answers of the processor, uma-serve, processor", "answers, uma-serve"}},
		"no decoder": {true, func(uint32, []byte, []float32) error { return errors.New("unknown type") }, nil, &fake{},
			&fake{}, map[string]string{"F32 weights, ": "unknown type", "answers, uma-serve": "nothing to compare"},
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "model.gguf")
			writeModel(t, path, c.quantised)
			report, scratch := examineFloats(t, path, c.decode, c.floats, c.own, c.gpu)
			var got []string
			for _, s := range report.Steps {
				step := s.Name + ", " + s.Server
				got = append(got, step)
				if want := c.want[step]; s.Error != "" && want == "" || !strings.Contains(s.Error, want) {
					t.Errorf("%s: %q, want %q", step, s.Error, want)
				}
			}
			if report.Failed() != len(c.want) {
				t.Errorf("%d failed, want %d", report.Failed(), len(c.want))
			}
			got = slices.DeleteFunc(got, func(s string) bool { return c.steps != nil && !slices.Contains(c.steps, s) })
			if c.steps != nil && !slices.Equal(got, c.steps) {
				t.Errorf("steps %q, want %q", got, c.steps)
			}
			if left, _ := filepath.Glob(filepath.Join(scratch, "*.gguf")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
