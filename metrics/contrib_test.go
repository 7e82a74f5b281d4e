package metrics

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// dashboardQueries are the queries of contrib/grafana by their panel's title, with Grafana's variables replaced.
func dashboardQueries(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "contrib", "grafana", "uma-serve.json"))
	if err != nil {
		t.Fatal(err)
	}
	type panel struct {
		Title   string
		Type    string
		Panels  []json.RawMessage
		Targets []struct{ Expr string }
	}
	var board struct{ Panels []panel }
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		if out[p.Title] != nil || len(p.Targets) == 0 || len(p.Panels) > 0 {
			t.Errorf("panel %q: no query, two of that title, or panels within it", p.Title)
		}
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], strings.NewReplacer("$__rate_interval", "5m", "$instance",
				".+").Replace(target.Expr))
		}
	}
	return out
}

// alertQueries are the expressions of contrib/prometheus by alert.
func alertQueries(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "contrib", "prometheus", "uma-serve.rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Expr        string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(b, &rules); err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(filepath.Join("..", "contrib", "prometheus", "uma-serve.rules.test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			out[r.Alert] = []string{r.Expr}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s says nothing", r.Alert)
			}
			if strings.Count(string(tests), r.Alert) != 2 {
				t.Errorf("%s is not tested both ways", r.Alert)
			}
		}
	}
	return out
}

// families maps every series name that a scrape can have to its labels.
func families(t *testing.T) map[string][]string {
	t.Helper()
	gathered, err := filled().Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, f := range gathered {
		labels := []string{"instance", "job", "model"} // Prometheus adds the first two, a front the last one
		for _, m := range f.Metric {
			for _, l := range m.Label {
				labels = append(labels, l.GetName())
			}
		}
		names := []string{f.GetName()}
		if f.GetType().String() == "HISTOGRAM" {
			names = []string{f.GetName() + "_sum", f.GetName() + "_count", f.GetName() + "_bucket"}
			labels = append(labels, "le")
		}
		for _, n := range names {
			out[n] = labels
		}
	}
	for _, m := range Front {
		out[m.Name] = []string{"instance", "job", "model"}
	}
	return out
}

var (
	queryString = regexp.MustCompile(`"[^"]*"`)
	metricName  = regexp.MustCompile(`\b(?:uma|meridian|process|go)_[a-z0-9_]+`)
	labelUse    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	labelList   = regexp.MustCompile(`\b(?:by|on)\s*\(([^)]*)\)`)
)

// TestContribNames: every metric and label that the dashboard and the alerts use is one that the daemon has.
func TestContribNames(t *testing.T) {
	known := families(t)
	used := map[string]bool{}
	check := func(where string, queries []string) {
		for _, q := range queries {
			names := metricName.FindAllString(queryString.ReplaceAllString(q, `""`), -1)
			if len(names) == 0 {
				t.Errorf("%s: no metric in %s", where, q)
			}
			var labels []string
			for _, n := range names {
				used[n] = true
				if known[n] == nil {
					t.Errorf("%s: there is no metric %s", where, n)
				}
				labels = append(labels, known[n]...)
			}
			var wanted []string
			for _, m := range labelUse.FindAllStringSubmatch(q, -1) {
				wanted = append(wanted, m[1])
			}
			for _, m := range labelList.FindAllStringSubmatch(q, -1) {
				for l := range strings.SplitSeq(m[1], ",") {
					wanted = append(wanted, strings.TrimSpace(l))
				}
			}
			for _, l := range wanted {
				if !slices.Contains(labels, l) {
					t.Errorf("%s: %s has no label %q", where, q, l)
				}
			}
		}
	}
	for title, queries := range dashboardQueries(t) {
		check("dashboard, "+title, queries)
	}
	for alert, queries := range alertQueries(t) {
		check("alert "+alert, queries)
	}
	for _, must := range []string{"uma_time_to_first_token_seconds_bucket", "uma_inter_token_latency_seconds_bucket",
		"uma_kv_tier_bytes",
		"uma_requests_queued", "uma_requests_refused_total", "uma_kv_misses_total", "uma_request_seconds_bucket"} {
		if !used[must] {
			t.Errorf("%s is on no panel", must)
		}
	}
}

// TestPromtool has promtool read the dashboard's queries, as recording rules, and a scrape. scripts/prom-check.sh calls
// it.
func TestPromtool(t *testing.T) {
	tool := os.Getenv("PROMTOOL")
	if tool == "" {
		t.Skip("PROMTOOL does not name promtool; scripts/prom-check.sh does")
	}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	n := 0
	for _, queries := range dashboardQueries(t) {
		for _, q := range queries {
			n++
			fmt.Fprintf(&rules, "      - record: panel:query:n%d\n        expr: %q\n", n, q)
		}
	}
	path := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(path, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, rules.String())
	}
	rec := httptest.NewRecorder()
	filled().PrometheusHandler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	cmd := exec.CommandContext(t.Context(), tool, "check", "metrics")
	// Names of llama-server have a colon, which promtool keeps for recording rules.
	theirs := regexp.MustCompile(`(?m)^(# \w+ )?llamacpp:.*\n`)
	cmd.Stdin = strings.NewReader(theirs.ReplaceAllString(rec.Body.String(), ""))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("check metrics: %v\n%s", err, out)
	}
}

// TestOpenMetrics: in the OpenMetrics format a counter's family has no _total, so that no gauge may have that name.
func TestOpenMetrics(t *testing.T) {
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	rec := httptest.NewRecorder()
	filled().PrometheusHandler().ServeHTTP(rec, req)
	body := rec.Body.String()
	if kind := rec.Header().Get("Content-Type"); !strings.HasPrefix(kind, "application/openmetrics-text") ||
		!strings.HasSuffix(body, "# EOF\n") {
		t.Fatalf("%s: %.200s", kind, body)
	}
	seen := map[string]bool{}
	for line := range strings.SplitSeq(body, "\n") {
		rest, ok := strings.CutPrefix(line, "# TYPE ")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, " ")
		if seen[name] {
			t.Errorf("two families are called %s", name)
		}
		seen[name] = true
	}
	for _, name := range []string{"uma_requests_parked", "uma_preemptions_parked", "process_cpu_seconds",
		"process_resident_memory_bytes",
		"go_goroutines", "go_memory_classes_heap_objects_bytes"} {
		if !seen[name] {
			t.Errorf("no family %s", name)
		}
	}
}
