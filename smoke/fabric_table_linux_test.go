//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/mooncaketest"
	"github.com/uma-serve/uma-serve/internal/testutil/nixltest"
	"github.com/uma-serve/uma-serve/internal/testutil/redistest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestFabricTable measures the TTFT of prompts of about 1,024 and 8,192 tokens that each store has, against computing
// them: docs/cluster.md has the result, scripts/fabrics.sh runs it. UMA_FABRIC_TABLE=MODEL,… names models of
// models.lock, UMA_FABRIC_ROUNDS the number of rounds. A round measures every store once, so that a machine that
// becomes slower is so for all of them.
func TestFabricTable(t *testing.T) {
	models := os.Getenv("UMA_FABRIC_TABLE")
	if models == "" {
		t.Skip("UMA_FABRIC_TABLE is not set; it takes minutes")
	}
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("UMA_FABRIC_ROUNDS")); err == nil && n > 0 {
		rounds = n
	}
	for model := range strings.SplitSeq(models, ",") {
		t.Run(model, func(t *testing.T) { newFabricTable(t, model).run(rounds) })
	}
}

// tablePatience bounds one prompt: computing 8,192 tokens on a busy machine.
const tablePatience = 20 * time.Minute

// tableStores are the rows, in order.
var tableStores = []string{"computed", "memory", "disk", "valkey", "mooncake", "nixl"}

// fabricTable is the measurement with one model.
type fabricTable struct {
	t       *testing.T
	path    string
	prompts []string // about 1,024 tokens, and twice about 8,192
	want    []told   // computed by the daemon that left its cells in seed
	seed    string   // the folder of a daemon that has computed the prompts
	took    map[string][][]time.Duration
	cached  map[string][]int
}

func newFabricTable(t *testing.T, model string) *fabricTable {
	f := &fabricTable{t: t, path: published(t, model), seed: filepath.Join(t.TempDir(), "seed"),
		took: map[string][][]time.Duration{}, cached: map[string][]int{}}
	for _, p := range []struct {
		first string
		times int // of a sentence of 12 to 13 tokens
	}{{"North", 80}, {"South", 620}, {"West", 620}} {
		f.prompts = append(f.prompts,
			strings.Repeat(p.first+" of the town are rivers, hills, roads and fields. ", p.times))
	}
	for _, store := range tableStores {
		f.took[store], f.cached[store] = make([][]time.Duration, len(f.prompts)), make([]int, len(f.prompts))
	}
	return f
}

// serve starts a daemon whose pool has room for one long prompt and not for two.
func (f *fabricTable) serve(t *testing.T, dir string, args ...string) *server {
	return startModelBare(t, f.path,
		append([]string{"-c", "8448", "--cache-ram", "2GiB", "--cache-dir", dir}, args...)...)
}

// ask asks for a prompt and compares the answer with the first one.
func (f *fabricTable) ask(s *server, i int) told {
	got := tellWithin(s, f.prompts[i], tablePatience, nil)
	if i < len(f.want) && got.text != f.want[i].text {
		s.t.Errorf("the answer is %q, of the daemon that computed it %q", got.text, f.want[i].text)
	}
	return got
}

func (f *fabricTable) note(store string, i int, got told) {
	f.took[store][i] = append(f.took[store][i], got.ttft)
	f.cached[store][i] = got.cached
}

// copied returns a copy of the seed.
func (f *fabricTable) copied(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", f.seed, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// offered has a daemon with the seed offer its cells to a fabric, and waits until they are there.
func (f *fabricTable) offered(t *testing.T, url string) {
	blocks := 0
	for _, w := range f.want {
		blocks += w.prompt / 32 * 2
	}
	s := f.serve(t, f.copied(t), "--fabric", url)
	waitfor.True(t, fmt.Sprintf("%d blocks are offered", blocks), func() bool {
		m := s.samples()
		return m["meridian_disagg_blocks_offloaded_total"] >= float64(blocks) && m["uma_disagg_queued"] == 0
	})
}

func (f *fabricTable) run(rounds int) {
	f.t.Run("seed", func(t *testing.T) {
		s := f.serve(t, f.seed)
		for i := range f.prompts {
			f.want = append(f.want, f.ask(s, i))
		}
	})
	nixl := nixltest.Peers(f.t, 2, nixltest.Library(f.t), "&pool=1GiB")
	urls := map[string]string{"mooncake": mooncaketest.Start(f.t, "1 GB").URL(), "valkey": redistest.Start(f.t).URL(),
		"nixl": nixl[1]}
	f.t.Run("offer", func(t *testing.T) { // a store needs no daemon that has offered; an agent does
		for _, store := range []string{"mooncake", "valkey"} {
			f.offered(t, urls[store])
		}
	})
	f.offered(f.t, nixl[0])
	for range rounds {
		for _, store := range tableStores {
			f.t.Run(store, func(t *testing.T) { f.round(t, store, urls[store]) })
		}
	}
	f.report()
}

// round measures one store once. The third prompt only takes the place of the second one.
func (f *fabricTable) round(t *testing.T, store, url string) {
	dir := filepath.Join(t.TempDir(), "new")
	switch store {
	case "computed":
		s := f.serve(t, dir)
		f.note(store, 0, f.ask(s, 0))
		f.note(store, 1, f.ask(s, 1))
	case "memory":
		s := f.serve(t, f.copied(t))
		for _, i := range []int{0, 1, 2} { // from the disk, and then to memory
			f.ask(s, i)
		}
		f.note(store, 0, f.ask(s, 0))
		f.note(store, 1, f.ask(s, 1))
	case "disk":
		s := f.serve(t, f.copied(t))
		f.note(store, 0, f.ask(s, 0))
		f.note(store, 1, f.ask(s, 1))
	default:
		s := f.serve(t, dir, "--fabric", url)
		f.note(store, 0, f.ask(s, 0))
		f.note(store, 1, f.ask(s, 1))
	}
}

// report prints the rows of the table: median, least and most.
func (f *fabricTable) report() {
	for _, store := range tableStores {
		row := "| " + store
		for i := range 2 {
			took := f.took[store][i]
			if len(took) == 0 {
				f.t.Fatalf("%s: nothing was measured", store)
			}
			slices.Sort(took)
			row += fmt.Sprintf(" | %d of %d | %d (%d–%d)", f.cached[store][i], f.want[i].prompt,
				took[len(took)/2].Milliseconds(), took[0].Milliseconds(), took[len(took)-1].Milliseconds())
		}
		fmt.Println(row + " |")
	}
}
