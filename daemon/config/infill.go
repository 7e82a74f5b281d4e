package config

import (
	"slices"

	"github.com/uma-serve/uma-serve/model/gguf"
)

// infillRoles are the settings of a model's file that name its markers of fill-in-the-middle.
var infillRoles = []string{"fim_pre", "fim_suf", "fim_mid"}

// InfillMarks returns the markers before prefix, suffix and middle that the settings of a model's file name, for a
// vocabulary of size tokens; nil if one of them is missing.
func InfillMarks(info *gguf.Info, size int) (marks []int32) {
	for _, role := range infillRoles {
		i := slices.IndexFunc(info.Special, func(t gguf.SpecialToken) bool { return t.Role == role })
		if i < 0 || info.Special[i].ID < 0 || info.Special[i].ID >= int64(size) {
			return nil
		}
		marks = append(marks, int32(info.Special[i].ID))
	}
	return marks
}

// InfillMarksOf is InfillMarks of the file at path; nil if it cannot be read.
func InfillMarksOf(path string, size int) []int32 {
	info, err := gguf.Brief(path)
	if err != nil {
		return nil
	}
	return InfillMarks(&info, size)
}
