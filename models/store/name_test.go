package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	for text, want := range map[string]Name{
		"qwen3":                                 {"", "qwen3", ""},
		"qwen3:8b":                              {"", "qwen3", "8b"},
		"Qwen3:8B-q4_K_M":                       {"", "Qwen3", "8B-q4_K_M"},
		"org/repo":                              {"", "org/repo", ""},
		"org/repo:Q4_K_M":                       {"", "org/repo", "Q4_K_M"},
		"hf.co/org/repo:Q4_K_M":                 {HuggingFace, "org/repo", "Q4_K_M"},
		"HuggingFace.co/org/repo":               {HuggingFace, "org/repo", ""},
		"https://huggingface.co/org/repo":       {HuggingFace, "org/repo", ""},
		"hf.co/org/repo/sub/model-Q4_0.gguf":    {HuggingFace, "org/repo/sub/model-Q4_0.gguf", ""},
		"org/repo/model.GGUF":                   {"", "org/repo/model.GGUF", ""},
		"registry.ollama.ai/library/qwen3:8b":   {Ollama, "qwen3", "8b"},
		"ollama.com/qwen3":                      {Ollama, "qwen3", ""},
		"ollama.com/user/model:latest":          {Ollama, "user/model", "latest"},
		"library/qwen3":                         {"", "library/qwen3", ""},
		"example.com/user/model:tag":            {"example.com", "user/model", "tag"},
		"localhost:5000/user/model":             {"localhost:5000", "user/model", ""},
		"localhost:5000/user/model:tag":         {"localhost:5000", "user/model", "tag"},
		"hf.co":                                 {"", "hf.co", ""},
		"_x":                                    {"", "_x", ""},
		strings.Repeat("a", maxPartBytes):       {"", strings.Repeat("a", maxPartBytes), ""},
		"unsloth/Qwen3-30B-A3B-GGUF:UD-Q4_K_XL": {"", "unsloth/Qwen3-30B-A3B-GGUF", "UD-Q4_K_XL"},
		"org/repo/UD/x-00001-of-00002.gguf":     {"", "org/repo/UD/x-00001-of-00002.gguf", ""},
	} {
		got, err := ParseName(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                                  "it is empty",
		strings.Repeat("a", 513):            "it has 513 bytes; the maximum is 512",
		strings.Repeat("a", 129):            "has 129 bytes; the maximum is 128",
		strings.Repeat("a/", 12) + "b.gguf": "it has 13 parts; the maximum is 12",
		"a//b":                              `its part "" is empty`,
		"a/":                                `its part "" is empty`,
		"/etc/passwd":                       `its host "" is empty`,
		"a:":                                `its tag "" is empty`,
		"a:b:c":                             "letters, digits",
		"../x":                              `its part ".." must begin with a letter`,
		"a/../../x.gguf":                    `its part ".." must begin with`,
		"-m":                                `must begin with a letter, a digit or _`,
		"a b":                               `its part "a b" may have letters, digits, _, - and . only`,
		"a\x00b":                            "may have letters",
		"hf.co/repo":                        "hf.co/ORG/REPO",
		"hf.co/a/b/c":                       "hf.co/ORG/REPO",
		"ollama.com/a/b/c":                  "USER/MODEL[:TAG]",
		"https://example.com/x":             "HOST/USER/MODEL[:TAG]",
		"example.com/a/b/c":                 "HOST/USER/MODEL[:TAG]",
		"localhost:port/user/model":         "has no number as its port",
		"org/repo/f.gguf:Q4_0":              "a file has no tag",
		"http://hf.co/org/repo":             "has no number as its port",
	} {
		if got, err := ParseName(text); !errors.Is(err, ErrName) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %+v, %v, want %q", text, got, err, want)
		}
	}
}

// TestShortName: lists leave out a host that need not be written, and a name read back means the same.
func TestShortName(t *testing.T) {
	for n, want := range map[Name]string{
		{HuggingFace, "org/repo", "Q4_0"}:      "org/repo:Q4_0",
		{HuggingFace, "org/repo/f.gguf", ""}:   "org/repo/f.gguf",
		{HuggingFace, "01.ai/repo/f.gguf", ""}: "hf.co/01.ai/repo/f.gguf",
		{Ollama, "qwen3", "8b"}:                "qwen3:8b",
		{Ollama, "user/model", "8b"}:           "user/model:8b",
		{"example.com", "user/model", "8b"}:    "example.com/user/model:8b",
		{"", "file", ""}:                       "file",
	} {
		if got := n.short(); got != want {
			t.Errorf("%+v is %s, want %s", n, got, want)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"qwen3:8b", "hf.co/org/repo:Q4_K_M", "org/repo/sub/f.gguf", "localhost:5000/a/b:c",
		"https://ollama.com/library/x", "../..", "a:b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseName(text)
		if err != nil {
			if !errors.Is(err, ErrName) || n != (Name{}) {
				t.Errorf("%q: %+v, %v", text, n, err)
			}
			return
		}
		if !filepath.IsLocal(n.Path) || strings.ContainsAny(n.Path+n.Tag+n.Host, "\x00\\ ~$") ||
			strings.Contains(n.Tag, "/") {
			t.Errorf("%q: %+v is no safe name", text, n)
		}
		for _, again := range []string{n.String(), n.short()} {
			back, err := ParseName(again)
			if again == n.short() && back.Host == "" {
				back.Host = n.Host
			}
			if err != nil || back != n {
				t.Errorf("%q is %+v; %q is %+v, %v", text, n, again, back, err)
			}
		}
	})
}

func FuzzWord(f *testing.F) {
	f.Add("Llama 3 (8B)")
	f.Add("..")
	f.Add("--x")
	f.Fuzz(func(t *testing.T, text string) {
		if w := word(text); checkPart(w) != nil {
			t.Errorf("%q is %q: %v", text, w, checkPart(w))
		}
	})
}

func TestQuantOf(t *testing.T) {
	for rel, want := range map[string]string{
		"model-Q4_K_M.gguf": "Q4_K_M", "model.q8_0.gguf": "Q8_0", "Qwen3-UD-Q4_K_XL.gguf": "UD-Q4_K_XL",

		"x-IQ2_XXS.gguf": "IQ2_XXS",

		"x-F16.gguf": "F16", "x-bf16.gguf": "BF16", "x-MXFP4.gguf": "MXFP4", "gpt-oss-20b-mxfp4_moe.gguf": "MXFP4_MOE",

		"Q6_K/x-00001-of-00002.gguf": "Q6_K", "x-Q4_0-00002-of-00003.gguf": "Q4_0", "model.gguf": "",
		"v2/model.gguf": "",
		"x-TQ1_0.gguf":  "TQ1_0", "qwen2.5-coder.gguf": "", "Q4_0.gguf": "Q4_0", "llama-3.gguf": "",
		"x-fp16.gguf": "FP16",
	} {
		if got := QuantOf(rel); got != want {
			t.Errorf("%s: %q, want %q", rel, got, want)
		}
	}
}
