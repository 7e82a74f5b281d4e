package pull

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/uma-serve/uma-serve/models/pull/pulltest"
)

// TestFaults pulls 500 times from servers that misbehave, each in its way: the file is whole, or the error says what to
// do and the next pull, from a server that behaves, goes on from what is here. Time is virtual.
func TestFaults(t *testing.T) {
	model := pulltest.GGUF(300_000, 1)
	pulls := 500
	if testing.Short() {
		pulls = 150
	}
	ran, whole, failed, faults := 0, 0, map[error]int{}, map[string]int{}
	for seed := range uint64(pulls) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ran++
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				var mu sync.Mutex
				often, kinds, left := 0.05+0.6*rng.Float64()*rng.Float64(), pulltest.Kinds, 1+rng.IntN(60)
				if rng.IntN(2) == 0 { // one kind alone
					kinds = []string{kinds[int(seed)%len(kinds)]}
				}
				server := &pulltest.Server{
					Repos: oneFile(model).Repos,
					Images: map[string]*pulltest.Image{"owner/image:8b": {Private: true,
						Layers: []pulltest.Layer{{MediaType: pulltest.ModelLayer, Data: model}}}},
					Download: []string{cdnAddress, ""}[rng.IntN(2)],
				}
				server.Fault = func(*http.Request) pulltest.Fault {
					mu.Lock()
					defer mu.Unlock()
					if left == 0 || rng.Float64() > often {
						return nil
					}
					left--
					kind := kinds[rng.IntN(len(kinds))]
					faults[kind]++
					return pulltest.Random(kind, rng)
				}
				f := newFixture(t, server)
				defer f.close()
				f.cfg.sync = func(*os.File) error { return nil } // no machine fails here
				name, path := "hf.co/owner/name", "hf.co/owner/name/name-Q4_K_M.gguf"
				if rng.IntN(3) == 0 {
					name, path = regAddress+"/owner/image:8b", regAddress+"/owner/image/8b.gguf"
				}
				path = filepath.Join(f.dir, path)

				_, err := f.pull(t.Context(), t, name)
				if err == nil {
					whole++
				} else {
					ours, ok := errors.AsType[*Error](err)
					if !ok || ours.Do == "" || ours.What == "" {
						t.Fatalf("%T %v: the error does not say what to do", err, err)
					}
					failed[ours.Kind]++
					if _, err := os.Stat(path); err == nil {
						t.Fatalf("the file is there after: %v", ours)
					}
					mu.Lock()
					left = 0
					mu.Unlock()
					before := f.Served()
					var kept int64
					if s, err := readState(path+".state", state{Sum: pulltest.Digest(model),
						Size: int64(len(model))}); err == nil {
						kept = s.Spans.total()
					}
					if _, err := f.pull(t.Context(), t, name); err != nil {
						t.Fatalf("after %v: a server that behaves: %v", ours, err)
					}
					// What is kept may be damaged, and is then sent again; answers in progress then are dropped.
					if sent := f.Served() - before; sent > 2*int64(len(model))-kept+4*f.cfg.segment {
						t.Errorf("%d bytes were kept, and %d of %d sent", kept, sent, len(model))
					}
				}
				if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, model) {
					t.Fatalf("the file is not whole: %d of %d bytes, %v", len(got), len(model), err)
				}
				for _, file := range f.files(t) {
					if !strings.HasSuffix(file, ".gguf") && !strings.HasSuffix(file, ".gguf.json") {
						t.Errorf("%s is left behind", file)
					}
				}
			})
		})
	}
	t.Logf("%d whole at the first pull; errors: %v; faults: %v", whole, failed, faults)
	if ran < pulls {
		return // -run asks for some of them
	}
	if whole < pulls/5 || whole > pulls*49/50 {
		t.Errorf("%d of the pulls met no fault that ended them: the faults are too rare or too many", whole)
	}
	for _, kind := range pulltest.Kinds {
		if faults[kind] == 0 {
			t.Errorf("the fault %q never happened", kind)
		}
	}
	if !slices.ContainsFunc([]error{ErrCorrupt, ErrRefused}, func(k error) bool { return failed[k] > 0 }) {
		t.Errorf("no pull failed by its content: %v", failed)
	}
}
