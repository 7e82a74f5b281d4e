package opening

import (
	"reflect"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// load parses a command line as the binary does.
func load(t *testing.T, args, environ []string) (*config.Config, error) {
	t.Helper()
	fs, c, _ := config.NewFlagSet()
	if err := fs.Parse(config.NormalizeArgs(args)); err != nil {
		return nil, clierr.Flag(fs, err)
	}
	return c, c.Load(environ)
}

// TestEngineOptions: the engine is opened with what the options say.
func TestEngineOptions(t *testing.T) {
	c, err := load(t, strings.Fields("-m x.gguf -c 512 -np 4 -b 128 -ub 64 -t 3 -ngl 7 -ncmoe 5 -fa on "+
		"-ctk q8_0 -ctv bf16 -nkvo --mlock --no-mmap -nr --kernels ggml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	sequences, _ := c.Sequences("x.gguf")
	want := runtime.Options{ModelPath: "x.gguf", ContextTokens: 512, Batch: 128, MicroBatch: 64,
		Sequences: sequences, Threads: 3, GPULayers: 7, CPUMoE: 5, FlashAttn: "on", KVTypeK: "q8_0",
		KVTypeV: "bf16", NoKVOffload: true, MLock: true, NoMMap: true, NoRepack: true, Kernels: "ggml"}
	if got := EngineOptions(c, "x.gguf"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestValidOptionsSuitTheScheduler: a value that the options allow is accepted by the parts behind them as well.
func TestValidOptionsSuitTheScheduler(t *testing.T) {
	for _, line := range []string{
		"-c 64 -np 64 -b 64", "-c 64 -np 1 -b 1", "-np 248 -b 248 -c 248", "-c 134217728", "-b 1048576",
		"--max-queue 0", "--max-queue 1048576", "--tick-budget-ms 1", "--start-target-tokens 1",
		"--start-target-tokens 1048576 -b 64", "--tick-budget-ms 60000",
		"--itl-target-ms 1 --think-floor-ms 1", "--itl-target-ms 60000 --think-floor-ms " +
			"60000", "--meridian think_batch_multiplier=1",
		"--meridian think_batch_multiplier=1000",
	} {
		for _, policy := range sched.Policies() {
			c, err := load(t, append(strings.Fields(line), "--policy", policy), nil)
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			// As the engine has them: the batch is cut to the context.
			n := c.ContextTokens("x.gguf")
			caps := runtime.Capabilities{ContextTokens: n, MaxBatch: min(c.BatchSize, n),
				MaxSequences: core.MaxSequences}
			if _, err := core.New(CoreConfig(c, caps, runtime.ModelInfo{}, sched.CostState{})); err != nil {
				t.Errorf("%s --policy %s: %v", line, policy, err)
			}
		}
	}
}
