package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/internal/testutil/untar"
)

// run executes a command line.
func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = execute(args, &out, &errs)
	return status, out.String(), errs.String()
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := run(t, args...)
	if status != 0 {
		t.Fatalf("uma-sim %s: exit status %d\n%s", strings.Join(args, " "), status, errs)
	}
	return out
}

// cases unpacks the simulator's golden cases.
func cases(t *testing.T) string {
	t.Helper()
	return untar.Dir(t, "../../sim/blis/testdata/golden.tar.gz")
}

// TestGolden runs cases through the command line: the layout, files that a configuration names, flags over it.
func TestGolden(t *testing.T) {
	dir := cases(t)
	for _, c := range []struct {
		name, expected string
		flags          []string
	}{
		{"case02_fcfs_basic", "expected_fixed", nil},
		{"case31_roofline_llama_h100", "expected_fixed", nil},
		{"case24_tier_offload_doc", "expected_doc_tier_fixed", nil},
		{"case24_tier_offload_doc", "expected_fixed", []string{"--kv-tier-model", "mirror"}},
		{"case25_horizon", "expected_fixed_strict", []string{"--strict-horizon"}},
		{"case05_sjf", "expected_fixed", []string{"--seed", "7"}},
	} {
		at := func(file string) string { return filepath.Join(dir, c.name, file) }
		out := must(t, append([]string{"run", "--config", at("config.json"), "--trace", at("trace.csv"), "--json"},
			c.flags...)...)
		data, err := os.ReadFile(at(c.expected + ".json"))
		if err != nil {
			t.Fatal(err)
		}
		var got, want struct {
			Aggregate map[string]float64
			Requests  []map[string]any
			Steps     []map[string]any
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if len(got.Requests) != len(want.Requests) || len(got.Steps) != len(want.Steps) ||
			len(got.Aggregate) != len(want.Aggregate) {
			t.Fatalf("%s: %d requests, %d steps, %d numbers; want %d, %d, %d", c.name, len(got.Requests),
				len(got.Steps), len(got.Aggregate), len(want.Requests), len(want.Steps), len(want.Aggregate))
		}
		for k, w := range want.Aggregate {
			if g, ok := got.Aggregate[k]; !ok || math.Abs(g-w) > 1e-9*math.Max(1, math.Abs(w)) {
				t.Errorf("%s %s: %s = %v, want %v", c.name, c.expected, k, g, w)
			}
		}
	}

	// A flag wins over the file, also when it sets a zero.
	out := must(t, "run", "--config", filepath.Join(dir, "case05_sjf", "config.json"), "--trace",
		filepath.Join(dir, "case05_sjf", "trace.csv"), "--record-steps=false", "--scheduler", "fcfs", "--json")
	if strings.Contains(out, `"steps": [`) {
		t.Error("--record-steps=false did not override the configuration")
	}
}

const server = "--beta-coeffs=1000,10,5 --alpha-coeffs=100,1,100 --total-kv-blocks=2000"

func with(verb string, more ...string) []string {
	return append(append([]string{verb}, strings.Fields(server)...), more...)
}

// TestRunExportReplay (INV-13): the exported trace, replayed, gives the same results.
func TestRunExportReplay(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	first := must(t, with("run", "--rate", "20", "--num-requests", "60", "--prefix-tokens", "64", "--trace-output",
		at("t"), "--results-path", at("a.json"), "--metrics-path", at("m.json"), "--json")...)
	second := must(t, with("replay", "--trace-header", at("t.yaml"), "--trace-data", at("t.csv"), "--results-path",
		at("b.json"), "--json")...)
	if first != second {
		t.Error("INV-13: run and replay differ")
	}
	a, errA := os.ReadFile(at("a.json"))
	b, errB := os.ReadFile(at("b.json"))
	if errA != nil || errB != nil || !bytes.Equal(a, b) || len(a) < 1000 {
		t.Errorf("results differ: %v %v", errA, errB)
	}
	if m, err := os.ReadFile(at("m.json")); err != nil || !bytes.Contains(m, []byte(`"handled_by"`)) {
		t.Errorf("metrics file: %v", err)
	}
}

// TestRecordedPlans: what the scheduler was told can be written, and is a workload again.
func TestRecordedPlans(t *testing.T) {
	plans := filepath.Join(t.TempDir(), "plans.txt")
	must(t, with("run", "--batch-formation", "uma", "--workload", "meridian", "--num-requests", "5", "--plan-output",
		plans)...)
	out := must(t, with("run", "--batch-formation", "uma", "--uma-trace", plans)...)
	if !strings.Contains(out, `"completed_requests": 5`) {
		t.Errorf("%s", out)
	}
	// The recorded steps took what the coefficients say: they are found again, in milliseconds.
	var cost struct{ A, B, C, D float64 }
	if err := json.Unmarshal([]byte(must(t, "fit", "--uma-trace", plans)), &cost); err != nil {
		t.Fatal(err)
	}
	if math.Abs(cost.A-1) > 0.02 || math.Abs(cost.B-0.01) > 0.001 || math.Abs(cost.C-0.005) > 0.02 || cost.D > 1e-5 {
		t.Errorf("fitted %+v, want 1, 0.01, 0.005, 0", cost)
	}
	if status, _, errs := run(t, with("run", "--plan-output", plans)...); status != exitUsage ||
		!strings.Contains(errs, "--batch-formation uma") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// TestDaemonTrace: a trace of uma-serve is workload, server and step times at once, and flags change what they name.
func TestDaemonTrace(t *testing.T) {
	const trace = "../../sim/testdata/daemon.trace.gz"
	if out := must(t, "run", "--uma-trace", trace); !strings.Contains(out, `"completed_requests": 16`) ||
		!strings.Contains(out, "Cache Hit Rate: 0.") {
		t.Errorf("%s", out)
	}
	plans := filepath.Join(t.TempDir(), "plans")
	must(t, "run", "--uma-trace", trace, "--policy", "meridian", "--parallel", "2", "--engine", "fake", "--plan-output",
		plans)
	if data, err := os.ReadFile(plans); err != nil ||
		!bytes.HasPrefix(data, []byte("config policy=meridian max_running=2 cells=16384 ")) {
		t.Errorf("%.100s, %v", data, err)
	}
	if out := must(t, "compare", "--uma-trace", trace, "--policies", "uma,stock,vllm:fcfs"); strings.Count(out,
		"STABLE")+strings.Count(out, "BACKLOGGED") != 3 {
		t.Errorf("%s", out)
	}
	must(t, "plan", "--uma-trace", trace, "--contexts", "4096", "--slots", "4")
}

func TestVerbs(t *testing.T) {
	html := filepath.Join(t.TempDir(), "r.html")
	for _, c := range []struct {
		args []string
		want string
	}{
		{with("sweep", "--values", "5:320:x2", "--num-requests", "80", "--max-num-seqs", "4", "--output-tokens", "20",
			"--output-tokens-stdev", "5"), "saturation: stable up to"},
		{with("sweep", "--param", "max-num-seqs", "--values", "1,8", "--json"), `"label": "8"`},
		{with("compare", "--workload", "meridian", "--num-requests", "12", "--html", html), "vllm:sjf"},
		{with("compare", "--num-requests", "12", "--json", "--policies", "stock,vllm:fcfs"), `"label": "stock"`},
		{with("plan", "--num-requests", "30", "--contexts", "8192", "--slots", "4,8"),
			"uma-serve --ctx-size 8192 --parallel"},
		{with("plan", "--num-requests", "30", "--contexts", "8192", "--slots", "1", "--itl-target-ms", "0.1"),
			"none of the 3 configurations"},
		{with("cluster", "--num-requests", "50", "--instances", "5", "--prefill-instances", "2", "--routing",
			"least-loaded"), `"kv_transfers": 50`},
		{with("cluster", "--num-requests", "50", "--instances", "5", "--prefill-instances", "2", "--batch-formation",
			"uma", "--policy", "meridian"), `"kv_transfers": 50`},
		{with("run", "--workload", "meridian", "--num-requests", "12", "--batch-formation", "uma", "--early-exit",
			"both", "--think-budget", "3000", "--think-evict", "offload", "--kv-cpu-blocks", "100", "--json"),
			`"thoughts_ended_hard_cap": `},
		{[]string{"run", "--model", "meta-llama/llama-3.1-8b-instruct", "--hardware", "H100", "--num-requests", "5"},
			`"completed_requests": 5`},
		{[]string{"run", "--max-num-batched-tokens", "64", "--max-num-seqs", "3", "--beta-coeffs", "1,1,1",
			"--num-requests", "5", "--aggregate"}, `"completed_requests": 5`},
		{[]string{}, "A simulation needs:"},
	} {
		if out := must(t, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("uma-sim %s: no %q in\n%s", strings.Join(c.args, " "), c.want, out)
		}
	}
	if page, err := os.ReadFile(html); err != nil || !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("page: %v", err)
	}
}

// TestSameBytes (INV-6): stdout does not depend on the run, and no wall-clock time is in it.
func TestSameBytes(t *testing.T) {
	args := with("run", "--workload", "chatbot", "--rate", "30", "--num-requests", "25", "--json", "--record-steps")
	want := must(t, args...)
	for range 5 {
		if must(t, args...) != want {
			t.Fatal("two runs differ")
		}
	}
	sweep := with("sweep", "--values", "5:20:5", "--num-requests", "30", "--output-tokens", "30")
	want = must(t, sweep...)
	for range 3 {
		if must(t, sweep...) != want {
			t.Fatal("two sweeps differ")
		}
	}
}

// TestMistakes: each says what is wrong and with which status.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte("{\"scheduler\": \"lifo\",\n \"beta_coeffs\": [1,2,3]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(dir, "odd.json")
	if err := os.WriteFile(odd, []byte(`{"beta_coeffs": [1,2,3], "max_batch": 4}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"run"}, exitUsage, "the time of a step is missing"},
		{[]string{"run", "--nope"}, exitUsage, "there is no option --nope"},
		{[]string{"run", "--rates", "1"}, exitUsage, "there is no option --rates; did you mean --rate?"},
		{with("run", "--rate", "x"), exitUsage, `--rate is "x": it must be a number`},
		{[]string{"run", "--beta-coeffs", "1,x"}, exitUsage,
			`--beta-coeffs is "1,x": it must be a comma-separated list of numbers`},
		{with("plan", "--slots", "1,x"), exitUsage,
			`--slots is "1,x": it must be a comma-separated list of whole numbers`},
		{with("run", "--metrics-path", filepath.Join(dir, "no", "m.json")), exitError,
			"m.json: there is no directory " + filepath.Join(dir, "no")},
		{with("run", "--trace", dir), exitError, dir + ": it is a directory, not a file"},
		{with("run", "--trace", filepath.Join(dir, "none.csv")), exitError, "none.csv: no such file"},
		{[]string{"frobnicate"}, exitUsage, "no command \"frobnicate\""},
		{with("run", "file.csv"), exitUsage, "takes flags only"},
		{[]string{"run", "--config", bad}, exitError, "valid are fcfs"},
		{[]string{"run", "--config", "/does/not/exist"}, exitError, "/does/not/exist"},
		{[]string{"run", "--config", odd, "--num-requests", "1"}, 0, `key "max_batch" is unknown and ignored`},
		{[]string{"run", "--alpha-coeffs", "1,2,3"}, exitUsage, "needs --beta-coeffs"},
		{[]string{"run", "--model", "gpt-9", "--hardware", "H100"}, exitError, "no published coefficients"},
		{[]string{"run", "--latency-model", "roofline", "--hardware", "H100"}, exitError, "config.json"},
		{[]string{"run", "--latency-model", "roofline", "--beta-coeffs", "1,2,3", "--model-config", "x"}, exitUsage,
			"blackbox"},
		{with("run", "--workload", "unknown"), exitUsage, "chatbot"},
		{with("run", "--workload", "chatbot", "--trace", "x.csv"), exitUsage, "one of --trace"},
		{with("sweep", "--param", "nope"), exitUsage, "no flag --nope"},
		{with("sweep", "--values", "3:1:1"), exitUsage, "must grow"},
		{with("replay"), exitUsage, "--trace-data is missing"},
		{[]string{"fit"}, exitUsage, "--uma-trace is missing"},
		{with("run", "--total-kv-blocks", "4", "--prompt-tokens", "30", "--prompt-tokens-stdev", "0", "--output-tokens",
			"100", "--output-tokens-stdev", "0"), exitLivelock, "livelock"},
		{with("cluster", "--routing", "nope"), exitError, "round-robin"},
	} {
		status, out, errs := run(t, c.args...)
		if status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("uma-sim %s: status %d, want %d; %q is not in %q (stdout %.80q)", strings.Join(c.args, " "),
				status, c.status, c.want, errs, out)
		}
	}
}

// TestHelp: every verb teaches with an example, every flag has a text, every server flag has a key.
func TestHelp(t *testing.T) {
	for _, c := range newRoot().Commands() {
		if c.Name() == "help" || c.Name() == "completion" || c.Hidden {
			continue
		}
		if !strings.Contains(c.Long, "uma-sim "+c.Name()) {
			t.Errorf("%s: the help has no example", c.Name())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if len(f.Usage) < 8 {
				t.Errorf("%s --%s: %q says too little", c.Name(), f.Name, f.Usage)
			}
		})
	}
	var s serverFlags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.register(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if _, ok := keyOf[f.Name]; !ok && f.Name != "config" && f.Name != "cost-model" && f.Name != "model" &&
			f.Name != "vllm-version" {
			t.Errorf("--%s has no key in a configuration file", f.Name)
		}
	})
}

// TestMachine: two models on one machine, in text and JSON, and what is wrong with a command line.
func TestMachine(t *testing.T) {
	const server = "--latency-model calibrated --cost-model "
	cost := filepath.Join(t.TempDir(), "cost.json")
	if err := os.WriteFile(cost, []byte(`{"a":4,"b":1.3,"c":1.5,"d":0}`), 0o600); err != nil {
		t.Fatal(err)
	}
	chat := server + cost + " --prompt-tokens 20 --prompt-tokens-stdev 0 --output-tokens 300 --output-tokens-stdev 0 " +
		"--concurrency 1 --num-requests 2"
	storm := server + cost + " --prompt-tokens 1200 --output-tokens 1 --output-tokens-min 1 --concurrency 4 " +
		"--num-requests 20"
	args := []string{"machine", "--server", chat, "--server", storm}
	if out := must(t, args...); len(strings.Split(strings.TrimSpace(out), "\n")) != 3 ||
		!strings.Contains(out, "ITL p95") {
		t.Error(out)
	}
	var rows []struct {
		Server string
		Turns  struct {
			Steps, Contended, Limited int64
		}
		Aggregate map[string]any
	}
	if err := json.Unmarshal([]byte(must(t, append(args, "--json")...)), &rows); err != nil || len(rows) != 2 {
		t.Fatalf("%v, %d rows", err, len(rows))
	}
	if rows[0].Server != chat || rows[0].Turns.Contended == 0 || rows[1].Turns.Limited == 0 ||
		rows[0].Turns.Steps == 0 || len(rows[1].Aggregate) == 0 {
		t.Errorf("%+v", rows)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"machine"}, "at least one --server"},
		{[]string{"machine", "--server", "--no-such-flag"}, "no-such-flag"},
		{[]string{"machine", "--server", "words"}, `"words"`},
		{[]string{"machine", "--server", "--batch-formation vllm --beta-coeffs 1,1,1"}, "batch formation"},
	} {
		if status, _, errs := run(t, c.args...); status == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit status %d, %s", c.args, status, errs)
		}
	}
}
