package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// workflow has the checked fields of a file in .github/workflows.
type workflow struct {
	Name string         `yaml:"name"`
	On   map[string]any `yaml:"on"`
	Jobs map[string]struct {
		RunsOn   string `yaml:"runs-on"`
		Strategy struct {
			Matrix struct {
				Include []struct{ System, Runner string } `yaml:"include"`
			} `yaml:"matrix"`
		} `yaml:"strategy"`
		Steps []struct {
			Name string         `yaml:"name"`
			Uses string         `yaml:"uses"`
			With map[string]any `yaml:"with"`
			Run  string         `yaml:"run"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

var (
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	makeCall   = regexp.MustCompile(`(?m)(?:^|[\s;&|])make\s+([^\n;&|]*)`)
)

// targets are the names of a Makefile's rules.
func targets(makefile string) (out []string) {
	for _, m := range makeTarget.FindAllStringSubmatch(makefile, -1) {
		out = append(out, m[1])
	}
	return out
}

// called are the targets that a script makes.
func called(script string) (out []string) {
	for _, m := range makeCall.FindAllStringSubmatch(script, -1) {
		for word := range strings.FieldsSeq(m[1]) {
			if !strings.Contains(word, "=") && !strings.HasPrefix(word, "-") {
				out = append(out, word)
			}
		}
	}
	return out
}

// TestWorkflow: the workflow for a host parses, runs on Linux and macOS, and makes targets that exist.
func TestWorkflow(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	have := targets(string(makefile))
	text, err := os.ReadFile(filepath.Join("../../.github/workflows", "ci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	if w.Name == "" || len(w.On) == 0 || len(w.Jobs) == 0 {
		t.Fatalf("%+v", w)
	}
	var systems, made, kept []string
	onCard := false
	for name, job := range w.Jobs {
		if job.RunsOn == "" || len(job.Steps) == 0 {
			t.Errorf("job %s runs nothing, nowhere", name)
		}
		for _, m := range job.Strategy.Matrix.Include {
			if m.Runner == "" {
				t.Errorf("job %s: %s has no runner", name, m.System)
			}
			systems = append(systems, m.System)
		}
		for _, s := range job.Steps {
			if (s.Uses == "") == (s.Run == "") {
				t.Errorf("job %s, step %q: it must have one of uses and run", name, s.Name)
			}
			if s.Uses != "" && !regexp.MustCompile(`^actions/[a-z-]+@v\d+$`).MatchString(s.Uses) {
				t.Errorf("job %s uses %s: only actions/NAME@vN", name, s.Uses)
			}
			if file, ok := s.With["go-version-file"].(string); ok {
				if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
					t.Error(err)
				}
			}
			if name, ok := s.With["path"].(string); ok && strings.HasPrefix(s.Uses, "actions/upload-artifact@") {
				kept = append(kept, name)
			}
			onCard = onCard || strings.HasPrefix(s.Run, "scripts/gpu-check.sh ")
			for _, target := range called(s.Run) {
				if made = append(made, target); !slices.Contains(have, target) {
					t.Errorf("job %s makes %s, which the Makefile lacks", name, target)
				}
			}
		}
	}
	for _, want := range []string{"Linux amd64", "Linux arm64", "macOS arm64"} {
		if !slices.Contains(systems, want) {
			t.Errorf("%s is not among %q", want, systems)
		}
	}
	for _, want := range []string{"build/replay", "build/real", "build/gpu", "build/device-check"} {
		if !slices.Contains(kept, want) {
			t.Errorf("the reports of %s are not kept: %q", want, kept)
		}
	}
	if !onCard {
		t.Error("no job runs scripts/gpu-check.sh")
	}
	for _, want := range []string{"build", "lint", "test-all", "device-check"} {
		if !slices.Contains(made, want) {
			t.Errorf("%s is not made: %q", want, made)
		}
	}
}

func TestMakeTargetsAreFound(t *testing.T) {
	if got := targets("BIN ?= bin\nbuild: x ## y\n\techo a: b\nrun: export ASK ?=\n"); !slices.Equal(got,
		[]string{"build", "run"}) {
		t.Errorf("%q", got)
	}
	script := "make lint\nif true; then make -s test fuzz FUZZTIME=1s; fi && make deb\ncmake x\n"
	if got := called(script); !slices.Equal(got, []string{"lint", "test", "fuzz", "deb"}) {
		t.Errorf("%q", got)
	}
}
