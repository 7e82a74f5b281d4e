//go:build cgo && llama_engine && !llama_no_images

package llama_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/views"
)

// shelf keeps views as bytes.
type shelf struct {
	limits views.Limits
	mu     sync.Mutex
	bytes  map[[32]byte][]byte
}

func (s *shelf) Load(hash [32]byte, ns uint64) *runtime.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := views.Parse(s.bytes[hash], &s.limits)
	if err != nil {
		return nil
	}
	return v
}

func (s *shelf) Store(hash [32]byte, ns uint64, v *runtime.View, done func()) {
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := views.Bytes(v, func(n int) ([]byte, error) {
		s.bytes[hash] = make([]byte, n)
		return s.bytes[hash], nil
	})
	if err != nil {
		panic(err)
	}
}

// TestStoredViews: of each family of projectors, an engine that is given what an earlier one has made encodes nothing,
// and its logits are the same, bit for bit. The bytes are within the bounds by which they are read, and another picture
// is not among them.
func TestStoredViews(t *testing.T) {
	for _, kind := range []ggufgen.ProjectorKind{ggufgen.Idefics3, ggufgen.Gemma3Vision, ggufgen.Llava} {
		t.Run(string(kind), func(t *testing.T) {
			var s *shelf
			var want []float32
			for run := range 2 {
				e, err := openSeeing(t, kind, ggufgen.TinyVision().Embedding)
				if err != nil {
					t.Fatal(err)
				}
				viewer, caps := e.(runtime.Viewer), e.Capabilities()
				if s == nil {
					s = &shelf{bytes: map[[32]byte][]byte{}, limits: views.Limits{Width: viewer.Images().Width,
						Vocab: e.Model().VocabSize, Tokens: caps.ContextTokens,
						Together: min(caps.MaxMicroBatch, caps.MaxBatch)}}
				}
				viewer.KeptViews().StoreIn(s)
				v, err := viewer.View(waves(90, 60, 0), 7, always)
				if err != nil {
					t.Fatal(err)
				}
				got := answer(t, e, 0, v, 2048, true)
				c := viewer.ImageCounts()
				switch {
				case run == 0:
					want = got
					if c.Encoded == 0 || c.Loaded != 0 || len(s.bytes) != 1 {
						t.Errorf("%+v, %d stored", c, len(s.bytes))
					}
					for _, b := range s.bytes {
						if int64(len(b)) > s.limits.Most() {
							t.Errorf("%d bytes, at most %d are read", len(b), s.limits.Most())
						}
					}
				case c.Encoded != 0 || c.Loaded != 1:
					t.Errorf("%+v", c)
				case !slices.Equal(got, want):
					t.Error("the logits differ")
				}
				if run == 1 {
					if _, err := viewer.View(waves(90, 60, 2), 7, always); err != nil ||
						viewer.ImageCounts().Encoded == 0 {
						t.Errorf("another picture: %+v, %v", viewer.ImageCounts(), err)
					}
				}
			}
		})
	}
}
