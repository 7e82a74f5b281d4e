package llamaserver

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzSlotFile: any bytes are a slot file or an error, and what was read is read again from what is written of it.
func FuzzSlotFile(f *testing.F) {
	own, err := (&slotFile{Version: slotFileVersion, Model: "m", Vocab: 9, Tokens: []int32{1, 2, 3}}).append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte(`{"version":1,"model":"m","vocab":9,"tokens":[1,2]}`))
	f.Add([]byte("qsgg\x03\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00cells")) // an older server's
	f.Add(append(bytes.Clone(own[:24]), 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseSlotFile(b)
		if err != nil {
			return
		}
		if len(got.Tokens) == 0 || len(got.Tokens) > len(b) {
			t.Fatalf("%d tokens of %d bytes", len(got.Tokens), len(b))
		}
		got.Version = slotFileVersion
		text, err := got.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseSlotFile(text)
		if err != nil || !slices.Equal(again.Tokens, got.Tokens) || again.Vocab != got.Vocab {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
	})
}
