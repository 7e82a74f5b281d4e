package api

import "strings"

// FileType returns the quantisation of the weights as in file names ("Q4_K_M"), or "unknown".
func (f *Facts) FileType() string {
	if f.File.Type != "" {
		return f.File.Type
	}
	// llama.cpp's description is the architecture, the size and the type: "llama 8B Q4_K - Medium".
	_, rest, _ := strings.Cut(f.Model.Description, " ")
	_, kind, _ := strings.Cut(rest, " ")
	kind = strings.TrimPrefix(kind, "all ")
	for word, letter := range map[string]string{" - Small": "_S", " - Medium": "_M", " - Large": "_L"} {
		kind = strings.Replace(kind, word, letter, 1)
	}
	if kind == "" {
		return "unknown"
	}
	return kind
}
