package launch

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestPlans: what each program is started with, for a model that thinks and one that does not.
func TestPlans(t *testing.T) {
	datadriven.RunTest(t, filepath.Join("testdata", "plans.txt"), func(t *testing.T, d *datadriven.TestData) string {
		p, ok := Find(d.Cmd)
		if !ok {
			d.Fatalf(t, "no program %s", d.Cmd)
		}
		target := &Target{URL: "http://127.0.0.1:8737", Key: "uma-serve", Model: "qwen", Context: 32768, Home: "/h",
			Config: "/h/.config", Dir: "/d", Thinks: d.HasArg("thinks")}
		plan := p.Plan(target, strings.Fields(d.Input))
		for _, f := range plan.Merge {
			if !json.Valid([]byte(f.Text)) {
				t.Errorf("%s: %s is not JSON", p.Name, f.Path)
			}
		}
		return plan.String()
	})
}

// TestHostileNames: a model's name stays one word, and JSON stays JSON.
func TestHostileNames(t *testing.T) {
	name := "a\"b'c\\d\n}] $(x)"
	target := &Target{URL: "http://127.0.0.1:1", Key: "k", Model: name, Context: 1, Home: "/h", Config: "/c", Dir: "/d"}
	for i := range Programs {
		plan := Programs[i].Plan(target, nil)
		for _, f := range append(plan.Merge, plan.Own...) {
			if strings.HasSuffix(f.Path, ".json") && !json.Valid([]byte(f.Text)) {
				t.Errorf("%s: %s:\n%s", Programs[i].Name, f.Path, f.Text)
			}
		}
		if text := plan.String(); strings.Contains(text, "\n}] $(x)\n") {
			t.Errorf("%s: %s", Programs[i].Name, text)
		}
		if len(plan.Command) == 0 || plan.Command[0] != Programs[i].Binary {
			t.Errorf("%s starts %q", Programs[i].Name, plan.Command)
		}
	}
	for word, want := range map[string]string{"": "''", "a-b": "a-b", "it's": `'it'\''s'`, "$x": "'$x'"} {
		if got := quote(word); got != want {
			t.Errorf("%q: %s", word, got)
		}
	}
}

// TestMerge: undo takes out what merge has set, and nothing that was changed meanwhile.
func TestMerge(t *testing.T) {
	const patch = `{"a":{"x":1,"y":{"z":[1]}},"b":"new"}`
	for _, c := range []struct{ old, merged, now, undone string }{
		{``, `{"a":{"x":1,"y":{"z":[1]}},"b":"new"}`, ``, `{}`},
		{`{"b":"old","c":1.50}`, `{"a":{"x":1,"y":{"z":[1]}},"b":"new","c":1.50}`, ``, `{"b":"old","c":1.50}`},
		{`{"a":{"x":7,"k":1}}`, `{"a":{"k":1,"x":1,"y":{"z":[1]}},"b":"new"}`, ``, `{"a":{"k":1,"x":7}}`},
		{`{"a":5}`, `{"a":{"x":1,"y":{"z":[1]}},"b":"new"}`, `{"a":{"x":2,"n":3},"b":"other","d":1}`,
			`{"a":{"n":3,"x":2},"b":"other","d":1}`},
		{`{}`, `{"a":{"x":1,"y":{"z":[1]}},"b":"new"}`, `{"a":{"other":{"k":1},"x":1,"y":{"at":5,"z":[1]}},"b":"new"}`,
			`{"a":{"other":{"k":1}}}`},
	} {
		got, err := merge([]byte(c.old), []byte(patch))
		if err != nil || short(t, got) != c.merged {
			t.Errorf("%s: merged %s, %v", c.old, got, err)
			continue
		}
		if c.now != "" {
			got = []byte(c.now)
		}
		back, err := undo(got, []byte(c.old), []byte(patch))
		if err != nil || short(t, back) != c.undone {
			t.Errorf("%s: undone %s, %v", c.old, back, err)
		}
	}
	for _, bad := range []string{"[]", "null", "// x\n{}", "{} {}", "{"} {
		if _, err := merge([]byte(bad), []byte(patch)); err == nil {
			t.Errorf("%q was merged", bad)
		}
	}
}

func short(t *testing.T, b []byte) string {
	t.Helper()
	v, err := parse(b)
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return line(v)
}

// FuzzMerge: a merge after an undo has the result of the merge before.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1},"c":[2]}`), []byte(`{"a":{"b":2,"d":{}},"c":{"e":1}}`))
	f.Fuzz(func(t *testing.T, old, patch []byte) {
		_, err := parse(old)
		if _, bad := parse(patch); err != nil || bad != nil || len(old)+len(patch) > 1<<16 {
			return
		}
		now, err := merge(old, patch)
		if err != nil {
			t.Fatal(err)
		}
		back, err := undo(now, old, patch)
		if err != nil {
			t.Fatalf("%q and %q: %v", old, patch, err)
		}
		again, err := merge(back, patch)
		if err != nil || string(again) != string(now) {
			t.Fatalf("%q and %q: undone %q, merged again %q, at first %q (%v)", old, patch, back, again, now, err)
		}
	})
}
