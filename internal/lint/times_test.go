package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"
)

// mayTakeTime are the tests' functions that may look at a real clock or sleep, each with the reason why no condition
// and no fake clock can do. A test that needs an entry to pass on a busy machine does not deserve one.
var mayTakeTime = map[string]string{
	"daemon/front/crash_test.go TestCrashIsContained": "the second within which clients are told is what is " +
		"promised; it takes " +
		"some milliseconds",
	"daemon/front/crash_test.go TestCrashesUnderLoad": "the second within which clients are told is what is " +
		"promised; it takes " +
		"some milliseconds",
	"smoke/crash_linux_test.go TestEngineCrashesUnderLoad": "the second within which clients are told is what is " +
		"promised; it takes some milliseconds",
	"daemon/front/front_test.go openFake": "it is how long the fake engine's steps take, in " +
		"another process",
	"daemon/drop_test.go TestStopWithASlowStore": "the time is what is promised; the bound is one operation's own " +
		"limit away",
	"ipc/load_test.go TestThousandIdle": "it watches that nothing happens: a longer time sees more, and " +
		"none makes it fail",
	"ipc/load_test.go TestNoDescriptorLeft": "it watches that the loop does not spin: a longer time sees more, " +
		"and none makes it fail",
	"ipc/load_test.go TestNoReserveLeft": "it watches that the loop does not spin, against the time that " +
		"really passed",
}

// taking are the functions of package time that make a test depend on how long something takes.
var taking = map[string]string{
	"Sleep":     "wait for a condition (internal/testutil/waitfor), a channel or testing/synctest's clock",
	"Tick":      "wait for a condition (internal/testutil/waitfor), a channel or testing/synctest's clock",
	"NewTicker": "wait for a condition (internal/testutil/waitfor), a channel or testing/synctest's clock",
	"Since": "a busy machine takes any time: assert what happened, or in which order, or on testing/synctest's " +
		"clock",
	"Until": "a busy machine takes any time: assert what happened, or in which order, or on testing/synctest's " +
		"clock",
}

// takesTime says where a test depends on a real clock, and notes in used which exceptions it needed. What runs in a
// bubble (synctest.Test) and benchmarks are free to.
func takesTime(s source, allowed map[string]string, used map[string]bool) (wrong []string) {
	if !s.test {
		return nil
	}
	names := map[string]string{}
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if p == "time" && name == "." {
			wrong = append(wrong, s.path+` imports "time" as . and so hides what it uses`)
		}
		names[name] = p
	}
	of := func(e ast.Expr, pkg string) string {
		if sel, ok := e.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && names[x.Name] == pkg {
				return sel.Sel.Name
			}
		}
		return ""
	}
	for _, d := range s.file.Decls {
		name := ""
		if f, ok := d.(*ast.FuncDecl); ok {
			name = f.Name.Name
		}
		if strings.HasPrefix(name, "Benchmark") {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if of(n.Fun, "testing/synctest") == "Test" {
					return false
				}
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) == 0 &&
					(sel.Sel.Name == "Skip" || sel.Sel.Name == "SkipNow") {
					wrong = append(wrong, fmt.Sprintf("%s: %s skips without a reason", s.path, name))
				}
			case *ast.SelectorExpr:
				called := of(n, "time")
				instead, bad := taking[called]
				if !bad {
					return true
				}
				if where := s.path + " " + name; allowed[where] != "" {
					used[where] = true
				} else {
					wrong = append(wrong, fmt.Sprintf("%s: %s uses time.%s: %s", s.path, name, called, instead))
				}
			}
			return true
		})
	}
	return wrong
}

// TestTestsTakeNoTime: a test that sleeps is either slow or fails where the machine has something else to do; one that
// skips without a reason tests nothing and says nothing.
func TestTestsTakeNoTime(t *testing.T) {
	used := map[string]bool{}
	hold(t, func(s source) []string { return takesTime(s, mayTakeTime, used) })
	for where, why := range mayTakeTime {
		if !used[where] || why == "" {
			t.Errorf("the exception of %s is not needed, or has no reason", where)
		}
	}
}

func TestTimeRuleBites(t *testing.T) {
	const head = "package p\nimport (\n\"testing\"\n\"testing/synctest\"\n\"time\"\n)\n"
	for _, c := range []struct{ file, text, want string }{
		{"a_test.go", head + "func TestX(t *testing.T) { time.Sleep(1) }",
			"p/a_test.go: TestX uses time.Sleep: wait for a condition"},
		{"a_test.go", head + "func help() { f := func() { time.Sleep(1) }; f() }", "help uses time.Sleep"},
		{"a_test.go", head + "var pause = time.Sleep", "uses time.Sleep"},
		{"a_test.go", head + "func TestX(t *testing.T) { for range time.Tick(1) {} }", "uses time.Tick"},
		{"a_test.go", head + "func TestX(t *testing.T) { if time.Since(x) > 1 { t.Fatal() } }",
			"uses time.Since: a busy machine"},
		{"a_test.go", "package p\nimport clock \"time\"\nfunc TestX() { clock.Sleep(1) }", "uses time.Sleep"},
		{"a_test.go", "package p\nimport . \"time\"\nfunc TestX() { Sleep(1) }", "hides what it uses"},
		{"a_test.go", head + "func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1); " +
			"t.Log(time.Since(x)) }) }", ""},
		{"a_test.go", head + "func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) {}); time.Sleep(1) }",
			"uses time.Sleep"},
		{"a_test.go", head + "func BenchmarkX(b *testing.B) { time.Sleep(1) }", ""},
		// a limit for what hangs
		{"a_test.go", head + "func TestX(t *testing.T) { <-time.After(1); t.Log(time.Now()) }", ""},
		{"a.go", head + "func X() { time.Sleep(1) }", ""},
		{"a_test.go", head + "func TestX(t *testing.T) { t.Skip() }", "TestX skips without a reason"},
		{"a_test.go", head + "func TestX(t *testing.T) { t.SkipNow() }", "TestX skips without a reason"},
		{"a_test.go", head + "func TestX(t *testing.T) { t.Skip(\"built without\") }", ""},
		{"a_test.go", head + "func allowed() { time.Sleep(1) }", ""},
	} {
		s, err := parse(token.NewFileSet(), "p/"+c.file, c.text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, c.text)
		}
		used := map[string]bool{}
		wrong := strings.Join(takesTime(s, map[string]string{"p/a_test.go allowed": "why"}, used), "\n")
		if c.want == "" && wrong != "" || !strings.Contains(wrong, c.want) {
			t.Errorf("%s\n%s\nis answered %q, want %q", c.file, c.text, wrong, c.want)
		}
		if used["p/a_test.go allowed"] != strings.Contains(c.text, "allowed") {
			t.Errorf("%s: exceptions used: %v", c.text, used)
		}
	}
}
