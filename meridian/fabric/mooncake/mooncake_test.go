package mooncake_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
	"github.com/uma-serve/uma-serve/meridian/fabric/mooncake"
	"github.com/uma-serve/uma-serve/meridian/fabric/synth"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
)

func open(t testing.TB) fabric.Fabric {
	f, err := synth.New(4 * fabrictest.LargeBytes)
	if err != nil {
		t.Fatal(err)
	}
	return mooncake.New(f)
}

func TestConformance(t *testing.T) { fabrictest.Run(t, open) }

// TestEnvelope pins the bytes by a vector computed independently.
func TestEnvelope(t *testing.T) {
	const want = "4d4e434b250000004d52444e010000000500000000000000644a9bc57c6063e2ba4028fa73ed5851616c706861"
	frame, err := mrdn.Append(nil, mrdn.ThinkComplete, []byte("alpha"))
	if err != nil {
		t.Fatal(err)
	}
	inner, _ := synth.New(1 << 20)
	f := mooncake.New(inner)
	fabrictest.MustPush(t, f, "k", frame)
	raw, err := inner.Pull(context.Background(), "k", nil)
	if err != nil || hex.EncodeToString(raw) != want {
		t.Fatalf("%x, %v\nwant %s", raw, err, want)
	}
	for name, c := range map[string]struct {
		raw  []byte
		says string
	}{
		"nothing":          {nil, "0 bytes"},
		"7 bytes":          {raw[:7], "7 bytes"},
		"magic":            {append([]byte("MNCX"), raw[4:]...), "4d 4e 43 58"},
		"a byte missing":   {raw[:len(raw)-1], "declares 37 bytes and has 36"},
		"a byte too many":  {append(bytes.Clone(raw), 0), "declares 37 bytes and has 38"},
		"only the header":  {raw[:8], "declares 37 bytes and has 0"},
		"a frame unsealed": {frame, "4d 52 44 4e"},
	} {
		fabrictest.MustPush(t, inner, "k", c.raw)
		_, err := f.Pull(context.Background(), "k", nil)
		if !errors.Is(err, fabric.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}

func FuzzUnseal(f *testing.F) {
	sealed, _ := mooncake.Seal([]byte("value"))
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, b []byte) {
		value, err := mooncake.Unseal(b)
		if err != nil {
			return
		}
		if again, err := mooncake.Seal(value); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("sealed again: %x, %v", again, err)
		}
	})
}
