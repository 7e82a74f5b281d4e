//go:build cgo && llama_engine && !llama_no_images

package llama_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/sound"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// openSeeing opens the tiny model with a random projector of a family.
func openSeeing(t *testing.T, kind ggufgen.ProjectorKind, width int) (runtime.Engine, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mmproj.gguf")
	if err := ggufgen.WriteProjector(file, ggufgen.Projector{Kind: kind, Width: width, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	e, err := llama.Open(runtime.Options{ModelPath: ggufgen.Cached(t, ggufgen.TinyVision()), ContextTokens: 2048,
		Sequences: 4, Threads: 1, Projector: file})
	if err == nil {
		t.Cleanup(func() { e.Close() })
	}
	return e, err
}

// TestProjectorOnADevice: the projector is on the device that its model is on, and its bytes are told.
func TestProjectorOnADevice(t *testing.T) {
	devices := llama.Backends().Devices
	if os.Getenv("UMA_TEST_GPU_LAYERS") == "" || len(devices) == 0 {
		t.Skip("UMA_TEST_GPU_LAYERS is not set: no device is to be used")
	}
	file := filepath.Join(t.TempDir(), "mmproj.gguf")
	if err := ggufgen.WriteProjector(file, ggufgen.Projector{Kind: ggufgen.Llava, Width: ggufgen.TinyVision().Embedding,
		Seed: 1}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, layers := range []int{-1, 0} {
		o := runtime.Options{ModelPath: ggufgen.Cached(t, ggufgen.TinyVision()), ContextTokens: 2048, Sequences: 4,
			Threads: 1, Projector: file, GPULayers: layers}
		if layers != 0 {
			o.Placed = []runtime.DeviceLayers{{Device: devices[0].Name, Layers: 1}}
		}
		e, err := llama.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		var bytes uint64
		for _, p := range e.Capabilities().Placed {
			if bytes += p.Projector; p.Projector > 0 && p.Device != devices[0].Name {
				t.Errorf("%+v, want %s", p, devices[0].Name)
			}
		}
		if weights := uint64(st.Size()) / 2; (layers != 0) != (bytes > weights) {
			t.Errorf("--gpu-layers %d: the projector has %d bytes of devices, its file %d", layers, bytes, st.Size())
		}
		e.Close()
	}
}

// waves is a picture that is different everywhere.
func waves(w, h int, phase float64) *runtime.Medium {
	p := &runtime.Picture{Width: w, Height: h}
	for y := range h {
		for x := range w {
			p.RGB = append(p.RGB, uint8(127+127*math.Sin(float64(x)/9+phase)), uint8(127+127*math.Cos(float64(y)/7)),
				uint8(x*y/3))
		}
	}
	return pictured(p)
}

func pictured(p *runtime.Picture) *runtime.Medium {
	return &runtime.Medium{Hash: sha256.Sum256(fmt.Append(nil, p.Width, p.RGB)),
		Picture: func() (*runtime.Picture, error) { return p, nil }}
}

// answer computes a prompt in slices of at most chunk rows, but none that cuts a segment in two where cuts is false,
// and returns the logits of its last row.
func answer(t *testing.T, e runtime.Engine, s runtime.Seq, v *runtime.View, chunk int, cuts bool) []float32 {
	t.Helper()
	vocab := e.Vocab()
	before, err := vocab.Tokenize(nil, "look at ", true, true)
	if err != nil {
		t.Fatal(err)
	}
	after, err := vocab.Tokenize(nil, " and tell", false, true)
	if err != nil {
		t.Fatal(err)
	}
	tokens := slices.Concat(before, v.Tokens, after)
	e.SeqRemove(s, 0, -1)
	b := e.Batch()
	for from := 0; from < len(tokens); {
		to := min(from+chunk, len(tokens))
		for _, p := range v.Segments {
			if at := p.At + len(before); !cuts && at < to && to < at+p.N {
				to = at + p.N
			}
		}
		b.Reset()
		for i := from; i < to; i++ {
			k := slices.IndexFunc(v.Segments, func(p runtime.ViewSegment) bool {
				return i >= len(before)+p.At && i < len(before)+p.At+p.N
			})
			if k >= 0 {
				b.AddImage(tokens[i], runtime.Pos(i), s, &v.Segments[k], i-len(before)-v.Segments[k].At)
				continue
			}
			b.Add(tokens[i], runtime.Pos(i), s, i == len(tokens)-1)
		}
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		from = to
	}
	row := e.Logits(b.Len() - 1)
	if row == nil {
		t.Fatal("the last row has no logits")
	}
	return slices.Clone(row)
}

func always() bool { return true }

// TestImages: of each family of projectors, the answer to a picture does not depend on how its prompt is divided into
// steps nor on a sequence beside it, it depends on the picture, and the picture is encoded once.
func TestImages(t *testing.T) {
	for _, kind := range []ggufgen.ProjectorKind{ggufgen.Idefics3, ggufgen.Gemma3Vision, ggufgen.Llava} {
		t.Run(string(kind), func(t *testing.T) {
			e, err := openSeeing(t, kind, ggufgen.TinyVision().Embedding)
			if err != nil {
				t.Fatal(err)
			}
			viewer := e.(runtime.Viewer)
			together := viewer.Images().Together
			if together != (kind == ggufgen.Gemma3Vision) {
				t.Errorf("together is %v", together)
			}
			a, err := viewer.View(waves(90, 60, 0), 0, always)
			if err != nil {
				t.Fatal(err)
			}
			other, err := viewer.View(waves(90, 60, 2), 0, always)
			if err != nil {
				t.Fatal(err)
			}
			again, err := viewer.View(waves(90, 60, 0), 0, always)
			if err != nil || !slices.Equal(again.Tokens, a.Tokens) {
				t.Fatal(err)
			}
			segments := uint64(len(a.Segments) + len(other.Segments))
			if c := viewer.ImageCounts(); c.Encoded != segments || c.Cached != 1 || c.CacheSize == 0 {
				t.Errorf("%+v", c)
			}
			for i, tok := range a.Tokens {
				in := slices.ContainsFunc(a.Segments, func(p runtime.ViewSegment) bool {
					return i >= p.At && i < p.At+p.N
				})
				if in != runtime.IsImage(tok) {
					t.Fatalf("token %d of %v", i, a.Tokens)
				}
			}
			// Another user's is encoded again, and is the same one: its time says nothing, its answer all.
			if v, err := viewer.View(waves(90, 60, 0), 7, always); err != nil || !slices.Equal(v.Tokens, a.Tokens) {
				t.Fatal(err)
			}
			if c := viewer.ImageCounts(); c.Encoded != segments+uint64(len(a.Segments)) || c.Cached != 1 {
				t.Errorf("another user's: %+v", c)
			}
			left := 1
			_, err = viewer.View(waves(90, 60, 3), 0, func() bool { left--; return left >= 0 })
			if len(a.Segments) > 1 && !errors.Is(err, runtime.ErrAborted) {
				t.Errorf("it was encoded to the end after a cancel: %v", err)
			}
			for _, size := range [][2]int{{1, 1}, {1, 2000}, {2000, 1}, {3, 4000}, {16384, 1}, {1, 16384}} {
				if _, err := viewer.View(waves(size[0], size[1], 0), 0, always); err != nil {
					t.Logf("%d × %d: %v", size[0], size[1], err) // refused, and the process lives
				}
			}
			whole := answer(t, e, 0, a, 2000, true)
			for _, chunk := range []int{64, 7} {
				if got := answer(t, e, 1, a, chunk, !together); !near(got, whole) {
					t.Errorf("in steps of %d rows the answer is another one", chunk)
				}
			}
			if got := answer(t, e, 2, other, 2000, true); near(got, whole) {
				t.Error("another picture has the same answer")
			}
			// A prefix with the picture is shared like any other.
			e.SeqRemove(3, 0, -1)
			e.SeqCopy(0, 3, 0, runtime.Pos(a.Segments[0].At+a.Segments[0].N))
			if _, last := e.SeqRange(3); int(last) != a.Segments[0].At+a.Segments[0].N-1 {
				t.Errorf("the copy ends at %d", last)
			}
		})
	}
}

// near reports whether two rows of logits are equal but for rounding.
func near(a, b []float32) bool {
	for i := range a {
		if math.Abs(float64(a[i]-b[i])) > 0.02*(1+math.Abs(float64(b[i]))) {
			return false
		}
	}
	return true
}

// TestImagesThatDoNotFit: what cannot be computed is refused by name, and the engine goes on.
func TestImagesThatDoNotFit(t *testing.T) {
	if _, err := openSeeing(t, ggufgen.Llava, 96); err == nil || !strings.Contains(err.Error(), "mmproj.gguf") ||
		!strings.Contains(err.Error(), "96") {
		t.Errorf("a projector of another width: %v", err)
	}
	file := filepath.Join(t.TempDir(), "mmproj.gguf")
	p := ggufgen.Projector{Kind: ggufgen.Idefics3, Width: ggufgen.Tiny().Embedding}
	if err := ggufgen.WriteProjector(file, p); err != nil {
		t.Fatal(err)
	}
	e, err := llama.Open(runtime.Options{ModelPath: ggufgen.Cached(t, ggufgen.Tiny()), ContextTokens: 2048,
		Sequences: 4, Threads: 1, Projector: file})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.(runtime.Viewer).View(waves(300, 200, 0), 0, always); err == nil || !strings.Contains(err.Error(),
		"vocabulary lacks") {
		t.Errorf("markers that are no tokens: %v", err)
	}
	e, err = openSeeing(t, ggufgen.Gemma3Vision, ggufgen.TinyVision().Embedding)
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.(runtime.Viewer).View(waves(64, 64, 0), 0, always)
	if err != nil {
		t.Fatal(err)
	}
	b := e.Batch()
	b.Reset()
	b.AddImage(v.Tokens[v.Segments[0].At], 0, 0, &v.Segments[0], 0)
	if err := e.Decode(); err == nil {
		t.Error("a segment of an image whose rows see each other was computed")
	}
	b.Reset()
	b.Add(v.Tokens[v.Segments[0].At], 0, 0, true)
	if err := e.Decode(); err == nil {
		t.Error("the token of an image was computed without its embedding")
	}
	if _, err := e.(runtime.Viewer).View(pictured(&runtime.Picture{Width: 2, Height: 2}), 0, always); err == nil {
		t.Error("a picture without pixels")
	}
	if row := answer(t, e, 0, v, 2000, true); len(row) == 0 {
		t.Error("no answer")
	}
}

// TestSounds: the answer to a sound does not depend on how its prompt is divided into steps, it depends on the sound,
// and the sound is encoded once; a model that hears need not see.
func TestSounds(t *testing.T) {
	e, err := openSeeing(t, ggufgen.Ultravox, ggufgen.TinyVision().Embedding)
	if err != nil {
		t.Fatal(err)
	}
	viewer := e.(runtime.Viewer)
	if f := viewer.Images(); f.See() || !f.Hear() || f.SampleRate != 16000 || f.Together {
		t.Errorf("%+v", f)
	}
	heard := func(data []byte) *runtime.Medium {
		return &runtime.Medium{Hash: sound.Hash(data),
			Sound: func(rate int) (*runtime.Sound, error) { return sound.Decode(data, rate) }}
	}
	short, err := viewer.View(heard(ggufgen.Chirp(3)), 0, always)
	if err != nil {
		t.Fatal(err)
	}
	long, err := viewer.View(heard(ggufgen.Chirp(40)), 0, always)
	if err != nil {
		t.Fatal(err)
	}
	if len(short.Segments) != 1 || short.Segments[0].N != 375 || len(long.Segments) != 2 || short.Segments[0].Together {
		t.Errorf("%d segments, %d rows; %d segments", len(short.Segments), short.Segments[0].N, len(long.Segments))
	}
	again, err := viewer.View(heard(ggufgen.Chirp(3)), 0, always)
	if err != nil || again != short {
		t.Errorf("the same sound: another view, %v", err)
	}
	if c := viewer.ImageCounts(); c.Heard != 3 || c.Encoded != 0 || c.Cached != 1 {
		t.Errorf("%+v", c)
	}
	whole := answer(t, e, 0, short, 512, true)
	if segments := answer(t, e, 1, short, 50, true); !near(whole, segments) {
		t.Error("steps of 50 rows say something else")
	}
	if near(whole, answer(t, e, 2, long, 512, true)) {
		t.Error("another sound says the same")
	}
	if _, err := viewer.View(waves(64, 64, 0), 0, always); err == nil {
		t.Error("it sees")
	}
	if _, err := viewer.View(heard([]byte("noise")), 0, always); !errors.Is(err, sound.ErrSound) {
		t.Errorf("no sound: %v", err)
	}
	if _, err := viewer.View(heard(ggufgen.Chirp(1)), 0, func() bool { return false }); !errors.Is(err,
		runtime.ErrAborted) {
		t.Errorf("a sound that is not needed any more: %v", err)
	}
}
