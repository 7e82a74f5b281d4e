package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

func TestInspectGenerated(t *testing.T) {
	cfg := ggufgen.Tiny()
	info, err := Inspect(ggufgen.Cached(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	if info.Architecture != "llama" || info.Name != cfg.Name || info.Parameters != cfg.Parameters() ||
		info.VocabSize != cfg.VocabSize ||
		info.TrainContext != int64(cfg.Context) || info.Layers != int64(cfg.Layers) || info.KeyLength != 32 ||
		info.SlidingWindow != 0 || info.Recurrent {
		t.Errorf("%+v", info)
	}
	if info.Quantisation[0].Type != "Q8_0" || info.Quantisation[1].Type != "F32" || len(info.Quantisation) != 2 {
		t.Errorf("quantisation %+v", info.Quantisation)
	}
	if info.TensorBytes >= uint64(info.FileBytes) || info.TensorBytes < uint64(info.FileBytes)/2 {
		t.Errorf("%d of %d bytes are tensors", info.TensorBytes, info.FileBytes)
	}
	// 2 layers × 1 KV head × 32 elements × (K + V).
	for types, want := range map[[2]string]int64{{"f16", "f16"}: 2 * 32 * 4, {"q8_0", "f32"}: 2 * (34 + 128),
		{"q4_0", "q4_0"}: 2 * 36} {
		if got, err := info.KVBytesPerToken(types[0], types[1]); got != want || err != nil {
			t.Errorf("KV bytes per token for %v: %d, %v, want %d", types, got, err, want)
		}
	}
	if _, err := info.KVBytesPerToken("q2_k", "f16"); err == nil || !strings.Contains(err.Error(), "q2_k") {
		t.Errorf("unknown cache type: %v", err)
	}
	wantSpecial := []SpecialToken{{"bos", 0, "<|endoftext|>"}, {"eos", 2, "<|im_end|>"}, {"pad", 0, "<|endoftext|>"}}
	if !slices.Equal(info.Special, wantSpecial) {
		t.Errorf("special tokens %+v", info.Special)
	}
	if want := []ThinkTags{{"<think>", "</think>", true, true}}; !slices.Equal(info.Think, want) {
		t.Errorf("think tags %+v", info.Think)
	}
	if info.Template == nil || !info.Template.DropsThinking || info.Template.ThinkingSwitch != "enable_thinking" {
		t.Errorf("template %+v, %s", info.Template, info.TemplateError)
	}
}

func TestInspectSlidingWindow(t *testing.T) {
	cfg := ggufgen.TinySWA()
	cfg.Template = "{{ broken"
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := ggufgen.Write(path, cfg); err != nil {
		t.Fatal(err)
	}
	info, err := Inspect(path)
	if err != nil || info.SlidingWindow != int64(cfg.Window) || info.Architecture != "gemma2" {
		t.Errorf("%+v, %v", info, err)
	}
	if info.Template != nil || !strings.Contains(info.TemplateError, "line 1") {
		t.Errorf("a broken template: %+v, %q", info.Template, info.TemplateError)
	}
}

// file builds headers by hand: valid ones, and ones no library would write.
type file struct{ bytes.Buffer }

func (f *file) put(v ...any) *file {
	for _, x := range v {
		switch x := x.(type) {
		case string:
			binary.Write(f, binary.LittleEndian, uint64(len(x)))
			f.WriteString(x)
		case int:
			binary.Write(f, binary.LittleEndian, uint32(x))
		default:
			binary.Write(f, binary.LittleEndian, x)
		}
	}
	return f
}

func start(version int, tensors, pairs uint64) *file {
	f := &file{}
	f.WriteString("GGUF")
	return f.put(version, tensors, pairs)
}

func llama(pairs uint64) *file {
	return start(3, 0, pairs+1).put("general.architecture", 8, "llama")
}

func read(f *file) (Info, error) { return Read(bytes.NewReader(f.Bytes()), int64(f.Len())) }

func TestLayersMayDiffer(t *testing.T) {
	f := llama(6).
		put("llama.block_count", 4, 3).
		put("llama.embedding_length", 4, 64).
		put("llama.attention.head_count", 4, 2).
		put("llama.attention.head_count_kv", 9, 5, uint64(3), 1, 0, 2).
		put("llama.attention.key_length", 4, 16).
		put("llama.ssm.state_size", 4, 8)
	info, err := read(f)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(info.KVHeads, []int64{1, 0, 2}) || info.ValueLength != 32 || !info.Recurrent {
		t.Errorf("%+v", info)
	}
	if got, err := info.KVBytesPerToken("f16", "f16"); got != 3*(16+32)*2 || err != nil {
		t.Errorf("%d bytes per token, %v", got, err)
	}
	if _, err := info.KVBytesPerToken("q8_0", "f16"); err == nil || !strings.Contains(err.Error(), "blocks of 32") {
		t.Errorf("rows of 16 in blocks of 32: %v", err)
	}
}

// TestCompressedRows: a model that compresses rows keeps a state, whatever other keys its file has. Zeros say that it
// does not.
func TestCompressedRows(t *testing.T) {
	info, err := Inspect(ggufgen.Cached(t, ggufgen.TinyDeepSeek4()))
	if err != nil || !info.Recurrent || info.StateBytes != 0 {
		t.Errorf("%v, %+v", err, info)
	}
	none := llama(1).put("llama.attention.compress_ratios", 9, 5, uint64(2), 0, 0)
	if info, err := read(none); err != nil || info.Recurrent {
		t.Errorf("%v, %+v", err, info)
	}
}

// TestStateBytes: the states of recurrent layers, as llama.cpp makes them. The first two are what it reported for
// models with these numbers, without the 12 bytes that it writes for each of some fields of a stored state.
func TestStateBytes(t *testing.T) {
	for name, x := range map[string]struct {
		keys []any // name, value
		want int64
	}{
		"mamba": {[]any{"ssm.inner_size", 512, "ssm.conv_kernel", 4, "ssm.state_size", 128}, 536_576},
		"gated delta net, one layer of two": {[]any{"ssm.inner_size", 256, "ssm.conv_kernel", 4, "ssm.state_size", 128,
			"ssm.group_count", 2, "full_attention_interval", 2}, 140_288},
		"rwkv":                {[]any{"wkv.head_size", 64}, 2 * 256 * (2 + 64) * 4},
		"kimi":                {[]any{"kda.head_dim", 128, "ssm.conv_kernel", 4}, 2 * (3*3*256 + 128*256) * 4},
		"none":                {[]any{"context_length", 100}, 0},
		"a kernel of nothing": {[]any{"ssm.conv_kernel", 0}, 0},
		"absurd": {[]any{"ssm.inner_size", 1 << 30, "ssm.conv_kernel", 1 << 30, "ssm.state_size", 1 << 30},
			maxStateBytes},
	} {
		f := llama(uint64(3+len(x.keys)/2)).put("llama.block_count", 4, 2).put("llama.embedding_length", 4, 256).
			put("llama.attention.head_count", 4, 2)
		for i := 0; i < len(x.keys); i += 2 {
			f.put("llama."+x.keys[i].(string), 4, x.keys[i+1])
		}
		if info, err := read(f); err != nil || info.StateBytes != x.want {
			t.Errorf("%s: %d bytes, %v; want %d", name, info.StateBytes, err, x.want)
		}
	}
}

func TestVersion2IsRead(t *testing.T) {
	if info, err := read(start(2, 0, 1).put("general.architecture", 8, "llama")); err != nil || info.Version != 2 {
		t.Errorf("%+v, %v", info, err)
	}
}

// Every broken file is an ErrInvalid that says what is wrong.
func TestHostileFiles(t *testing.T) {
	huge := uint64(1) << 62
	bigEndian := &file{}
	bigEndian.WriteString("GGUF\x00\x00\x00\x03")
	raw := func(s string) *file { f := &file{}; f.WriteString(s); return f }
	tensor := func(dims int, shape []uint64, kind int, offset uint64) *file {
		return start(3, 1, 1).put("general.architecture", 8, "llama").put("w", dims, shape, kind, offset)
	}
	for want, f := range map[string]*file{
		"truncated":                               raw("GG"),
		`begins with "PK\x03\x04"`:                raw("PK\x03\x04aaaaaaaaaaaaaaaaaaaa"),
		"before GGUF":                             raw("ggjt\x03\x00\x00\x00"),
		"big-endian":                              bigEndian,
		"version 1 is too old":                    start(1, 0, 0),
		"version 77 is unknown":                   start(77, 0, 0),
		"metadata count":                          start(3, 0, huge),
		"tensor count":                            start(3, huge, 0),
		"header of 13000 bytes goes beyond":       start(3, 0, 1000),
		"key of metadata pair 0 claims":           start(3, 0, 1).put(huge, 8, "xxxx"),
		"general.architecture claims":             start(3, 0, 1).put("general.architecture", 8, huge),
		"general.architecture of 4096 bytes":      start(3, 0, 1).put("general.architecture", 8, uint64(4096)),
		"general.architecture is missing":         start(3, 0, 0),
		"unknown type 99":                         llama(1).put("a.key.of.some.length", 99),
		"array of type 9":                         llama(1).put("a.key.of.some.length", 9, 9, uint64(1)),
		"elements, the limit is":                  llama(1).put("a.key.of.some.length", 9, 8, huge),
		"x.y of 80000 bytes":                      llama(1).put("x.y", 9, 8, uint64(10000)),
		"tokens of 4000 bytes":                    llama(1).put("tokens", 9, 4, uint64(1000)),
		`key "same" is there twice`:               llama(2).put("same", 4, 1).put("same", 4, 1),
		"general.alignment is 7":                  llama(1).put("general.alignment", 4, 7),
		"9 dimensions":                            tensor(9, make([]uint64, 9), 0, 0),
		"impossible shape":                        tensor(3, []uint64{1 << 40, 1 << 40, 1}, 0, 0),
		"has type 31":                             tensor(1, []uint64{32}, 31, 0),
		"rows of 33 elements":                     tensor(1, []uint64{33}, 8, 0),
		`the data of tensor "w" goes beyond`:      tensor(1, []uint64{1 << 30}, 0, 0),
		"bytes of tensor data are missing":        tensor(1, []uint64{8}, 0, 0),
		"a dimension is 4294967295, out of range": llama(1).put("llama.block_count", 4, 0xffffffff),
		"attention heads, out of range":           llama(1).put("llama.attention.head_count", 4, 0xfffffff),
	} {
		if _, err := read(f); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// A generated file cut anywhere is refused, and costs no more memory than it is long.
func TestTruncatedAnywhere(t *testing.T) {
	data, err := os.ReadFile(ggufgen.Cached(t, ggufgen.Tiny()))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(data)-32; n += 1 + n/50 {
		if _, err := Read(bytes.NewReader(data[:n]), int64(n)); !errors.Is(err, ErrInvalid) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestInspectSaysWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Inspect(dir); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), dir+": not a usable GGUF file: it is a directory; name a .gguf file in it") {
		t.Errorf("a directory: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(pipe); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "it is a named pipe") {
		t.Errorf("a pipe without a writer: %v", err)
	}
	if _, err := Inspect(filepath.Join(dir, "none.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzInspect(f *testing.F) {
	cfg := ggufgen.Tiny()
	cfg.VocabSize = ggufgen.MinVocab
	data, err := os.ReadFile(ggufgen.Cached(f, cfg))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:16<<10])
	f.Add(llama(1).put("llama.attention.head_count_kv", 9, 5, uint64(3), 1, 0, 2).Bytes())
	f.Add(start(3, 1, 1).put("general.architecture", 8, "llama").put("w", 1, []uint64{32}, 8, uint64(0)).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		info, err := Read(bytes.NewReader(data), int64(len(data)))
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; info.ChatTemplate == "" &&
			spent > uint64(1<<20+64*len(data)) {
			t.Fatalf("%d bytes allocated for %d bytes of file", spent, len(data))
		}
		if err != nil {
			if !errors.Is(err, ErrInvalid) || !reflect.DeepEqual(info, Info{}) {
				t.Fatalf("%+v, %v", info, err)
			}
			return
		}
		for _, typ := range []string{"f16", "q8_0"} {
			if n, err := info.KVBytesPerToken(typ, typ); err == nil && n < 0 {
				t.Fatalf("%d KV bytes per token", n)
			}
		}
	})
}

func BenchmarkInspectTiny(b *testing.B) {
	path := ggufgen.Cached(b, ggufgen.Tiny())
	for b.Loop() {
		if _, err := Inspect(path); err != nil {
			b.Fatal(err)
		}
	}
}
