package prepare

import (
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// The parts of Claude Code's first line that vary do not reach the prompt; nothing else is changed.
func TestBillingHeaderIsConstant(t *testing.T) {
	m := modelOf(t, fake.Config{})
	prompt := func(role, text string) string {
		t.Helper()
		out, err := m.render([]wire.Message{{Role: role, Content: text}, {Role: "user", Content: "x"}}, renderInput{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const (
		first  = "x-anthropic-billing-header: cc_version=2.1.332.a1b; cc_entrypoint=cli; cch=5e6f7;\n\ncch=1 stays"
		second = "x-anthropic-billing-header: cc_version=2.1.332.c2d; cc_entrypoint=cli; cch=00aab;\n\ncch=1 stays"
		want   = "x-anthropic-billing-header: cc_version=2.1.332; cc_entrypoint=cli; cch=0;\n\ncch=1 stays"
	)
	if a, b := prompt("system", first), prompt("system", second); a != b || a != prompt("system", want) {
		t.Errorf("%q\n%q", a, b)
	}
	if prompt("user", first) == prompt("user", second) {
		t.Error("a user's text was changed")
	}
}
