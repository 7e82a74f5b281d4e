package core

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// A prompt that needs the whole pool takes the cells of a cached one in the pool step by step, the end first, while
// nothing else runs. All of them are stored before they are lost.
func TestNothingIsLostToAPromptAlone(t *testing.T) {
	cfg := testConfig(4096, 2, 256, "uma")
	cfg.PartTokens = 32
	m, err := newMachine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.stepTime = 400 * time.Millisecond
	for i, prompt := range []string{"a:4000", "b:4000"} {
		m.arrive(arrival(t, []string{strconv.Itoa(i + 1), "prompt=" + prompt, "max=2"}))
		m.run(t, nil, &strings.Builder{})
	}
	if n := m.store.Missing(1, stream("a", 4000)); n < 4000-cfg.PartTokens {
		t.Errorf("of 4000 evicted tokens %d are stored", n)
	}
}
