//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/mooncaketest"
	"github.com/uma-serve/uma-serve/internal/testutil/nixltest"
	"github.com/uma-serve/uma-serve/internal/testutil/redistest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestFabricTable measures how long a prompt of 1,024 and of 8,192 tokens takes that lies in each store, against
// computing it: docs/cluster.md has the result. UMA_FABRIC_TABLE=MODEL,… names the models of models.lock.
func TestFabricTable(t *testing.T) {
	models := os.Getenv("UMA_FABRIC_TABLE")
	if models == "" {
		t.Skip("UMA_FABRIC_TABLE is not set; it takes minutes")
	}
	const rounds, patience = 3, 20 * time.Minute
	// About 12.5 tokens a sentence; a little less than the context of the model.
	prompts := []string{strings.Repeat("North of the town are rivers, hills, roads and fields. ", 80),
		strings.Repeat("South of the town are rivers, hills, roads and fields. ", 620)}
	for model := range strings.SplitSeq(models, ",") {
		path := published(t, model)
		serve := func(t *testing.T, dir string, args ...string) *server {
			return startModelBare(t, path, append([]string{"-c", "9600", "--cache-ram", "1GiB", "--cache-dir", dir},
				args...)...)
		}
		ask := func(s *server, prompt string) told { return tellWithin(s, prompt, patience, nil) }
		seed := filepath.Join(t.TempDir(), "seed")
		var computed []told
		blocks := 0
		t.Run(model+"/computed", func(t *testing.T) {
			s := serve(t, seed)
			for _, p := range prompts {
				w := ask(s, p)
				computed = append(computed, w)
				blocks += w.prompt / 32 * 2
			}
		})
		copied := func(t *testing.T) string {
			dir := filepath.Join(t.TempDir(), "copy")
			if out, err := exec.Command("cp", "-a", seed, dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return dir
		}
		measure := func(t *testing.T, store string, open func(t *testing.T) *server) {
			took, cached := make([][]time.Duration, len(prompts)), make([]int, len(prompts))
			for range rounds {
				t.Run("round", func(t *testing.T) {
					s := open(t)
					for i, p := range prompts {
						got := ask(s, p)
						if got.text != computed[i].text {
							t.Errorf("the answer is %q, of the daemon that computed it %q", got.text, computed[i].text)
						}
						took[i], cached[i] = append(took[i], got.ttft), got.cached
					}
				})
			}
			for i, w := range computed {
				slices.Sort(took[i])
				t.Logf("| %s | %s | %d | %d | %v (%v–%v) | %v |", model, store, w.prompt, cached[i],
					took[i][rounds/2].Round(time.Millisecond), took[i][0].Round(time.Millisecond),
					took[i][rounds-1].Round(time.Millisecond), w.ttft.Round(time.Millisecond))
			}
		}
		t.Run(model+"/disk", func(t *testing.T) {
			measure(t, "disk", func(t *testing.T) *server { return serve(t, copied(t)) })
		})
		for store, urls := range map[string]func(t *testing.T) (one, two string){
			"valkey":   func(t *testing.T) (one, two string) { u := redistest.Start(t).URL(); return u, u },
			"mooncake": func(t *testing.T) (one, two string) { u := mooncaketest.Start(t, "1 GB").URL(); return u, u },
			"nixl": func(t *testing.T) (one, two string) {
				u := nixltest.Peers(t, 2, nixltest.Library(t), "")
				return u[0], u[1]
			},
		} {
			t.Run(model+"/"+store, func(t *testing.T) {
				one, two := urls(t)
				holder := serve(t, copied(t), "--fabric", one)
				waitfor.True(t, fmt.Sprintf("%d blocks are offered", blocks), func() bool {
					m := holder.samples()
					return m["meridian_disagg_blocks_offloaded_total"] >= float64(blocks) && m["uma_disagg_queued"] == 0
				})
				measure(t, store, func(t *testing.T) *server {
					return serve(t, filepath.Join(t.TempDir(), "new"), "--fabric", two)
				})
			})
		}
	}
}
