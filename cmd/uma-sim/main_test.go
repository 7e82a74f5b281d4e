package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
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
		{"case24_tier_offload_doc", "expected_fixed", []string{"--set", "kv_tier_model=mirror"}},
		{"case25_horizon", "expected_fixed_strict", []string{"--set", "strict_horizon=true"}},
		{"case05_sjf", "expected_fixed", []string{"--seed", "7"}},
	} {
		at := func(file string) string { return filepath.Join(dir, c.name, file) }
		out := must(t, append([]string{"run", "--server", at("config.json"), "--workload", at("trace.csv"), "--json"},
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
	out := must(t, "run", "--server", filepath.Join(dir, "case05_sjf", "config.json"), "--workload",
		filepath.Join(dir, "case05_sjf", "trace.csv"), "--set", "record_steps=false", "--set", "scheduler=fcfs",
		"--json")
	if strings.Contains(out, `"steps": [`) {
		t.Error("record_steps=false did not override the configuration")
	}
}

// TestRooflineIsTheDefault: a model's shape without coefficients gives roofline's times.
func TestRooflineIsTheDefault(t *testing.T) {
	args := []string{"run", "--json", "--set", "gpu=H100", "--set", "num_requests=20", "--set",
		"hf_config_file=" + filepath.Join(cases(t), "models", "llama31-8b.json")}
	auto := must(t, args...)
	if auto != must(t, append(args, "--set", "latency_model=roofline")...) {
		t.Error("the default is not roofline")
	}
}

const server = "--set beta_coeffs=1000,10,5 --set alpha_coeffs=100,1,100 --set total_kv_blocks=2000"

func with(verb string, more ...string) []string {
	return append(append([]string{verb}, strings.Fields(server)...), more...)
}

// TestRunExportReplay (INV-13): the exported trace, replayed, gives the same results.
func TestRunExportReplay(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	first := must(t, with("run", "--set", "rate=20", "--set", "num_requests=60", "--set", "prefix_tokens=64",
		"--trace-output", at("t"), "--results-path", at("a.json"), "--metrics-path", at("m.json"), "--json")...)
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
	must(t, with("run", "--set", "batch_formation=uma", "--workload", "meridian", "--set", "num_requests=5",
		"--plan-output", plans)...)
	out := must(t, with("run", "--set", "batch_formation=uma", "--workload", plans)...)
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
		!strings.Contains(errs, "batch_formation uma") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// TestVerbose: each preemption is a line on stderr, with its time and its request, and stdout stays the same.
func TestVerbose(t *testing.T) {
	for _, more := range [][]string{nil, {"--set", "batch_formation=uma"}} {
		load := append([]string{"--set", "total_kv_blocks=24", "--set", "num_requests=20", "--set", "rate=200", "--set",
			"prompt_tokens=64", "--set", "output_tokens=120", "--json"}, more...)
		_, quiet, errs := run(t, with("run", load...)...)
		if strings.Contains(errs, "preempted") {
			t.Errorf("without --verbose: %s", errs)
		}
		_, out, errs := run(t, with("run", append(load, "--verbose")...)...)
		lines := regexp.MustCompile(`(?m)^uma-sim: \d+ us: request_\d+ is preempted and queued again$`)
		count := regexp.MustCompile(`"preemption_count": (\d+)`).FindStringSubmatch(out)
		n := len(lines.FindAllString(errs, -1))
		if out != quiet || len(count) != 2 || count[1] == "0" || n == 0 {
			t.Errorf("%v: counted %v, %d lines, stdout equal: %t\n%.2000s", more, count, n, out == quiet, errs)
		}
	}
}

// TestDaemonTrace: a trace of uma-serve is workload, server and step times at once, and flags change what they name.
func TestDaemonTrace(t *testing.T) {
	const trace = "../../sim/testdata/daemon.trace.gz"
	if out := must(t, "run", "--workload", trace); !strings.Contains(out, `"completed_requests": 16`) ||
		!strings.Contains(out, "Cache Hit Rate: 0.") {
		t.Errorf("%s", out)
	}
	plans := filepath.Join(t.TempDir(), "plans")
	must(t, "run", "--workload", trace, "--set", "policy=meridian", "--set", "max_num_running_reqs=2", "--set",
		"engine=fake", "--plan-output", plans)
	if data, err := os.ReadFile(plans); err != nil ||
		!bytes.HasPrefix(data, []byte("config policy=meridian prefix=true max_running=2 cells=16384 ")) {
		t.Errorf("%.100s, %v", data, err)
	}
	if out := must(t, "compare", "--workload", trace, "--policies", "uma,stock,vllm:fcfs"); strings.Count(out,
		"STABLE")+strings.Count(out, "BACKLOGGED") != 3 {
		t.Errorf("%s", out)
	}
	must(t, "plan", "--workload", trace, "--contexts", "4096", "--slots", "4")
}

func TestVerbs(t *testing.T) {
	html := filepath.Join(t.TempDir(), "r.html")
	for _, c := range []struct {
		args []string
		want string
	}{
		{with("sweep", "--values", "5:320:x2", "--set", "num_requests=80", "--set", "max_num_running_reqs=4", "--set",
			"output_tokens=20", "--set", "output_tokens_stdev=5"), "saturation: stable up to"},
		{with("sweep", "--param", "max-num-seqs", "--values", "1,8", "--json"), `"label": "8"`},
		{with("compare", "--workload", "meridian", "--set", "num_requests=12", "--html", html), "vllm:sjf"},
		{with("compare", "--set", "num_requests=12", "--json", "--policies", "stock,vllm:fcfs"), `"label": "stock"`},
		{with("plan", "--set", "num_requests=30", "--contexts", "8192", "--slots", "4,8"),
			"uma-serve --ctx-size 8192 --parallel"},
		{with("plan", "--set", "num_requests=30", "--contexts", "8192", "--slots", "1", "--itl-target-ms", "0.1"),
			"none of the 3 configurations"},
		{with("cluster", "--set", "num_requests=50", "--instances", "5", "--prefill-instances", "2", "--routing",
			"least-loaded"), `"kv_transfers": 50`},
		{with("cluster", "--set", "num_requests=50", "--instances", "5", "--prefill-instances", "2", "--set",
			"batch_formation=uma", "--set", "policy=meridian"), `"kv_transfers": 50`},
		{with("run", "--workload", "meridian", "--set", "num_requests=12", "--set", "batch_formation=uma", "--set",
			"early_exit=both", "--set", "think_budget=3000", "--set", "think_evict=offload", "--set",
			"kv_cpu_blocks=100", "--json"),
			`"thoughts_ended_hard_cap": `},
		{[]string{"run", "--set", "model=meta-llama/llama-3.1-8b-instruct", "--set", "gpu=H100", "--set",
			"num_requests=5"},
			`"completed_requests": 5`},
		{[]string{"run", "--set", "max_num_scheduled_tokens=64", "--set", "max-num-seqs=3", "--set",
			"beta_coeffs=1,1,1", "--set", "num_requests=5", "--aggregate"}, `"completed_requests": 5`},
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
	args := with("run", "--workload", "chatbot", "--set", "rate=30", "--set", "num_requests=25", "--json", "--set",
		"record_steps=true")
	want := must(t, args...)
	for range 5 {
		if must(t, args...) != want {
			t.Fatal("two runs differ")
		}
	}
	sweep := with("sweep", "--values", "5:20:5", "--set", "num_requests=30", "--set", "output_tokens=30")
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
		{[]string{"run", "--seeds", "1"}, exitUsage, "there is no option --seeds; did you mean --seed?"},
		{[]string{"run", "--rate", "1"}, exitUsage, "--rate is no option any more: it is the key rate of the file of " +
			"--workload, or --set rate=VALUE"},
		{[]string{"run", "--hardware", "H100"}, exitUsage, "it is the key gpu of the file of --server"},
		{[]string{"run", "--uma-trace", "x"}, exitUsage, "--uma-trace is --workload"},
		{with("run", "--set", "rates=1"), exitUsage, "rates: there is no such key; did you mean rate?"},
		{with("run", "--set", "rate"), exitUsage, "want KEY=VALUE"},
		{with("run", "--set", "rate=x"), exitUsage, `rate=x: it must be a number`},
		{[]string{"run", "--set", "beta_coeffs=1,x"}, exitUsage,
			`beta_coeffs=1,x: it must be a comma-separated list of numbers`},
		{with("plan", "--slots", "1,x"), exitUsage,
			`--slots is "1,x": it must be a comma-separated list of whole numbers`},
		{with("run", "--metrics-path", filepath.Join(dir, "no", "m.json")), exitError,
			"m.json: there is no directory " + filepath.Join(dir, "no")},
		{with("run", "--workload", dir), exitError, dir + ": it is a directory, not a file"},
		{with("run", "--workload", filepath.Join(dir, "none.csv")), exitError, "none.csv: no such file"},
		{[]string{"frobnicate"}, exitUsage, "no command \"frobnicate\""},
		{with("run", "file.csv"), exitUsage, "takes flags only"},
		{[]string{"run", "--server", bad}, exitError, "valid are fcfs"},
		{[]string{"run", "--server", "/does/not/exist"}, exitError, "/does/not/exist"},
		{[]string{"run", "--server", odd, "--set", "num_requests=1"}, 0, `key "max_batch" is unknown and ignored`},
		{[]string{"run", "--set", "alpha_coeffs=1,2,3"}, exitUsage, "needs beta_coeffs"},
		{[]string{"run", "--set", "model=gpt-9", "--set", "gpu=H100"}, exitError, "no published coefficients"},
		{[]string{"run", "--set", "latency_model=roofline", "--set", "gpu=H100"}, exitError, "config.json"},
		{[]string{"run", "--set", "latency_model=roofline", "--set", "beta_coeffs=1,2,3", "--set",
			"hf_config_file=x"}, exitUsage, "blackbox"},
		{with("run", "--workload", "unknown"), exitUsage, "chatbot"},
		{with("sweep", "--param", "nope"), exitUsage, "nope: there is no such key"},
		{with("sweep", "--values", "3:1:1"), exitUsage, "must grow"},
		{with("replay"), exitUsage, "--trace-data is missing"},
		{[]string{"fit"}, exitUsage, "--uma-trace is missing"},
		{with("run", "--set", "total_kv_blocks=4", "--set", "prompt_tokens=30", "--set",
			"prompt_tokens_stdev=0", "--set", "output_tokens=100", "--set", "output_tokens_stdev=0"),
			exitLivelock, "livelock"},
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
	var in inputs
	in.init(io.Discard)
	in.keys.VisitAll(func(f *pflag.Flag) {
		if len(f.Usage) < 8 {
			t.Errorf("key %s: %q says too little", f.Name, f.Usage)
		}
	})
	out := must(t, "keys")
	for _, key := range []string{"total_kv_blocks", "cost_model", "horizon_us", "preset", "think_time_ms"} {
		if !strings.Contains(out, "\n  "+key+" ") {
			t.Errorf("uma-sim keys lacks %s", key)
		}
	}
}

// TestWorkloadFiles: keys, a preset, a specification, a trace and a recording are told apart.
func TestWorkloadFiles(t *testing.T) {
	dir := cases(t)
	at := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	spec := filepath.Join(dir, "workload", "two_clients_prefix.yaml")
	for file, want := range map[string]string{
		at("keys.yaml", "rate: 20\nnum_requests: 7\nprompt_tokens: 30\n"): `"completed_requests": 7`,
		at("preset.yaml", "preset: chatbot\nnum_requests: 8\n"):           `"completed_requests": 8`,
		spec: `"completed_requests": `, "../../sim/testdata/daemon.trace.gz": `"completed_requests": 16`,
	} {
		if out := must(t, with("run", "--workload", file)...); !strings.Contains(out, want) {
			t.Errorf("%s: no %s in\n%s", file, want, out)
		}
	}
	server := at("server.json", `{"model": "meta-llama/llama-3.1-8b-instruct", "gpu": "H100"}`)
	if out := must(t, "run", "--server", server, "--set", "num_requests=5"); !strings.Contains(out,
		`"completed_requests": 5`) {
		t.Error(out)
	}
	for text, want := range map[string]string{"rat: 3\n": "there is no such key; did you mean rate?",
		"rate: fast\n": "it must be a number", "a: [\n": "bad.yaml"} {
		if status, _, errs := run(t, with("run", "--workload", at("bad.yaml", text))...); status == 0 ||
			!strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %s", text, status, errs)
		}
	}
	if status, _, errs := run(t, with("run", "--workload", "chatbots")...); status != exitUsage ||
		!strings.Contains(errs, "neither such a file nor such a preset") {
		t.Errorf("status %d, %s", status, errs)
	}
}

// TestMachine: two models on one machine, in text and JSON, and what is wrong with a command line.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	at := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	at("cost.json", `{"a":4,"b":1.3,"c":1.5,"d":0}`)
	server := at("server.json", `{"cost_model": "cost.json"}`)
	chat := at("chat.yaml", "prompt_tokens: 20\nprompt_tokens_stdev: 0\noutput_tokens: 300\noutput_tokens_stdev: 0\n"+
		"concurrency: 1\nnum_requests: 2\n")
	storm := at("storm.yaml", "prompt_tokens: 1200\noutput_tokens: 1\noutput_tokens_min: 1\nconcurrency: 4\n"+
		"num_requests: 20\n")
	args := []string{"machine", "--server", server, "--workload", chat, "--server", server, "--workload", storm}
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
	if rows[0].Server != server || rows[0].Turns.Contended == 0 || rows[1].Turns.Limited == 0 ||
		rows[0].Turns.Steps == 0 || len(rows[1].Aggregate) == 0 {
		t.Errorf("%+v", rows)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"machine"}, "at least one --server"},
		{[]string{"machine", "--server", server}, "a --workload for each"},
		{[]string{"machine", "--server", "words", "--workload", chat}, "words"},
		{[]string{"machine", "--server", server, "--workload", chat, "--set", "batch_formation=vllm"},
			"batch formation"},
	} {
		if status, _, errs := run(t, c.args...); status == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit status %d, %s", c.args, status, errs)
		}
	}
}
