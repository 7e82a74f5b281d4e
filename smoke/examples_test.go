//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestExamples runs every program of examples/ against a daemon with the built-in model.
func TestExamples(t *testing.T) {
	want := map[string]*regexp.Regexp{ // by the name without its extension
		"chat":        regexp.MustCompile(`^5798\n$`),
		"stream":      regexp.MustCompile(`^5798\n$`),
		"cancel":      regexp.MustCompile(`^(cancelled (true|True)|closed after 5 chunks)\n$`),
		"think":       regexp.MustCompile(`(?s)^.*\n(\d|1\d|2[0-4]) of 24 tokens of thought(, ended: hard_cap)?\n$`),
		"openai":      regexp.MustCompile(`^(model: .+\n5798\n\(\d+ tokens\)|5798)\n$`),
		"gollama":     regexp.MustCompile(`^5798\n$`),
		"openai_http": regexp.MustCompile(`^5798\n$`),
	}
	const libraries = " uma.py socket.sh README.md "

	p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit, nil, "-t", "1")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Proc: p, t: t}
	defer p.Stop(waitfor.Limit)

	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/",
		"../examples/go/...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob("../examples/*/*")
	if err != nil || len(files) < 10 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		base := filepath.Base(file)
		name, ext := strings.TrimSuffix(base, filepath.Ext(base)), filepath.Ext(base)
		if strings.Contains(libraries, " "+base+" ") || base == "__pycache__" {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(file))+"/"+name, func(t *testing.T) {
			if want[name] == nil {
				t.Fatalf("no output is expected of %s", file)
			}
			needs := map[string][]string{".py": {"python3"}, ".sh": {"bash", "curl", "jq"}}[ext]
			for _, program := range needs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("no %s here", program)
				}
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, base))
			if len(needs) > 0 {
				cmd = exec.CommandContext(t.Context(), needs[0], file)
			}
			cmd.Env = append(os.Environ(), "UMA_HOST=", "UMA_SOCKET="+s.Socket, "PYTHONDONTWRITEBYTECODE=1")
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil || !want[name].Match(out) {
				t.Errorf("%v\n%s%s", err, out, &errs)
			}
		})
	}
	// A cancelled request leaves nothing behind.
	waitfor.True(t, "the requests end", func() bool { return s.info().Live.Requests == 0 })
}
