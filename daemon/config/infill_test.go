package config

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
)

// TestInfillMarks: three settings within the vocabulary, or none.
func TestInfillMarks(t *testing.T) {
	info := &gguf.Info{Special: []gguf.SpecialToken{{Role: "eos", ID: 2}, {Role: "fim_mid", ID: 9},
		{Role: "fim_pre", ID: 7}, {Role: "fim_suf", ID: 8}}}
	if got := InfillMarks(info, 10); !slices.Equal(got, []int32{7, 8, 9}) {
		t.Error(got)
	}
	if got := InfillMarks(info, 9); got != nil {
		t.Error(got)
	}
	info.Special = info.Special[:3]
	if got := InfillMarks(info, 10); got != nil {
		t.Error(got)
	}
	if got := InfillMarksOf("/nothing/here.gguf", 10); got != nil {
		t.Error(got)
	}
}
