package jsonschema

import (
	"os"
	"testing"
)

func BenchmarkCompile(b *testing.B) {
	for _, c := range []struct{ n, s string }{
		{"string", `{"type":"string"}`},
		{"datetime", `{"type":"string","format":"date-time"}`},
		{"date", `{"type":"string","format":"date"}`},
		{"email", `{"type":"string","format":"email"}`},
		{"uri", `{"type":"string","format":"uri"}`},
		{"glaive", `{"properties":{"attendees":{"description":"x","items":{"type":"string"},"type":"array"},"event":{"type":"string"},"n":{"type":"integer"}},"required":["event"],"type":"object"}`},
	} {
		b.Run(c.n, func(b *testing.B) {
			for b.Loop() {
				if _, err := Compile([]byte(c.s), Options{AnyForm: true}, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	_ = os.Args
}
